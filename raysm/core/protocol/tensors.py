"""Tensors of torch as NumPy arrays. It does not import torch: whoever has a tensor has done so."""

import sys
from typing import Any


def is_tensor(value: object) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def as_numpy(tensor: Any) -> Any:
    """Return a tensor as a NumPy array.

    bfloat16 and float8, which NumPy lacks, become float32 without a loss.

    Raises:
        TypeError: Its layout is not dense.
        RuntimeError: It has no plain numbers: it is quantized, or on the device ``meta``.
    """
    torch = sys.modules["torch"]
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point() and tensor.dtype not in (
        torch.float16,
        torch.float32,
        torch.float64,
    ):
        tensor = tensor.float()
    return tensor.resolve_conj().resolve_neg().numpy()
