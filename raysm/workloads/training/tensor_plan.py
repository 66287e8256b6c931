"""Which matrices are cut over the workers of a tensor group, and how: pairs of a column-wise and a row-wise cut.

A pair needs one sum over the group per forward pass (Megatron-LM, arXiv 1909.08053). Found by themselves are the
pairs of a Sequential with nothing but elementwise modules between them, and MLPs and attentions whose linear layers
carry the field's names; what is not found stays whole on every worker, which is right, only not faster.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from raysm.errors import InvalidRequest

__all__ = ["Plan", "check_plan", "cut_tensors", "derived_plan"]

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

HEADS = ("num_heads", "n_heads", "heads", "n_head", "num_kv_heads", "n_kv_heads", "num_key_value_heads")
"""Attributes that count an attention's heads: each worker has its share of them."""

HEAD_SIZES = ("head_dim", "head_size", "dim_head", "d_head")
"""Attributes that tell the size of a head: without one, forward would derive a wrong size from its share of heads."""


def derived_plan(model: nn.Module, degree: int) -> dict[str, Literal["colwise", "rowwise"]]:
    """Return the plan for all pairs that are found, by the names of the modules."""
    plan: dict[str, Literal["colwise", "rowwise"]] = {}
    for prefix, module in model.named_modules():
        linear = {name: child for name, child in module.named_children() if type(child) is nn.Linear}
        pairs = _sequential_pairs(module) if isinstance(module, nn.Sequential) else _named_pairs(module, linear, degree)
        for before, after in pairs:
            if all(module.get_submodule(name).out_features % degree == 0 for name in before):
                for name in before:
                    plan[f"{prefix}.{name}" if prefix else name] = "colwise"
                plan[f"{prefix}.{after}" if prefix else after] = "rowwise"
    return plan


def cut_tensors(module: nn.Module, plan: Plan, mesh: DeviceMesh) -> None:
    """Cut the tensors of those modules of the plan that ``module`` has; its attentions then have their share of heads.

    Args:
        module: A model, or a stage of one.
        plan: By name; other modules stay as they are.
        mesh: The workers of a tensor group, one dimension.
    """
    styles = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
    here = {name for name, _ in module.named_modules()}
    cuts = {
        name: style if isinstance(style, ParallelStyle) else styles[style]()
        for name, style in plan.items()
        if name in here
    }
    for name in {name.rpartition(".")[0] for name, style in plan.items() if style == "colwise" and name in here}:
        parent = module.get_submodule(name)
        if _attention(parent):
            for attribute in HEADS:
                if isinstance(getattr(parent, attribute, None), int):
                    setattr(parent, attribute, getattr(parent, attribute) // mesh.size())
    # The fast path of nn.TransformerEncoderLayer reads its weights past the modules that gather them.
    torch.backends.mha.set_fastpath_enabled(False)
    parallelize_module(module, mesh, cuts)


def check_plan(model: nn.Module, plan: Plan, degree: int) -> None:
    """Check that a plan cuts something, and that its modules are there and divide.

    Raises:
        InvalidRequest: It does not.
    """
    if not plan:
        raise InvalidRequest(
            f"tensor={degree}: no pair of linear layers was found in {type(model).__name__} whose width divides by "
            f"{degree}; say what to cut: plan={{'name of a module': 'colwise' or 'rowwise', …}}"
        )
    modules = dict(model.named_modules())
    for name, style in plan.items():
        if name not in modules:
            raise InvalidRequest(f"plan: {type(model).__name__} has no module {name!r}")
        if not isinstance(style, ParallelStyle) and style not in ("colwise", "rowwise"):
            raise InvalidRequest(f"plan: {name!r} is {style!r}; it must be 'colwise', 'rowwise' or a ParallelStyle")
        module = modules[name]
        if isinstance(module, nn.Linear):
            width = module.in_features if style == "rowwise" else module.out_features
            if width % degree:
                raise InvalidRequest(f"plan: {name!r} has a width of {width}, which tensor={degree} does not divide")


def _sequential_pairs(module: nn.Sequential) -> list[tuple[tuple[str, ...], str]]:
    pairs: list[tuple[tuple[str, ...], str]] = []
    open_layer: str | None = None
    for name, child in module.named_children():
        if type(child) is nn.Linear:
            if open_layer is not None:
                pairs.append(((open_layer,), name))
                open_layer = None
            else:
                open_layer = name
        elif not isinstance(child, ELEMENTWISE):
            open_layer = None
    return pairs


def _named_pairs(module: nn.Module, linear: Mapping[str, nn.Linear], degree: int) -> list[tuple[tuple[str, ...], str]]:
    # The richest first: a gated MLP also has the names of a plain one.
    found = [pair for pair in reversed(MLPS) if {*pair[0], pair[1]} <= linear.keys()][:1]
    found = [pair for pair in found if _is_mlp(pair, linear)]
    attention = _attention(module)
    if attention and all(
        getattr(module, name) % degree == 0 for name in HEADS if isinstance(getattr(module, name, None), int)
    ):
        found.append(attention)
    return found


def _is_mlp(pair: tuple[tuple[str, ...], str], linear: Mapping[str, nn.Linear]) -> bool:
    return all(linear[name].out_features == linear[pair[1]].in_features for name in pair[0])


def _attention(module: nn.Module) -> tuple[tuple[str, ...], str] | None:
    """Return the layers of an attention that tells its heads and their size; None if it is none."""
    linear = {name for name, child in module.named_children() if type(child) is nn.Linear}
    tells = any(isinstance(getattr(module, name, None), int) for name in HEADS) and any(
        isinstance(getattr(module, name, None), int) for name in HEAD_SIZES
    )
    for layers, out in ATTENTIONS:
        if tells and {*layers, out} <= linear:
            return layers, out
    return None
