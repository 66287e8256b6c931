"""Matrix products in float8, by torchao: linear layers are replaced by those that cast what they multiply.

What flows in is a whole model; what flows out is the same model with other linear layers, which have the very same
parameters by the same names, in float32. Each product casts its operands to 8 bits with one scale for each tensor
(P. Micikevicius et al. 2022, "FP8 Formats for Deep Learning", arXiv 2209.05433); all else is computed in bfloat16.
"""

from typing import Any

import torch
from torch import nn

from raysm.errors import InvalidRequest, MissingDependency

__all__ = ["LEAST", "check_float8", "to_float8"]

LEAST = (8, 9)
"""Compute capability of the first GPUs that multiply float8 (Ada: L4, L40S; Hopper, H100, is 9.0)."""

MULTIPLE = 16
"""What the widths of a layer have to divide by, so that cuBLAS takes it."""


def check_float8(device: torch.device, tensor: int, capability: tuple[int, int] | None) -> None:
    """Check that a worker can train in float8.

    Args:
        device: Where it computes.
        tensor: Workers over which single tensors are cut.
        capability: Of its GPU; None without one.

    Raises:
        InvalidRequest: It cannot.
    """
    if capability is None or capability < LEAST:
        what = "a GPU of compute capability " + ".".join(map(str, capability)) if capability else f"the {device.type}"
        raise InvalidRequest(
            f"precision='fp8' needs a GPU that multiplies float8, of compute capability {LEAST[0]}.{LEAST[1]} or later"
            f" (L4, L40S, H100: ml.g6, ml.g6e, ml.p5), and this worker computes on {what}; use precision='bf16'"
        )
    if tensor > 1:
        raise InvalidRequest(
            f"precision='fp8' with tensor={tensor}: layers that are cut have no float8 product of raysm; use"
            " precision='bf16', or cut by shard or pipeline"
        )


def to_float8(model: nn.Module, *, emulate: bool = False) -> list[str]:
    """Replace the linear layers of a model; return their names.

    Args:
        model: Whole, in float32.
        emulate: Compute the same on a device that has no float8, slowly.

    Raises:
        InvalidRequest: It has no linear layer whose widths divide by 16.
        MissingDependency: There is no torchao.
    """
    # Imported here alone: it takes seconds, and nobody else needs it.
    config, convert = _torchao()
    layers = [name for name, module in model.named_modules() if _is_taken(module, name)]
    if not layers:
        raise InvalidRequest(
            f"precision='fp8': {type(model).__name__} has no linear layer inside of it whose widths divide by"
            f" {MULTIPLE}, so nothing of it would be computed in float8; use precision='bf16'"
        )
    convert(model, config=config(emulate=emulate), module_filter_fn=_is_taken)
    return layers


def _is_taken(module: nn.Module, name: str) -> bool:
    # A layer that is the model itself could not be replaced; a subclass computes something else.
    return bool(name) and type(module) is nn.Linear and not any(side % MULTIPLE for side in module.weight.shape)


def _torchao() -> tuple[Any, Any]:
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError as error:
        raise MissingDependency(
            f"precision='fp8' needs torchao ({error}): python3 -m pip install 'raysm[float8]', or name "
            "torchao among the job's requirements"
        ) from error
    return Float8LinearConfig, convert_to_float8_training
