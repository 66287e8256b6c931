"""What a GPU is asked before it is used: whether its products and its scores are what ``bounds`` takes for granted."""

import functools

import numpy as np
import torch

from raysm.workloads.similarity.arithmetic.score import pair_scores
from raysm.workloads.similarity.engines import bounds
from raysm.workloads.similarity.engines.cuda import scores as scores_on_gpu
from raysm.workloads.similarity.kernels.build import Unavailable

__all__ = ["check_device", "device_name", "multiply"]

LENGTHS = (1, 7, 8, 9, 127, 128, 129, 136, 300, 768, 1021)
"""Of rows whose scores must be NumPy's before a GPU is used."""


def check_device(device: torch.device, columns: int) -> None:
    """Check all that rows of that many columns need.

    Raises:
        Unavailable: The device computes otherwise.
    """
    # Two calls: each is remembered by its lengths, so the many are checked once, whatever matrices come.
    _check_scores(device, LENGTHS)
    _check_scores(device, (columns,))
    _check_products(device, columns)


def device_name(device: torch.device) -> str:
    """Return what the device is called."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"


def multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """Write the products of all rows of two float16 matrices: summed in float32, rounded to float16 once."""
    if left.device.type == "cuda":
        torch.mm(left, right.T, out=out)
    else:
        out.copy_(left.to(torch.float32) @ right.T.to(torch.float32))


@functools.cache
def _check_products(device: torch.device, columns: int) -> None:
    """Compare the device's products with the bound that ``bounds`` takes for granted: of sums that cancel.

    Raises:
        Unavailable: One is further off.
    """
    width = -(-columns // 8) * 8
    half = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 64, -(-width // 2)))).to(torch.float16)
    left = torch.cat([half[0], half[0]], dim=1)[:, :width].contiguous()
    # Both halves are about each other's negative: what is left is small, what was added is not.
    right = torch.cat([half[1], -half[1] * (1 + 2.0**-10)], dim=1)[:, :width].contiguous()
    near = torch.empty(64, 64, dtype=torch.float16, device=device)
    multiply(left.to(device), right.to(device), near)
    first, second = left.to(torch.float64), right.to(torch.float64)
    exact = first @ second.T
    # The last two terms are what rounding the output to float16 takes.
    most = bounds.device_growth(width) * (first.abs() @ second.abs().T) + exact.abs() * 2.0**-10 + 2.0**-24
    if not bool(((near.cpu().to(torch.float64) - exact).abs() <= most).all()):
        raise Unavailable(f"the float16 products of {device_name(device)} are further off than was measured of others")


@functools.cache
def _check_scores(device: torch.device, lengths: tuple[int, ...]) -> None:
    """Compare the device's scores with NumPy's: of products that cancel each other but for their rounding.

    Raises:
        Unavailable: One differs.
    """
    rng = np.random.default_rng(0)
    for length in lengths:
        half = rng.standard_normal((2, 8, length - length // 2))
        left, right = np.concatenate([half, half * [[[1.0]], [[-1.0]]]], axis=2)[:, :, rng.permutation(length)]
        norms = np.linspace(0.5, 2, 8)
        arguments = (torch.from_numpy(array.copy()).to(device) for array in (left, right, norms, norms))
        scores = scores_on_gpu.pair_scores(*arguments).cpu().numpy()
        if not np.array_equal(scores, pair_scores(left, right, norms, norms)):
            raise Unavailable(f"{device_name(device)} and NumPy {np.__version__} differ in scores of {length} elements")
