"""Whether a pair of layers can be cut without changing what its module computes: tried before anything is cut.

The names of layers tell nothing of what forward does between them. So the module is computed whole, and then with the
part of the weights that each worker would have, one worker after the other in this process: their parts of the row-wise
layer's output must add up to the whole one, and all that the module returns must be the same on every worker.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from raysm.errors import InvalidRequest

__all__ = ["HEADS", "Objection", "Pair", "Trials", "integers", "share_of_heads"]

HEADS = ("num_heads", "n_heads", "heads", "n_head", "num_kv_heads", "n_kv_heads", "num_key_value_heads")
"""Attributes that count an attention's heads: each worker has its share of them."""

ROWS, LENGTH = 2, 3
"""Of the made-up input, float[ROWS, LENGTH, the layers' width], of a module that was not met in the example."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Layers that are cut together, children of one module."""

    module: str
    """Name of the module; "" is the model."""
    before: tuple[str, ...]
    """Its layers that are cut by columns."""
    after: str
    """Its layer that is cut by rows, which takes what became of their outputs."""
    has_heads: bool = False
    """Whether the module is an attention, of whose heads each worker has its share."""

    @property
    def layers(self) -> dict[str, Literal["colwise", "rowwise"]]:
        """The cut of each layer, by its name in the model."""
        prefix = f"{self.module}." if self.module else ""
        cuts: dict[str, Literal["colwise", "rowwise"]] = {prefix + name: "colwise" for name in self.before}
        return cuts | {prefix + self.after: "rowwise"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Objection:
    """Why a pair is not cut."""

    reason: str
    """For people."""
    is_proven: bool = True
    """Whether it is known to compute something else; False if it could not be tried."""


class Trials:
    """Tries the pairs of one model."""

    def __init__(self, model: nn.Module, degree: int) -> None:
        """Take the model, whole; it is not changed.

        Args:
            model: On any device.
            degree: Number of workers over which tensors are to be cut.
        """
        self._model, self._degree = model, degree

    def __call__(self, pairs: Sequence[Pair], example: Sequence[Any] | None) -> dict[Pair, Objection | None]:
        """Return for each pair why it cannot be cut, None if it can.

        Args:
            pairs: Of this model.
            example: Inputs of the model, of which two rows are taken; None tries each module on random numbers, which
                only a module that takes nothing but hidden values allows.

        Raises:
            InvalidRequest: The model cannot be computed on the example.
        """
        objections: dict[Pair, Objection | None] = {}
        with _untouched(self._model):
            if example is not None:
                self._meet(pairs, example, objections)
            for pair in pairs:
                if pair not in objections:
                    objections[pair] = (
                        self._objection(pair, *self._made_up(pair))
                        if example is None
                        else Objection(reason="the model never calls it as a whole", is_proven=False)
                    )
        return {pair: objections[pair] for pair in pairs}

    def _meet(self, pairs: Sequence[Pair], example: Sequence[Any], objections: dict[Pair, Objection | None]) -> None:
        """Try the modules of the pairs where the model calls them, on what it calls them with."""

        def meet(pair: Pair) -> Callable[..., None]:
            def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                if pair not in objections:
                    objections[pair] = None  # the trial calls the module, too
                    objections[pair] = self._objection(pair, args, kwargs)

            return hook

        hooks = [
            self._model.get_submodule(pair.module).register_forward_pre_hook(meet(pair), with_kwargs=True)
            for pair in pairs
        ]
        try:
            self._model(*pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[:ROWS], tuple(example)))
        except Exception as error:  # the user's
            raise InvalidRequest(
                f"the model cannot be computed on two rows of the example ({type(error).__name__}: {error}); give a "
                "batch like those of step, or none"
            ) from error
        finally:
            for handle in hooks:
                handle.remove()

    def _made_up(self, pair: Pair) -> tuple[tuple[Any, ...], dict[str, Any]]:
        layer = self._model.get_submodule(pair.module).get_submodule(pair.before[0])
        weight = layer.get_parameter("weight")
        made_up = torch.randn(ROWS, LENGTH, weight.shape[1], generator=torch.Generator().manual_seed(0))
        return (made_up.to(weight.device, weight.dtype),), {}

    def _objection(self, pair: Pair, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Objection | None:
        """Return why the pair cannot be cut, None if it can."""
        module = self._model.get_submodule(pair.module)
        # Biases begin as 0, and norms as 1: with them, mixing what must not be mixed would show nothing.
        weights = _lively(module)
        outputs: list[torch.Tensor] = []
        try:
            with _outputs_of(module.get_submodule(pair.after), outputs.append):
                whole = _call(module, weights, args, kwargs)
        except Exception as error:  # the user's forward, perhaps on what it does not expect, may raise anything
            first_line = str(error).partition("\n")[0]
            return Objection(
                reason=f"it could not be tried ({type(error).__name__}: {first_line}); give prepare an example batch, "
                "or name its layers by plan=…",
                is_proven=False,
            )
        if not outputs or not all(_is_finite(output) for output in outputs):
            reason = f"its {pair.after} was not computed, or not finite, when it was tried"
            return Objection(reason=reason, is_proven=False)
        added = self._added_up(pair, module, weights, lambda part: _call(module, part, args, kwargs), whole, outputs)
        if added is None:
            return Objection(reason="its forward needs the whole outputs of the layers that would be cut")
        sums, largest = added
        bias = weights.get(f"{pair.after}.bias")
        if not all(
            _close(total if bias is None else total + bias, output, largest)
            for total, output in zip(sums, outputs, strict=True)
        ):
            between = f"between {', '.join(pair.before)} and {pair.after}"
            return Objection(reason=f"what its forward does {between} mixes their outputs")
        return None

    def _added_up(
        self,
        pair: Pair,
        module: nn.Module,
        weights: Mapping[str, torch.Tensor],
        compute: Callable[[Mapping[str, torch.Tensor]], Any],
        whole: Any,
        outputs: Sequence[torch.Tensor],
    ) -> tuple[list[torch.Tensor], float] | None:
        """Compute each worker's part, and add up what the parts put out, as the workers' all-reduce will.

        Returns:
            The sums, and the largest number that was added; None if the module computes something else on a part.
        """
        sums = [torch.zeros_like(output) for output in outputs]
        # Rounding is relative to the largest number that was added, not to what is left when large ones cancel.
        largest = max(float(output.abs().max()) for output in outputs)
        for worker in range(self._degree):
            parts: list[torch.Tensor] = []

            def put_back(output: torch.Tensor, parts: list[torch.Tensor] = parts) -> torch.Tensor:
                parts.append(output)
                # The whole output, as after the workers' all-reduce; a copy, since forward may work in place.
                return outputs[len(parts) - 1].clone()

            try:
                with _outputs_of(module.get_submodule(pair.after), put_back):
                    with share_of_heads(module, self._degree if pair.has_heads else 1):
                        cut = compute({**weights, **self._part(pair, module, weights, worker)})
                for total, part in zip(sums, parts, strict=True):
                    total += part
                    largest = max(largest, float(part.abs().max()))
                alike = _alike(whole, cut)
            except Exception:  # shapes that do not fit, most of all
                alike = False
            if not alike:
                return None
        return sums, largest

    def _part(
        self, pair: Pair, module: nn.Module, weights: Mapping[str, torch.Tensor], worker: int
    ) -> dict[str, torch.Tensor]:
        """Return the weights of the pair's layers that one worker has."""
        parts = {}
        for name in pair.before:
            for leaf in ("weight", "bias"):
                if f"{name}.{leaf}" in weights:
                    parts[f"{name}.{leaf}"] = weights[f"{name}.{leaf}"].chunk(self._degree)[worker]
        parts[f"{pair.after}.weight"] = weights[f"{pair.after}.weight"].chunk(self._degree, 1)[worker]
        if f"{pair.after}.bias" in weights:  # added once, to the sum
            parts[f"{pair.after}.bias"] = torch.zeros_like(weights[f"{pair.after}.bias"])
        return parts


def integers(module: nn.Module, names: tuple[str, ...]) -> dict[str, int]:
    """Return those of the named attributes of a module that are integers: others may have a tensor of that name."""
    values = {name: getattr(module, name, None) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, int)}


@contextmanager
def share_of_heads(module: nn.Module, degree: int) -> Iterator[None]:
    """Let an attention count a worker's share of its heads only."""
    counts = integers(module, HEADS)
    try:
        for name, count in counts.items():
            setattr(module, name, count // degree)
        yield
    finally:
        for name, count in counts.items():
            setattr(module, name, count)


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Compute without gradients, random numbers and running averages; leave the model as it was."""
    modes = {module: module.training for module in model.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = {tensor.device for tensor in model.parameters() if tensor.device.type == "cuda"}
    fast = torch.backends.mha.get_fastpath_enabled()
    # Dropout would let two computations differ that are the same.
    model.eval()
    # The fast path of nn.TransformerEncoderLayer reads its weights past the layers.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), torch.random.fork_rng(list(devices)):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, training in modes.items():
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)


@contextmanager
def _outputs_of(layer: nn.Module, take: Callable[[torch.Tensor], torch.Tensor | None]) -> Iterator[None]:
    """Hand copies of a layer's outputs to ``take``, and put what it returns in their place."""
    handle = layer.register_forward_hook(lambda _, __, output: take(output.clone()))
    try:
        yield
    finally:
        handle.remove()


def _call(module: nn.Module, weights: Mapping[str, torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # Copies: forward may work in place.
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
    return functional_call(module, dict(weights), args, kwargs)


def _lively(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the module's weights, with random numbers for those that are all alike: what is 0 hides what mixes."""
    generator = torch.Generator().manual_seed(1)
    weights = {}
    for name, parameter in module.named_parameters():
        weights[name] = parameter.detach()
        if parameter.is_floating_point() and parameter.numel() and bool(parameter.min() == parameter.max()):
            # Biases and scales from 0.5 to 1.5: one that happened to be near 0 would hide what mixes.
            random = torch.rand(parameter.shape, generator=generator) + (0.5 if parameter.dim() < 2 else -0.5)
            weights[name] = random.to(parameter.device, parameter.dtype)
    return weights


def _alike(whole: Any, cut: Any) -> bool:
    """Return whether two results of a module are the same, but for rounding."""
    leaves, others = pytree.tree_leaves(whole), pytree.tree_leaves(cut)
    return len(leaves) == len(others) and all(
        _close(leaf, other, float(leaf.abs().max()) if leaf.numel() else 0.0)
        if torch.is_tensor(leaf)
        else leaf == other
        for leaf, other in zip(leaves, others, strict=True)
    )


def _close(left: torch.Tensor, right: torch.Tensor, largest: float) -> bool:
    """Return whether two tensors differ by at most the root of their type's precision, relative to ``largest``.

    Sums in another order differ by some units in the last place, another function by about 1.
    """
    if left.shape != right.shape:
        return False
    tolerance = torch.finfo(left.dtype).eps ** 0.5 if left.is_floating_point() else 0.0
    return left.numel() == 0 or float((left - right).abs().max()) <= tolerance * largest


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(tensor.isfinite().all())
