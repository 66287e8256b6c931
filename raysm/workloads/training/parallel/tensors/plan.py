"""Which matrices are cut over the workers of a tensor group, and how: pairs of a column-wise and a row-wise cut.

A pair needs one sum over the group per forward pass (Megatron-LM, arXiv 1909.08053). Found by themselves are the
pairs of a Sequential with nothing but elementwise modules between them, and MLPs and attentions whose linear layers
carry the field's names, if a trial shows that they compute the same when they are cut; what is not found, or fails,
stays whole on every worker, which is right, only not faster.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from raysm.errors import InvalidRequest
from raysm.workloads.training.parallel.tensors.trial import HEADS, Objection, Pair, Trials, integers

__all__ = [
    "DerivedPlan",
    "Plan",
    "check_pairs",
    "check_plan",
    "partition_tensors",
    "derive_plan",
    "watch_first_forward",
]

Plan: TypeAlias = Mapping[str, Literal["colwise", "rowwise"] | ParallelStyle]
"""How each named module is cut."""

ELEMENTWISE = (
    nn.ReLU, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardswish, nn.Mish,
    nn.Dropout, nn.Identity,
)  # fmt: skip
"""What may lie between the two layers of a pair: each of its outputs depends on one input."""

MLPS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("fc1",), "fc2"),
    (("linear1",), "linear2"),
    (("lin1",), "lin2"),
    (("c_fc",), "c_proj"),
    (("up_proj",), "down_proj"),
    (("gate_proj", "up_proj"), "down_proj"),
    (("w1",), "w2"),
    (("w1", "w3"), "w2"),
)
"""Names of the layers before and after an MLP's activation: PyTorch, timm, GPT-2, Llama."""

ATTENTIONS: tuple[tuple[tuple[str, str, str], str], ...] = (
    (("q_proj", "k_proj", "v_proj"), "out_proj"),
    (("q_proj", "k_proj", "v_proj"), "o_proj"),
    (("wq", "wk", "wv"), "wo"),
    (("query", "key", "value"), "out"),
    (("to_q", "to_k", "to_v"), "to_out"),
)
"""Names of an attention's layers."""

HEAD_SIZES = ("head_dim", "head_size", "dim_head", "d_head")
"""Attributes that tell the size of a head: without one, forward would derive a wrong size from its share of heads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DerivedPlan:
    """What is cut, and what is not although it looks as if it could be."""

    cuts: dict[str, Literal["colwise", "rowwise"]] = field(default_factory=dict)
    """By the names of the layers."""
    left: dict[str, str] = field(default_factory=dict)
    """Why a module's layers stay whole, by its name."""


def derive_plan(model: nn.Module, degree: int, example: Sequence[Any] | None = None) -> DerivedPlan:
    """Return the plan for all pairs that are found and that can be cut without changing what the model computes.

    Args:
        model: Whole.
        degree: Workers over which tensors are cut.
        example: Inputs of the model, to try modules on what they get; None makes up some.

    Raises:
        InvalidRequest: The model cannot be computed on the example.
    """
    pairs = {pair: is_proven for pair, is_proven in _pairs(model, degree).items() if _divides(model, pair, degree)}
    objections = {pair: _shared_weights(model, pair) for pair in pairs}
    open_questions = [
        pair for pair, is_proven in pairs.items() if objections[pair] is None and (example is not None or not is_proven)
    ]
    if open_questions:
        objections |= Trials(model, degree)(open_questions, example)
    # What fails its trial is named with the reason: a degree that cuts nothing would else look like one that works.
    plan = DerivedPlan()
    for pair, objection in objections.items():
        if objection is None:
            plan.cuts.update(pair.layers)
        else:
            plan.left[pair.module or type(model).__name__] = objection.reason
    return plan


def check_pairs(model: nn.Module, plan: Plan, degree: int, example: Sequence[Any] | None = None) -> None:
    """Check that the pairs of a user's plan compute the same when they are cut, as far as that can be tried.

    Layers of one module, some by columns and one by rows, are such a pair; what else the plan has is taken as it is.

    Raises:
        InvalidRequest: A pair computes something else.
    """
    # Pairs are children of one module: what lies between layers of two modules is anybody's code.
    children: dict[str, dict[str, list[str]]] = {}
    for name, style in plan.items():
        module, _, layer = name.rpartition(".")
        if style in ("colwise", "rowwise") and type(model.get_submodule(name)) is nn.Linear:
            children.setdefault(module, {"colwise": [], "rowwise": []})[str(style)].append(layer)
    pairs = [
        Pair(
            module=module,
            before=tuple(layers["colwise"]),
            after=layers["rowwise"][0],
            has_heads=_attention(model.get_submodule(module)) is not None,
        )
        for module, layers in children.items()
        if layers["colwise"] and len(layers["rowwise"]) == 1
    ]
    for pair, objection in (Trials(model, degree)(pairs, example) if pairs else {}).items():
        if objection is not None and objection.is_proven:
            raise InvalidRequest(
                f"plan: {pair.module or type(model).__name__} would compute something else: {objection.reason}; leave "
                f"{', '.join(pair.layers)} out of it"
            )


def partition_tensors(module: nn.Module, plan: Plan, mesh: DeviceMesh) -> None:
    """Cut the tensors of those modules of the plan that ``module`` has; its attentions then have their share of heads.

    Args:
        module: A model, or a stage of one.
        plan: By name; other modules stay as they are.
        mesh: The workers of a tensor group, one dimension.
    """
    styles = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
    modules = {name for name, _ in module.named_modules()}
    cuts = {
        name: style if isinstance(style, ParallelStyle) else styles[style]()
        for name, style in plan.items()
        if name in modules
    }
    for name in {name.rpartition(".")[0] for name, style in plan.items() if style == "colwise" and name in modules}:
        parent = module.get_submodule(name)
        if _attention(parent):
            # Its forward reshapes by them: with the whole count, a worker's share of the columns would not fit.
            for attribute, count in integers(parent, HEADS).items():
                setattr(parent, attribute, count // mesh.size())
    # The fast path of nn.TransformerEncoderLayer reads its weights past the modules that gather them.
    torch.backends.mha.set_fastpath_enabled(False)
    parallelize_module(module, mesh, cuts)


def watch_first_forward(module: nn.Module, plan: Plan) -> None:
    """Let the first forward raise InvalidRequest if it calls a layer that is cut by columns past the module around it.

    What that module does with the layer's outputs was tried; what code outside does with them, a worker's part each,
    was not. Later forwards are not watched: they would pay for it.

    Args:
        module: A model that ``partition_tensors`` has cut, or a stage of one.
        plan: A derived one.
    """
    # Counted, not a flag: a module may call itself again.
    inside: Counter[str] = Counter()

    def check(name: str, parent: str) -> None:
        if not inside[parent]:
            raise InvalidRequest(
                f"tensor: {name} is cut over the workers, but the model's forward calls it outside of "
                f"{parent or type(module).__name__}; give prepare an example batch, which shows it before, or say "
                "what to cut by plan=…"
            )

    modules = dict(module.named_modules())
    layers = [name for name, style in plan.items() if style == "colwise" and name in modules]
    parents = {name.rpartition(".")[0] for name in layers}
    hooks = [
        modules[name].register_forward_pre_hook(partial(lambda name, *_: check(name, name.rpartition(".")[0]), name))
        for name in layers
    ]
    for parent in parents:
        hooks += [
            modules[parent].register_forward_pre_hook(partial(lambda parent, *_: inside.update([parent]), parent)),
            modules[parent].register_forward_hook(
                partial(lambda parent, *_: inside.subtract([parent]), parent), always_call=True
            ),
        ]

    def forget(*_: Any) -> None:
        for hook in hooks:
            hook.remove()

    hooks.append(module.register_forward_hook(forget))


def check_plan(model: nn.Module, plan: Plan, degree: int, left: str = "") -> None:
    """Check that a plan cuts something, and that its modules are there and divide.

    Args:
        model: Whole.
        plan: The user's, or derived.
        degree: Workers over which tensors are cut.
        left: What looked as if it could be cut, and why it is not.

    Raises:
        InvalidRequest: It does not.
    """
    if not plan:
        raise InvalidRequest(
            f"tensor={degree}: no pair of linear layers was found in {type(model).__name__} whose width divides by "
            f"{degree}, and that computes the same when it is cut{f' ({left})' if left else ''}; say what to cut: "
            "plan={'name of a module': 'colwise' or 'rowwise', …}"
        )
    modules = dict(model.named_modules())
    for name, style in plan.items():
        if name not in modules:
            raise InvalidRequest(f"plan: {type(model).__name__} has no module {name!r}")
        if not isinstance(style, ParallelStyle) and style not in ("colwise", "rowwise"):
            raise InvalidRequest(f"plan: {name!r} is {style!r}; it must be 'colwise', 'rowwise' or a ParallelStyle")
        module = modules[name]
        if isinstance(module, nn.Linear):
            # By rows its inputs are cut, by columns its outputs.
            width = module.in_features if style == "rowwise" else module.out_features
            if width % degree:
                raise InvalidRequest(f"plan: {name!r} has a width of {width}, which tensor={degree} does not divide")


def _sequential_pairs(module: nn.Sequential) -> list[tuple[tuple[str, ...], str]]:
    pairs: list[tuple[tuple[str, ...], str]] = []
    open_layer: str | None = None
    for name, child in module.named_children():
        # Exactly: a subclass may compute something else in its forward.
        if type(child) is nn.Linear:
            if open_layer is not None:
                pairs.append(((open_layer,), name))
                open_layer = None
            else:
                open_layer = name
        # A norm or a softmax sees all columns at once: each worker would compute another function.
        elif not isinstance(child, ELEMENTWISE):
            open_layer = None
    return pairs


def _pairs(model: nn.Module, degree: int) -> dict[Pair, bool]:
    """Return all pairs, and whether each is known to be right without a trial."""
    pairs: dict[Pair, bool] = {}
    for prefix, module in model.named_modules():
        if isinstance(module, nn.Sequential):
            # A subclass with a forward of its own may call its children in any order.
            is_proven = type(module).forward is nn.Sequential.forward
            for before, after in _sequential_pairs(module):
                pairs[Pair(module=prefix, before=before, after=after)] = is_proven
            continue
        linear = {name: child for name, child in module.named_children() if type(child) is nn.Linear}
        # The richest first: a gated MLP also has the names of a plain one.
        mlps = [pair for pair in reversed(MLPS) if {*pair[0], pair[1]} <= linear.keys()][:1]
        for before, after in mlps:
            if _is_mlp((before, after), linear):
                pairs[Pair(module=prefix, before=before, after=after)] = False
        attention = _attention(module)
        if attention and all(count % degree == 0 for count in integers(module, HEADS).values()):
            pairs[Pair(module=prefix, before=attention[0], after=attention[1], has_heads=True)] = False
    return pairs


def _divides(model: nn.Module, pair: Pair, degree: int) -> bool:
    module = model.get_submodule(pair.module)
    layers = (module.get_submodule(name) for name in pair.before)
    return all(isinstance(layer, nn.Linear) and layer.out_features % degree == 0 for layer in layers)


def _shared_weights(model: nn.Module, pair: Pair) -> Objection | None:
    """Return why layers cannot be cut whose weights others have, too: those would keep the whole ones; None if none."""
    names: dict[int, list[str]] = {}
    for name, module in model.named_modules():  # each module once, whatever its names
        for parameter in module._parameters.values():
            names.setdefault(id(parameter), []).append(name)
    shared = dict.fromkeys(
        " = ".join(names[id(parameter)])
        for layer in pair.layers
        for parameter in model.get_submodule(layer).parameters()
        if len(names[id(parameter)]) > 1
    )
    return Objection(reason=f"its weights are shared ({', '.join(shared)})") if shared else None


def _is_mlp(pair: tuple[tuple[str, ...], str], linear: Mapping[str, nn.Linear]) -> bool:
    return all(linear[name].out_features == linear[pair[1]].in_features for name in pair[0])


def _attention(module: nn.Module) -> tuple[tuple[str, ...], str] | None:
    """Return the layers of an attention that tells its heads and their size; None if it is none."""
    linear = {name for name, child in module.named_children() if type(child) is nn.Linear}
    tells = integers(module, HEADS) and integers(module, HEAD_SIZES)
    for layers, out in ATTENTIONS:
        if tells and {*layers, out} <= linear:
            return layers, out
    return None
