"""The order of an epoch's rows, any part of which can be asked for.

Small data sets are permuted, with 4 bytes a row. Of large ones no list exists: a keyed permutation
computes the row at each position. It is a Feistel network on the bits of the position, repeated
until the result is a row (cycle walking; Black and Rogaway, "Ciphers with Arbitrary Finite
Domains", 2002). Neither depends on the machine.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch

from raysm.features.training.cluster.loop.position import DataOrder
from raysm.features.training.cluster.loop.random_state import seed_of

MAX_PERMUTED = 1 << 24
"""Rows of the largest data set that is permuted, which takes 64 MiB."""
ROUNDS = 8
FACTORS = (-7046029254386353131, -4658895280553007687)
"""Odd numbers of 64 bits, which mix all bits of a product (those of splitmix64)."""
SHIFTS = (32, 29)

Rows: TypeAlias = Callable[[int, int], torch.Tensor]
"""(begin, end) -> the rows at these positions of the epoch, int[end - begin]."""


def epoch_rows(order: DataOrder, epoch: int) -> Rows:
    """Return what computes the rows of the data set in the order of that epoch."""
    # The data set's own order, for a validation or a time series.
    if not order.shuffle:
        return torch.arange
    assert order.samples is not None
    count = order.samples
    seed = seed_of(order.seed, epoch)
    if not order.keyed:
        generator = torch.Generator().manual_seed(seed)
        # The order is that of int64, which would take twice the memory.
        permuted = torch.randperm(count, generator=generator, dtype=torch.int32)
        return lambda begin, end: permuted[begin:end]
    keys = [seed_of(seed, number) for number in range(ROUNDS)]
    return lambda begin, end: _walk(torch.arange(begin, end), count, keys)


def _walk(positions: torch.Tensor, count: int, keys: list[int]) -> torch.Tensor:
    bits = (count - 1).bit_length()
    rows = _permute(positions, bits, keys)
    while True:
        outside = rows >= count
        if not outside.any():
            return rows
        rows[outside] = _permute(rows[outside], bits, keys)


def _permute(numbers: torch.Tensor, bits: int, keys: list[int]) -> torch.Tensor:
    """Return a permutation of the numbers below 2 ** bits."""
    low_bits = bits // 2
    masks = ((1 << low_bits) - 1, (1 << (bits - low_bits)) - 1)
    halves = [numbers & masks[0], numbers >> low_bits]
    for number, key in enumerate(keys):
        changed = number % 2
        halves[changed] = halves[changed] ^ (_mix(halves[1 - changed] + key) & masks[changed])
    return halves[0] | (halves[1] << low_bits)


def _mix(numbers: torch.Tensor) -> torch.Tensor:
    for factor, shift in zip(FACTORS, SHIFTS, strict=True):
        numbers = numbers * factor
        numbers = numbers ^ (numbers >> shift)
    return numbers
