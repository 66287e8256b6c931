"""What is drawn at random between two cut layers: each worker of a tensor group has other columns, and draws for them.

Workers of a tensor group draw the same numbers, because what is whole on each of them has to stay the same. Between a
layer that is cut by columns and one that is cut by rows each has its own part: with the same numbers, a dropout would
drop the same places of each part (Megatron-LM, arXiv 1909.08053, appendix B.2). There each draws from a stream of its
own, which follows from one number of the common stream and the worker's part: what puts the common stream back (a
checkpoint, computing a block again) puts these back, too.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from raysm.workloads.training.loop.random_state import seed_of

__all__ = ["OwnStream", "draw_by_part"]


class OwnStream:
    """One worker's stream, entered and left around what is computed on its part alone."""

    def __init__(self, module: nn.Module, part: int) -> None:
        """Take the module, which draws in training alone, and the worker's part of the tensors."""
        self._module, self._part = module, part
        self._common: tuple[_State, _State, _State] | None = None

    # Compiled code would keep the state that it saw when it was traced.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def enter(self) -> None:
        """Draw from the own stream from now on."""
        if self._common is not None or not self._module.training:
            return
        before = _state()
        common = int(torch.randint(2**62, (), device="cpu"))
        after = _state()
        torch.manual_seed(seed_of(common, self._part))
        self._common = before, after, _state()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def leave(self) -> None:
        """Draw from the common stream again: at the same place on every worker of the group."""
        if self._common is None:
            return
        (before, after, fresh), self._common = self._common, None
        # Where nothing was drawn, nothing has changed: a model without dropout trains as it did without any of this.
        _restore(before if _are_equal(_state(), fresh) else after)


def draw_by_part(module: nn.Module, plan: Mapping[str, Any], part: int) -> None:
    """Let what a worker draws between the cut layers of one module be its own.

    Args:
        module: A model whose tensors are cut, or a stage of one.
        plan: By the names of its layers, 'colwise' or 'rowwise'; ParallelStyles, which say of themselves what comes
            in and goes out, draw as the whole model does.
        part: This worker's.
    """
    modules = dict(module.named_modules())
    for name in {name.rpartition(".")[0] for name, style in plan.items() if style == "colwise" and name in modules}:
        parent = modules[name]
        prefix = f"{name}." if name else ""
        cuts = {child: plan.get(prefix + child) for child, _ in parent.named_children()}
        if "rowwise" not in cuts.values():
            continue
        if type(parent).forward is nn.Sequential.forward:
            _in_sequence(parent, cuts, part)
        else:
            _in_forward(parent, cuts, part)


def _in_sequence(parent: nn.Module, cuts: Mapping[str, Any], part: int) -> None:
    """Have each child between two cut layers draw by itself: the Sequential may never be called as a whole."""
    is_cut = False
    for name, child in parent.named_children():
        if cuts[name] is not None:
            is_cut = cuts[name] == "colwise"
        elif is_cut and any(getattr(inner, "p", 0) for inner in child.modules()):
            stream = OwnStream(child, part)
            child.forward = _drawing(child.forward, stream)


def _in_forward(parent: nn.Module, cuts: Mapping[str, Any], part: int) -> None:
    """Have all that is drawn from the first cut layer's output to the last one's input be the worker's own."""
    stream = OwnStream(parent, part)
    is_inside: list[bool] = []
    forward = parent.forward

    def watched(*args: Any, **kwargs: Any) -> Any:
        # Computing a block again may end in its middle: what was entered is left here, whatever happens.
        is_inside.append(True)
        try:
            return forward(*args, **kwargs)
        finally:
            is_inside.pop()
            stream.leave()

    parent.forward = watched
    for name, style in cuts.items():
        layer = parent.get_submodule(name)
        if style == "colwise":
            layer.register_forward_hook(lambda *_: stream.enter() if is_inside else None)
        elif style == "rowwise":
            layer.register_forward_pre_hook(lambda *_: stream.leave())


def _drawing(forward: Callable[..., Any], stream: OwnStream) -> Callable[..., Any]:
    def drawing(*args: Any, **kwargs: Any) -> Any:
        stream.enter()
        try:
            return forward(*args, **kwargs)
        finally:
            stream.leave()

    return drawing


_State = tuple[torch.Tensor, torch.Tensor | None]
"""Of torch's generators: the CPU's, and that of the GPU."""


def _state() -> _State:
    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None


def _restore(state: _State) -> None:
    cpu, gpu = state
    torch.set_rng_state(cpu)
    if gpu is not None:
        torch.cuda.set_rng_state(gpu)


def _are_equal(one: _State, other: _State) -> bool:
    return all(
        left is right or (left is not None and right is not None and torch.equal(left, right))
        for left, right in zip(one, other, strict=True)
    )
