"""Rows on a GPU: panels of them for the products of a filter, and scores by the definition.

A tile is cut into *panels* of one size. A panel is made from the host's rows when it is needed, and again if it had to
make room meanwhile: so tiles, and the matrix, may be larger than the GPU's memory.

**Scores** have the same bits as ``score`` gives on a CPU. The order of a sum of products is NumPy's: rows of up to 128
elements in eight running sums, longer ones cut in two at a multiple of eight. It is spelled out as elementwise
operations of whole columns, each of them one of IEEE's: float64 products, sums, quotients and their rounding to float32
are rounded to nearest, with denormals, on CUDA as on a CPU. No product can be fused with a sum, since each operation is
a kernel of its own that writes its rounded result. (Nothing here may be given to ``torch.compile``, to ``addcmul`` or
to a divisor that is a Python number: these may round in another way.) ``CudaEngine`` compares the scores with NumPy's
before it is used.

Keys are unsigned numbers of 64 bits, which torch cannot sort; here they are less 2**63, as int64 in the same order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.score import Rows
from raysm.workloads.similarity.engines import bounds
from raysm.workloads.similarity.engines.protocol import Frame

__all__ = [
    "LAST_KEY",
    "Panel",
    "decoded",
    "encoded",
    "from_host",
    "make_panel",
    "pair_scores",
    "panel_bytes",
    "rounded_down",
    "rounded_up",
    "to_host",
]

EXTRA = 6
"""Columns of a panel beside the rows' own, see ``bounds``."""

ALIGNED = 8
"""Tensor cores want a multiple of this many columns."""

LARGEST_EXPONENT = 12
"""Rows that are nearly all alike are multiplied by at most two to this."""

WIDE_BYTES = 256 << 20
"""Most memory of the float64 rows while a panel is made."""

FLOATS = {2: torch.float16, 4: torch.float32, 8: torch.float64}

PIECE = 2.0**-11
"""What the second piece of a number counts."""

LAST_KEY = 2**63 - 1
"""The key that comes after every other, less 2**63."""

LANES, LEAF = 8, 128
"""Running sums of a row, and elements up to which a row is not cut."""

TOP = np.uint64(1 << 63)


def rounded_up(values: torch.Tensor) -> torch.Tensor:
    """Return float16 numbers that are not below these, of float64: the margin is twice what rounding takes."""
    return (values + values.abs() * 2.0**-10 + 2.0**-24).to(torch.float16)


def rounded_down(values: torch.Tensor) -> torch.Tensor:
    """Return float16 numbers that are not above these, of float64."""
    return -rounded_up(-values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """Some rows of a side, on the device."""

    start: int
    """Number of the first row in the matrix."""
    rows: torch.Tensor
    """rows[n, D], as the host has them; integers as the float type that holds them as float64 would."""
    norms: torch.Tensor
    """norms[n], float64."""
    cheap: torch.Tensor
    """cheap[n, W], float16: rows less the centre, scaled, with the columns of a left side; W is a multiple of 8."""
    error: torch.Tensor
    """error[n], float64: e_i in units of the scale."""
    length: torch.Tensor
    """length[n], float64: w_i in units of the scale."""
    spare: torch.Tensor
    """spare[n], float64: spare_i, not scaled."""
    scale: float
    """s, a power of two."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def right(self) -> torch.Tensor:
        """Return a copy of ``cheap`` with the columns of a right side."""
        first = self.rows.shape[1]
        # Error and length change places, and the pieces of beta with the scale: one product then sums all of them.
        right = self.cheap.clone()
        right[:, first : first + 2] = self.cheap[:, first : first + 2].flip(1)
        right[:, first + 2 : first + 4] = self.cheap[:, first + 4 : first + 6]
        right[:, first + 4 : first + 6] = self.cheap[:, first + 2 : first + 4]
        return right

    @property
    def nbytes(self) -> int:
        """Memory on the device."""
        return int(self.rows.nbytes + self.cheap.nbytes) + 40 * len(self)


def make_panel(tile: Tile, frame: Frame, device: torch.device) -> Panel:
    """Bring some rows of the host to the device, and make them ready for products."""
    # A copy: mapped rows are read-only, and torch warns of a tensor that would share them.
    rows = torch.from_numpy(np.array(tile.rows, dtype=_float_type(tile.rows.dtype))).to(device)
    norms = torch.from_numpy(np.array(tile.norms, dtype=np.float64)).to(device)
    cheap, error, length, spare, scale = _prepared(rows, norms, frame)
    return Panel(
        start=tile.start,
        rows=rows,
        norms=norms,
        cheap=cheap,
        error=error,
        length=length,
        spare=spare,
        scale=scale,
    )


def panel_bytes(count: int, rows: Rows) -> int:
    """Return about the memory of a panel of so many such rows."""
    columns: int = rows.shape[1]
    return count * (columns * (_float_type(rows.dtype).itemsize + 2) + 2 * (EXTRA + ALIGNED) + 40)


def _float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "f" and dtype.itemsize in FLOATS:
        # Torch takes numbers in this machine's byte order alone.
        return dtype.newbyteorder("=")
    # Both hold the integers exactly as far as float64 does, which is how the definition takes them.
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def _steps(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, WIDE_BYTES // (32 * columns))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _prepared(
    rows: torch.Tensor, norms: torch.Tensor, frame: Frame
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Return ``cheap``, ``error``, ``length``, ``spare`` and ``scale`` of a panel, by ``bounds``."""
    n, columns = rows.shape
    device, wide = rows.device, torch.float64
    centre = torch.from_numpy(np.array(frame.centre, dtype=np.float64)).to(device)
    slop, growth = bounds.slop(columns, frame.centre), bounds.device_growth(columns)
    inverse = torch.where(norms == 0, 0.0, 1.0 / torch.where(norms == 0, 1.0, norms))[:, None]

    def moved(some: slice) -> torch.Tensor:
        return rows[some].to(wide) * inverse[some] - centre

    # First how long the rows are, which decides the scale; then what float16 makes of them.
    lengths = torch.cat([torch.linalg.vector_norm(moved(some), dim=1) for some in _steps(n, columns)])
    shift = torch.cat([moved(some) @ centre for some in _steps(n, columns)])
    largest = float(torch.maximum(lengths.max(), shift.abs().max()))
    exponent = LARGEST_EXPONENT if largest == 0 else -int(np.frexp(largest)[1])
    scale = 2.0 ** max(-LARGEST_EXPONENT, min(LARGEST_EXPONENT, exponent))
    width = -(-(columns + EXTRA) // ALIGNED) * ALIGNED
    cheap = torch.zeros((n, width), dtype=torch.float16, device=device)
    lost = torch.empty(n, dtype=wide, device=device)
    for some in _steps(n, columns):
        exact = moved(some) * scale
        rounded = exact.to(torch.float16)
        cheap[some, :columns] = rounded
        exact -= rounded
        lost[some] = torch.linalg.vector_norm(exact, dim=1) * (1 + 2.0**-30) / scale
    length = (lengths + lost) * (1 + 2.0**-30) + slop
    error = (lost + slop + 2 * growth * length) * (1 + 4 * growth)
    beta = shift + 2 * growth * shift.abs() + slop
    cheap[:, columns] = rounded_up(error * scale)
    cheap[:, columns + 1] = rounded_up(length * scale)
    first = (beta * scale).to(torch.float16)
    # Only the second piece is rounded up: it takes in what the first one lost, either way.
    second = rounded_up((beta * scale - first) / PIECE)
    cheap[:, columns + 2], cheap[:, columns + 3] = first, second
    cheap[:, columns + 4], cheap[:, columns + 5] = scale, PIECE * scale
    # Read back, as they were rounded: that is what products see.
    tall = cheap[:, columns : columns + EXTRA].to(wide)
    pieces = (tall[:, 2] + tall[:, 3] * PIECE) / scale
    spare = pieces - shift + 2 * growth * pieces.abs() + 2 * slop
    return cheap, tall[:, 0].clone(), tall[:, 1].clone(), spare, scale


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
    """Return the scores of keys, float32; -inf of ``LAST_KEY``."""
    falling = (keys >> 32) + 2**31
    bits = torch.where(falling >= 2**31, falling - 2**32, ~falling & 0x7FFFFFFF)
    return torch.where(keys == LAST_KEY, -torch.inf, bits.to(torch.int32).view(torch.float32))


def from_host(keys: NDArray[np.uint64], device: torch.device) -> torch.Tensor:
    """Return a copy of keys on the device."""
    return torch.from_numpy((keys ^ TOP).view(np.int64)).to(device)


def to_host(keys: torch.Tensor) -> NDArray[np.uint64]:
    """Return keys as the host has them."""
    signed: NDArray[np.int64] = keys.cpu().numpy()
    return signed.view(np.uint64) ^ TOP
