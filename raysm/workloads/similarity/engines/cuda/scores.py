"""Scores by the definition, and keys, computed on a device: the same bits as ``score`` and ``keys`` give on a CPU.

The order of a sum of products is NumPy's: rows of up to 128 elements in eight running sums, longer ones cut in two at a
multiple of eight. It is spelled out as elementwise operations of whole columns, each of them one of IEEE's: float64
products, sums, quotients and their rounding to float32 are rounded to nearest, with denormals, on CUDA as on a CPU. No
product can be fused with a sum, since each operation is a kernel of its own that writes its rounded result. (Nothing
here may be given to ``torch.compile``, to ``addcmul`` or to a divisor that is a Python number: these may round in
another way.) ``CudaEngine`` compares the scores with NumPy's before it is used.

Keys are unsigned numbers of 64 bits, which torch cannot sort; here they are less 2**63, as int64 in the same order.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["EMPTY_KEY", "decoded", "encoded", "from_host", "pair_scores", "to_host"]

EMPTY_KEY = 2**63 - 1
"""The key that comes after every other, less 2**63."""

LANES = 8
"""Running sums of a row."""

LEAF = 128
"""Elements up to which a row is not cut."""

TOP = np.uint64(1 << 63)


def pair_scores(
    left: torch.Tensor, right: torch.Tensor, left_norms: torch.Tensor, right_norms: torch.Tensor
) -> torch.Tensor:
    """Return scores[n], float32, of the pairs (left[i], right[i]), rows[n, D] of any float type, norms[n] float64."""
    products = left.to(torch.float64) * right.to(torch.float64)
    dots = row_sums(products)
    norms = left_norms * right_norms
    zero = norms == 0
    quotients = torch.where(zero, 0.0, dots / torch.where(zero, 1.0, norms))
    # As in the definition: a negative zero becomes the other, which keys can order.
    return quotients.to(torch.float32) + 0.0


def row_sums(values: torch.Tensor) -> torch.Tensor:
    """Return sums[n] of values[n, D], added in the order in which NumPy adds a contiguous row."""
    leaves = list(_leaves(0, values.shape[1]))
    sums: dict[int, torch.Tensor] = {}
    at = 0
    while at < len(leaves):
        # Leaves of one length that lie beside each other are summed together.
        start, length = leaves[at]
        count = 1
        while at + count < len(leaves) and leaves[at + count][1] == length:
            count += 1
        part = values[:, start : start + count * length].reshape(-1, count, length)
        for place, total in enumerate(_leaf_sums(part).unbind(1)):
            sums[start + place * length] = total
        at += count
    return _joined(0, values.shape[1], sums)


def _half(length: int) -> int:
    return length // 2 - length // 2 % LANES


def _leaves(start: int, length: int) -> Iterator[tuple[int, int]]:
    if length <= LEAF:
        yield start, length
        return
    yield from _leaves(start, _half(length))
    yield from _leaves(start + _half(length), length - _half(length))


def _joined(start: int, length: int, sums: dict[int, torch.Tensor]) -> torch.Tensor:
    if length <= LEAF:
        return sums[start]
    half = _half(length)
    return _joined(start, half, sums) + _joined(start + half, length - half, sums)


def _leaf_sums(part: torch.Tensor) -> torch.Tensor:
    """Return sums[n, count] of part[n, count, length]."""
    length = part.shape[2]
    if length < LANES:
        # So few NumPy adds one after the other.
        total, rest = part[:, :, 0], 1
    else:
        lanes, rest = part[:, :, :LANES], length - length % LANES
        for at in range(LANES, rest, LANES):
            lanes = lanes + part[:, :, at : at + LANES]
        pairs = lanes[:, :, 0::2] + lanes[:, :, 1::2]
        fours = pairs[:, :, 0::2] + pairs[:, :, 1::2]
        total = fours[:, :, 0] + fours[:, :, 1]
    # What does not fill the lanes NumPy adds when these are one sum.
    for at in range(rest, length):
        total = total + part[:, :, at]
    return total


def encoded(scores: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return keys that rise as scores fall, then as indices rise; scores float32 without NaN or negative zero."""
    bits = scores.view(torch.int32).to(torch.int64)
    # The wider type carries the sign along: only the lower 32 bits are the score's.
    falling = torch.where(bits < 0, bits & 0xFFFFFFFF, ~bits & 0x7FFFFFFF)
    return (falling - 2**31) * 2**32 + indices


def decoded(keys: torch.Tensor) -> torch.Tensor:
    """Return the scores of keys, float32; -inf of ``EMPTY_KEY``."""
    falling = (keys >> 32) + 2**31
    bits = torch.where(falling >= 2**31, falling - 2**32, ~falling & 0x7FFFFFFF)
    return torch.where(keys == EMPTY_KEY, -torch.inf, bits.to(torch.int32).view(torch.float32))


def from_host(keys: NDArray[np.uint64], device: torch.device) -> torch.Tensor:
    """Return a copy of keys on the device."""
    return torch.from_numpy((keys ^ TOP).view(np.int64)).to(device)


def to_host(keys: torch.Tensor) -> NDArray[np.uint64]:
    """Return keys as the host has them."""
    signed: NDArray[np.int64] = keys.cpu().numpy()
    return signed.view(np.uint64) ^ TOP
