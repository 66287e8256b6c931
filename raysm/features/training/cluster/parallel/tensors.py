"""Tensor parallelism: which layers are cut over the workers of a tensor group.

A layer that is cut by columns and one that is cut by rows after it need one sum over the group for
each forward pass (Megatron-LM, arXiv 1909.08053). The plan is the user's, or the model's own, as
Hugging Face models carry one.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from raysm.errors import InvalidRequest

Plan: TypeAlias = Mapping[str, Literal["colwise", "rowwise"] | ParallelStyle]

GATHERED = ("colwise_rep", "colwise_gather_output")
"""Hugging Face's names of a layer that is cut by columns and whose outputs are gathered, such as
``lm_head``."""

HEADS = (
    "num_heads",
    "n_heads",
    "heads",
    "n_head",
    "num_kv_heads",
    "n_kv_heads",
    "num_key_value_heads",
)
"""Attributes that count an attention's heads: each worker has its share of them."""

HEAD_SIZES = ("head_dim", "head_size", "dim_head", "d_head")


def resolve_plan(model: nn.Module, plan: Plan | None, degree: int) -> Plan:
    patterns = _carried_plan(model) if plan is None else plan
    if not patterns:
        raise InvalidRequest(
            f"tensor={degree}: {type(model).__name__} has no tensor plan; pass plan={{'name of a "
            "module': 'colwise' or 'rowwise', …} to training.prepare, or use a model with Hugging "
            "Face's tp_plan"
        )
    modules = dict(model.named_modules())
    names: dict[int, list[str]] = {}
    for name, module in modules.items():
        for parameter in module._parameters.values():
            names.setdefault(id(parameter), []).append(name)
    resolved: dict[str, Any] = {}
    for pattern, style in patterns.items():
        found = [
            name
            for name in modules
            if re.fullmatch(re.escape(pattern).replace(r"\*", r"\d+"), name)
        ]
        # A Hugging Face plan also names modules of variants, such as experts.
        if not found and plan is not None:
            raise InvalidRequest(f"plan: {type(model).__name__} has no module {pattern!r}")
        for name in found:
            shared = [
                names[id(parameter)]
                for parameter in modules[name].parameters()
                if parameter is not None
            ]
            tied = next((group for group in shared if len(group) > 1), None)
            if tied and style in GATHERED:
                continue  # kept whole on each worker, it returns the same
            if tied:
                raise InvalidRequest(
                    f"plan: the weights of {name!r} are shared ({' = '.join(tied)}), and only one "
                    "of them would be cut; leave it and the layers that take its outputs out of "
                    "the plan"
                )
            resolved[name] = _checked_style(name, modules[name], style, degree)
    for parent in _parents(resolved, modules):
        for attribute, count in _head_counts(modules[parent]).items():
            if count % degree:
                raise InvalidRequest(
                    f"plan: {parent or type(model).__name__} has {attribute}={count}, which "
                    f"tensor={degree} does not divide"
                )
    return resolved


def _carried_plan(model: nn.Module) -> dict[str, Any]:
    """Return the model's tp_plan, or {} if it has none.

    A plan consists of that of the class and that of its configuration's base model.
    """
    base = getattr(getattr(model, "config", None), "base_model_tp_plan", None) or {}
    prefix = getattr(model, "base_model_prefix", "")
    prefix = f"{prefix}." if prefix and prefix in dict(model.named_children()) else ""
    own = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None) or {}
    return {prefix + name: style for name, style in base.items()} | dict(own)


def _checked_style(name: str, module: nn.Module, style: Any, degree: int) -> Any:
    if style in GATHERED:
        style = ColwiseParallel(output_layouts=Replicate())
    elif style in ("rowwise", "embedding_rowwise") and isinstance(module, nn.Embedding):
        style = RowwiseParallel(input_layouts=Replicate())
    if not isinstance(style, ParallelStyle) and style not in ("colwise", "rowwise"):
        raise InvalidRequest(
            f"plan: {name!r} is {style!r}; it must be 'colwise', 'rowwise' or a ParallelStyle. "
            "Pass plan=… to training.prepare to cut the model otherwise"
        )
    if isinstance(module, nn.Linear):
        # Rows are cut by the layer's inputs, columns by its outputs.
        is_rowwise = style == "rowwise" or isinstance(style, RowwiseParallel)
        width = module.in_features if is_rowwise else module.out_features
        if width % degree:
            raise InvalidRequest(
                f"plan: {name!r} has a width of {width}, which tensor={degree} does not divide"
            )
    return style


def partition_tensors(module: nn.Module, plan: Plan, mesh: DeviceMesh) -> None:
    styles = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
    modules = dict(module.named_modules())
    chosen = {name: style for name, style in plan.items() if name in modules}
    cuts = {
        name: style if isinstance(style, ParallelStyle) else styles[style]()
        for name, style in chosen.items()
    }
    for parent in _parents(plan, modules):
        # The forward reshapes by these counts, and a worker's share of the columns does not fit the
        # whole count.
        for attribute, count in _head_counts(modules[parent]).items():
            setattr(modules[parent], attribute, count // mesh.size())
    for inner in modules.values():
        # The fast path of evaluations bypasses the modules that gather the weights. These
        # attributes decide only about that path, and switch it off.
        if isinstance(inner, nn.TransformerEncoderLayer):
            inner.activation_relu_or_gelu = 0
        elif isinstance(inner, nn.TransformerEncoder):
            inner.use_nested_tensor = False
    is_trained = {
        name: value.requires_grad for name, value in module.named_parameters(remove_duplicate=False)
    }
    parallelize_module(module, mesh, cuts)
    # torch 2.9 trains what was frozen.
    for name, value in module.named_parameters(remove_duplicate=False):
        value.requires_grad_(is_trained[name])


def _parents(plan: Plan, modules: Mapping[str, nn.Module]) -> set[str]:
    return {
        name.rpartition(".")[0]
        for name, style in plan.items()
        if style == "colwise" and name in modules
    }


def _head_counts(module: nn.Module) -> dict[str, int]:
    """Return the attributes that count an attention's heads, {} if no attribute has their size."""
    if not any(isinstance(getattr(module, name, None), int) for name in HEAD_SIZES):
        return {}
    # Others may have a tensor or a module of that name.
    counts = {name: getattr(module, name, None) for name in HEADS}
    return {name: count for name, count in counts.items() if isinstance(count, int)}
