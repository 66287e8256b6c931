"""The engine of a GPU: float16 products, a filter, exact scores and merged keys, in torch.

A tile is cut into *panels* of one size. A panel is made from the host's rows when it is needed, and
made again if it was dropped meanwhile, so tiles and the matrix may be larger than the GPU's memory.
One product of two panels gives an upper bound of the score of each pair, by the proof in
``bounds``. First only the largest of every ``GROUP`` entries of a row is compared with the limits,
because reading all entries again takes several times as long as the product. In the groups that
pass, a pair that reaches the limit of its row or of its column is scored by the definition, in
float64, and merged into the best of both. A product with too many survivors is halved until its
parts have few enough; limits rise from one part to the next.

**Scores** have the same bits as ``arithmetic.score`` gives on a CPU. ``row_sums`` adds in NumPy's
order, spelled out as elementwise operations of whole columns. IEEE rounds each of them to nearest,
with denormals, on CUDA as on a CPU. No product can be fused with a sum, since each operation is a
kernel of its own that writes its rounded result. This code must not use ``torch.compile``,
``addcmul`` or a Python number as divisor, which may round differently. ``CudaEngine`` compares the
device's scores with NumPy's before it is used.

**Memory on the GPU**, with ``free`` bytes when the engine is made:

    the latest panels                             at most free / 2, but at least two panels
  + a product of P x P entries, float16           2 P**2; a panel has P rows, P**2 <= free / 64
  + the largest of each group of the product      P**2 / 16
  + the groups that pass, at a time               at most 6 P**2, and about 400 * 2**20
  + survivors at a time, with their keys          about 200 * 2**20
  + rows of pairs in float64, while scored        free / 16
  + the best of a tile's rows and columns         3 * 8 k (n + m)

and at most 256 MiB while a panel is made. The same code runs on a CPU, where its tests compare it
with the other engines, index for index.
"""

import functools
import math
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from raysm.features.similarity.cluster.arithmetic import score
from raysm.features.similarity.cluster.arithmetic.score import Rows, Tile
from raysm.features.similarity.cluster.engines import bounds
from raysm.features.similarity.cluster.engines.plain import PlainEngine
from raysm.features.similarity.cluster.engines.protocol import (
    Best,
    DenseSide,
    Frame,
    Pairs,
    PreparedTile,
)
from raysm.features.similarity.cluster.kernels.build import Unavailable

MAX_PANEL_ROWS = 1 << 14
MIN_PANEL_ROWS = 32

STRIP_ROWS = 64
"""An overflowed product is not halved further than to so many rows."""

STRIP_COLUMNS = 256
"""An overflowed product is not halved further than to so many columns, and products are padded to a
multiple of them."""

GROUP = 64
"""Number of entries of a row whose largest is compared first; it divides ``STRIP_COLUMNS``. In a
part of m columns a group has every (m / GROUP)-th."""

SURVIVORS = 1 << 20
"""A product overflows if more groups or pairs than this pass the filter, or more pairs than
``MAX_SURVIVING``."""

MAX_SURVIVING = 1 / 8
"""Share of a product's pairs. With more, it pays to go in parts, because limits rise from one to
the next."""

MIN_FREE = 1 << 30
LEAST = -65504.0
LENGTHS = (1, 7, 8, 9, 127, 128, 129, 136, 300, 768, 1021)

EXTRA = 6
"""Columns that a panel adds to the rows' own, see ``bounds``."""

ALIGNED = 8
"""The multiple of columns that tensor cores need."""

LARGEST_EXPONENT = 12
"""Largest binary exponent of a panel's scale, for rows that are nearly all alike."""

WIDE_BYTES = 256 << 20
"""Most memory of the float64 rows while a panel is made."""

PIECE = 2.0**-11
"""Weight of the second piece of a number."""

LANES = 8
"""Number of running sums of a row."""

LEAF = 128
"""Most elements of a row that NumPy does not halve."""

LAST_KEY = 2**63 - 1
"""The key that comes after every other, less 2**63."""

TOP = np.uint64(1 << 63)

# ---- keys: torch cannot sort unsigned numbers of 64 bits, so they are int64, less 2**63, in the
# same order ----------


def encode_keys(scores: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return keys that rise as scores fall, then as indices rise.

    Scores are float32 without NaN or negative zero.
    """
    bits = scores.view(torch.int32).to(torch.int64)
    # The conversion extended the sign: only the lower 32 bits are the score's.
    falling = torch.where(bits < 0, bits & 0xFFFFFFFF, ~bits & 0x7FFFFFFF)
    return (falling - 2**31) * 2**32 + indices


def decode_keys(keys: torch.Tensor) -> torch.Tensor:
    falling = (keys >> 32) + 2**31
    bits = torch.where(falling >= 2**31, falling - 2**32, ~falling & 0x7FFFFFFF)
    return torch.where(keys == LAST_KEY, -torch.inf, bits.to(torch.int32).view(torch.float32))


# ---- scores by the definition
# -------------------------------------------------------------------------------------


def pair_scores(
    left: torch.Tensor, right: torch.Tensor, left_norms: torch.Tensor, right_norms: torch.Tensor
) -> torch.Tensor:
    """Return scores[n], float32, of the pairs (left[i], right[i]) of rows[n, D] of a float type."""
    dots = row_sums(left.to(torch.float64) * right.to(torch.float64))
    norms = left_norms * right_norms
    zero = norms == 0
    quotients = torch.where(zero, 0.0, dots / torch.where(zero, 1.0, norms))
    # Adding 0 turns a negative zero, which keys cannot order, into a positive one, as in the
    # definition.
    return quotients.to(torch.float32) + 0.0


def row_sums(values: torch.Tensor) -> torch.Tensor:
    """Return the sums over the last axis, added in the order in which NumPy adds a contiguous row.

    NumPy halves rows of more than ``LEAF`` elements at a multiple of ``LANES``, and adds shorter
    ones in ``LANES`` running sums.
    """
    length = values.shape[-1]
    if length > LEAF:
        half = length // 2 - length // 2 % LANES
        if 2 * half == length:
            # Sum two halves of equal length together.
            halves = row_sums(values.view(*values.shape[:-1], 2, half))
            return halves[..., 0] + halves[..., 1]
        return row_sums(values[..., :half]) + row_sums(values[..., half:])
    if length < LANES:
        total = values[..., 0]
        rest = 1
    else:
        lanes = values[..., :LANES]
        rest = length - length % LANES
        for at in range(LANES, rest, LANES):
            lanes = lanes + values[..., at : at + LANES]
        pairs = lanes[..., 0::2] + lanes[..., 1::2]
        fours = pairs[..., 0::2] + pairs[..., 1::2]
        total = fours[..., 0] + fours[..., 1]
    for at in range(rest, length):
        total = total + values[..., at]
    return total


# ---- panels
# -------------------------------------------------------------------------------------------------


def round_up(values: torch.Tensor) -> torch.Tensor:
    """Round float64 numbers to float16 numbers that are not smaller.

    The margin is twice the rounding error.
    """
    return (values + values.abs() * 2.0**-10 + 2.0**-24).to(torch.float16)


def round_down(values: torch.Tensor) -> torch.Tensor:
    return -round_up(-values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    start: int
    rows: torch.Tensor
    """rows[n, D] of the host; integers are converted to a float type that is as exact as
    float64."""
    norms: torch.Tensor
    cheap: torch.Tensor
    """cheap[n, W], float16: rows less the centre, scaled, with the columns of a left side; W is a
    multiple of 8."""
    error: torch.Tensor
    """error[n], float64: e_i in units of the scale."""
    length: torch.Tensor
    """length[n], float64: w_i in units of the scale."""
    spare: torch.Tensor
    """spare[n], float64: spare_i, not scaled."""
    scale: float

    def __len__(self) -> int:
        return len(self.rows)

    def right(self) -> torch.Tensor:
        """Return a copy of ``cheap`` with the columns of a right side, padded with zero rows."""
        # Swap error with length, and the pieces of beta with the scales, so that one product sums
        # all terms.
        order = torch.tensor([1, 0, 4, 5, 2, 3], device=self.cheap.device) + self.rows.shape[1]
        right = nn.functional.pad(self.cheap, (0, 0, 0, -len(self) % STRIP_COLUMNS))
        right[: len(self), self.rows.shape[1] : self.rows.shape[1] + EXTRA] = self.cheap[:, order]
        return right

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.cheap.nbytes) + 40 * len(self)


def panel_bytes(count: int, rows: Rows) -> int:
    columns: int = rows.shape[1]
    return count * (columns * (_float_type(rows.dtype).itemsize + 2) + 2 * (EXTRA + ALIGNED) + 40)


def _float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "f" and dtype.itemsize in (2, 4, 8):
        # Torch accepts only this machine's byte order.
        return dtype.newbyteorder("=")
    # Both represent the integers as exactly as float64, on which the definition is based.
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def make_panel(tile: Tile, frame: Frame, device: torch.device) -> Panel:
    """Copy rows to the device, and prepare them for products as ``bounds`` says."""
    # A copy: mapped rows are read-only, and torch warns of a tensor that would share them.
    rows = torch.from_numpy(np.array(tile.rows, dtype=_float_type(tile.rows.dtype))).to(device)
    norms = torch.from_numpy(np.array(tile.norms, dtype=np.float64)).to(device)
    n, columns = rows.shape
    wide = torch.float64
    centre = torch.from_numpy(np.array(frame.centre, dtype=np.float64)).to(device)
    slop = bounds.slop(columns, frame.centre)
    growth = bounds.device_growth(columns)
    inverse = torch.where(norms == 0, 0.0, 1.0 / torch.where(norms == 0, 1.0, norms))[:, None]
    step = max(1, WIDE_BYTES // (32 * columns))
    steps = [slice(start, min(start + step, n)) for start in range(0, n, step)]

    def moved(some: slice) -> torch.Tensor:
        return rows[some].to(wide) * inverse[some] - centre

    # First compute the lengths of the rows, which determine the scale; then round the rows to
    # float16.
    lengths = torch.cat([torch.linalg.vector_norm(moved(some), dim=1) for some in steps])
    shift = torch.cat([moved(some) @ centre for some in steps])
    largest = float(torch.maximum(lengths.max(), shift.abs().max()))
    exponent = LARGEST_EXPONENT if largest == 0 else -int(np.frexp(largest)[1])
    scale = 2.0 ** max(-LARGEST_EXPONENT, min(LARGEST_EXPONENT, exponent))
    width = -(-(columns + EXTRA) // ALIGNED) * ALIGNED
    cheap = torch.zeros((n, width), dtype=torch.float16, device=device)
    lost = torch.empty(n, dtype=wide, device=device)
    for some in steps:
        exact = moved(some) * scale
        rounded = exact.to(torch.float16)
        cheap[some, :columns] = rounded
        exact -= rounded
        lost[some] = torch.linalg.vector_norm(exact, dim=1) * (1 + 2.0**-30) / scale
    length = (lengths + lost) * (1 + 2.0**-30) + slop
    error = (lost + slop + 2 * growth * length) * (1 + 4 * growth)
    beta = shift + 2 * growth * shift.abs() + slop
    cheap[:, columns] = round_up(error * scale)
    cheap[:, columns + 1] = round_up(length * scale)
    first = (beta * scale).to(torch.float16)
    # Round only the second piece up: it includes the rounding error of the first.
    second = round_up((beta * scale - first) / PIECE)
    cheap[:, columns + 2] = first
    cheap[:, columns + 3] = second
    cheap[:, columns + 4] = scale
    cheap[:, columns + 5] = PIECE * scale
    # Use the rounded values, which are those that products see.
    tall = cheap[:, columns : columns + EXTRA].to(wide)
    pieces = (tall[:, 2] + tall[:, 3] * PIECE) / scale
    return Panel(
        start=tile.start,
        rows=rows,
        norms=norms,
        cheap=cheap,
        error=tall[:, 0].clone(),
        length=tall[:, 1].clone(),
        spare=pieces - shift + 2 * growth * pieces.abs() + 2 * slop,
        scale=scale,
    )


# ---- the engine
# -------------------------------------------------------------------------------------------------

Limits: TypeAlias = Callable[[slice, slice], tuple[torch.Tensor, torch.Tensor | None]]
"""Returns limits of rows and of columns. A pair passes if it reaches either; None: columns have no
limits."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Cut:
    """A tile in panels of one size: the value of ``PreparedTile.make_operand``."""

    frame: Frame
    parts: tuple[Tile, ...]

    @property
    def squared(self) -> float:
        return float(self.frame.centre @ self.frame.centre)


class DeviceBest:
    """The best of one or two tiles, on the device: keys[n, k], less 2**63, and bounds[n]."""

    def __init__(self, bests: Sequence[Best], device: torch.device) -> None:
        self.keys = torch.from_numpy(
            (np.concatenate([best.keys for best in bests]) ^ TOP).view(np.int64)
        ).to(device)
        self.bounds = torch.from_numpy(np.concatenate([best.lower_bounds for best in bests])).to(
            device
        )

    def panels(self, cut: Cut, first: int) -> list["PanelBest"]:
        """Return the best of each panel of a tile, whose rows begin at ``first``."""
        ends = np.cumsum([first, *map(len, cut.parts)]).tolist()
        return [PanelBest(self, slice(*edges)) for edges in zip(ends, ends[1:], strict=False)]

    def take(self, rows: torch.Tensor, scores: torch.Tensor, numbers: torch.Tensor) -> None:
        """Merge scored pairs: rows, and the numbers of their neighbors."""
        new = encode_keys(scores, numbers)
        better = (new < self.keys[rows, -1]) & (scores >= self.bounds[rows])
        rows = rows[better]
        new = new[better]
        if not len(rows):
            return
        k = self.keys.shape[1]
        counts = torch.bincount(rows, minlength=len(self.keys))
        some = counts.nonzero()[:, 0]
        everyone = torch.cat([new, self.keys[some].flatten()])
        whose = torch.cat([rows, some.repeat_interleave(k)])
        # Sort by row, then by key, with two stable sorts: the k best of each row then come first.
        order = torch.argsort(everyone, stable=True)
        order = order[torch.argsort(whose[order], stable=True)]
        each = counts[some] + k
        starts = each.cumsum(0) - each
        self.keys[some] = everyone[order[starts[:, None] + torch.arange(k, device=order.device)]]


class PanelBest:
    """The best of a panel's rows: views of its part of a ``DeviceBest``."""

    def __init__(self, whole: DeviceBest, rows: slice) -> None:
        self.first = rows.start
        self.keys = whole.keys[rows]
        self.bounds = whole.bounds[rows]
        self._unserved = self.bounds == torch.inf
        self._unseeded = bool((self.bounds == -torch.inf).any())

    def limits(self, panel: Panel, other: Panel, squared: float, first: int = 0) -> torch.Tensor:
        """Return limits[n], float16, for products with the other panel's rows from ``first`` on.

        A pair with the score t has a quotient of at least t less half a step, which is below 2**-23
        t + 2**-149.
        """
        kth = decode_keys(self.keys[:, -1])
        least = torch.maximum(kth, self.bounds).to(torch.float64)
        scaled = (least - least.abs() * 2.0**-23 - 2.0**-149 - squared) * (
            panel.scale * other.scale
        )
        # No score is above 1, see ``bounds``: behind k neighbors with 1, none with a higher index
        # enters.
        behind = (self.keys[:, -1] & 0xFFFFFFFF) < other.start + first
        closed = self._unserved | ((kth >= 1) & behind)
        # Clamp to the least finite number, so that the row itself, with -inf in the product, never
        # passes.
        limits = round_down(torch.where(least.isinf(), -torch.inf, scaled)).clamp_(min=LEAST)
        return torch.where(closed, torch.inf, limits)

    def seed(self, near: torch.Tensor, panel: Panel, other: Panel, squared: float) -> None:
        """Raise the bounds to the k-th best score that a product near[n, m] shows for each row."""
        k = self.keys.shape[1]
        if not self._unseeded or near.shape[1] <= k:
            return
        whole = near.shape[1] - near.shape[1] % GROUP
        if whole >= 2 * k * GROUP:
            # The largest of k groups belong to k neighbors, and are found sooner; few of the k best
            # share a group.
            near = near[:, :whole].view(len(near), GROUP, -1).amax(1)
        kth = torch.topk(near, k, dim=1).values[:, -1].to(torch.float64)
        cross = 3 * (panel.error * other.length.max() + panel.length * other.error.max())
        kth = kth - kth.abs() * 2.0**-10 - 2.0**-24 - cross
        least = kth / (panel.scale * other.scale) - panel.spare - other.spare.max() + squared
        least = (least - least.abs() * 2.0**-22 - 2.0**-140).to(torch.float32)
        torch.maximum(self.bounds, torch.where(least.isnan(), -torch.inf, least), out=self.bounds)
        self._unseeded = False


class CudaEngine:
    def __init__(
        self,
        device: str,
        columns: int,
        *,
        free_bytes: int | None = None,
        survivors: int = SURVIVORS,
    ) -> None:
        """Set up the device, ``cpu`` in tests, and compare its scores and products with NumPy's.

        An engine may use ``free_bytes``, or what the device has free. A product with more
        ``survivors`` overflows.
        """
        if columns > bounds.MAX_COLUMNS or not 0 < bounds.device_growth(columns) <= 1 / 8:
            raise Unavailable(f"the sum of {columns} products of a GPU may be too far off")
        self._device = torch.device(device)
        if self._device.type == "cuda":
            self._device = torch.device("cuda", torch.cuda.current_device())
            # Sums in float16 would break the bound.
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
            # Only newer versions of torch have this option.
            if hasattr(torch.backends.cuda.matmul, "allow_fp16_accumulation"):
                torch.backends.cuda.matmul.allow_fp16_accumulation = False
            if free_bytes is None:
                # The driver counts memory that torch caches as used, so empty torch's cache first.
                torch.cuda.empty_cache()
                free_bytes = torch.cuda.mem_get_info()[0]
                if free_bytes < MIN_FREE:
                    raise Unavailable(f"only {free_bytes >> 20} MiB of the GPU's memory are free")
        device_name = (
            torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "a CPU"
        )
        self.name = f"float16 CUDA ({device_name})"
        self.scored = 0
        self._survivors_at_once = survivors
        free = 1 << 28 if free_bytes is None else free_bytes
        self._room = free // 2
        self._pair_bytes = max(1 << 20, free // 16)
        # A power of two, so that its halves are even.
        most = 1 << (math.isqrt(free // 64).bit_length() - 1)
        self._panel_rows = max(MIN_PANEL_ROWS, min(MAX_PANEL_ROWS, most))
        # Weak references: a tile keeps its rows, and those of another instance occupy the object
        # store.
        self._panels: OrderedDict[tuple[weakref.ref[Cut], int], Panel] = OrderedDict()
        """The latest panels: at most ``_room`` bytes, but at least two panels."""
        columns = min(columns, 1 << 16)
        for length in (*LENGTHS, columns):
            _check_scores(self._device, length)
        _check_products(self._device, columns)

    def prepare(self, tile: Tile, frame: Frame) -> DenseSide:
        """Cut the tile into panels; ``_panel`` copies them to the device when they are compared."""
        # Leave room for four panels: the two of a product, and those of the next one.
        rows = max(1, min(self._panel_rows, self._room // (4 * panel_bytes(1, tile.rows))))
        parts = tuple(tile.part(start, start + rows) for start in range(0, len(tile), rows))
        return PreparedTile(tile=tile, prepared=Cut(frame, parts), nbytes=0)

    def _panel(self, cut: Cut, at: int) -> Panel:
        """Return one panel of a tile; drop the least recently used ones to make room."""
        key = weakref.ref(cut), at
        panel = self._panels.pop(key, None)
        if panel is None:
            for old in [old for old in self._panels if old[0]() is None]:
                del self._panels[old]
            tile = cut.parts[at]
            most = self._room - panel_bytes(len(tile), tile.rows)
            # Keep the last one, which is the other side of the next product.
            while (
                len(self._panels) > 1
                and sum(panel.nbytes for panel in self._panels.values()) > most
            ):
                self._panels.popitem(last=False)
            panel = make_panel(tile, cut.frame, self._device)
        self._panels[key] = panel
        return panel

    def topk(
        self,
        left: DenseSide,
        right: DenseSide,
        best_left: Best,
        best_right: Best | None,
        *,
        same: bool,
    ) -> None:
        diagonal = best_right is best_left
        if diagonal and (left.tile.start, len(left)) != (right.tile.start, len(right)):
            raise ValueError("two tiles share one Best, but are not the same rows")
        above = left.prepared
        beside = left.prepared if diagonal else right.prepared
        bests = [best_left] if diagonal or best_right is None else [best_left, best_right]
        found = DeviceBest(bests, self._device)
        mine = found.panels(above, 0)
        # On the diagonal both sides share the same objects, and so their limits.
        if diagonal:
            theirs = mine
        else:
            theirs = [] if best_right is None else found.panels(beside, len(left))
        for i, j in _order(above, beside, diagonal):
            # A panel with itself is merged only once.
            other = None if not theirs or (diagonal and i == j) else theirs[j]
            self._serve(
                self._panel(above, i),
                self._panel(beside, j),
                found,
                mine[i],
                other,
                above.squared,
                same,
            )
        keys = found.keys.cpu().numpy().view(np.uint64) ^ TOP
        for best, part in zip(bests, np.split(keys, [len(left)]), strict=False):
            best.keys[...] = part

    def _serve(
        self,
        above: Panel,
        beside: Panel,
        found: DeviceBest,
        mine: PanelBest,
        theirs: PanelBest | None,
        squared: float,
        same: bool,
    ) -> None:
        """Compare two panels; merge the pairs that may be among the best of a row or column."""
        near = self._product(above, beside, same)
        mine.seed(near[:, : len(beside)], above, beside, squared)
        if theirs is not None:
            theirs.seed(near.T[: len(beside)], beside, above, squared)

        def limits(rows: slice, columns: slice) -> tuple[torch.Tensor, torch.Tensor | None]:
            of_rows = mine.limits(above, beside, squared, columns.start)[rows]
            if theirs is None:
                return of_rows, None
            of_columns = theirs.limits(beside, above, squared, rows.start)
            # No entry of the padding reaches infinity.
            return of_rows, nn.functional.pad(
                of_columns, (0, near.shape[1] - len(beside)), value=torch.inf
            )[columns]

        for i, j in self._survivors(near, limits, slice(0, len(near)), slice(0, near.shape[1])):
            scores = self._scores_at(above, beside, i, j)
            if theirs is None:
                found.take(i + mine.first, scores, j + beside.start)
            else:
                rows = torch.cat([i + mine.first, j + theirs.first])
                found.take(
                    rows,
                    torch.cat([scores, scores]),
                    torch.cat([j + beside.start, i + above.start]),
                )

    def pairs(
        self, left: DenseSide, right: DenseSide, threshold: np.float32, *, same: bool
    ) -> Pairs:
        above = left.prepared
        beside = right.prepared
        least = float(threshold)
        # More than half a step of float32, as in PanelBest.limits.
        least -= abs(least) * 2.0**-23 + 2.0**-149 + above.squared
        found = []
        for at, beside_at in _order(above, beside, False):
            up = above.parts[at]
            side = beside.parts[beside_at]
            # Skip products on or below the diagonal, where no neighbor has a higher number than its
            # row.
            if same and up.start >= side.start + len(side) - 1:
                continue
            panels = self._panel(above, at), self._panel(beside, beside_at)
            for rows, neighbors, scores in self._pairs(*panels, threshold, least, same):
                found.append(
                    (
                        rows.cpu().numpy() - left.tile.start,
                        neighbors.cpu().numpy(),
                        scores.cpu().numpy(),
                    )
                )
        return Pairs.of(found, len(left))

    def _pairs(
        self, above: Panel, beside: Panel, threshold: np.float32, least: float, same: bool
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        near = self._product(above, beside, same)
        scaled = torch.tensor(
            [least * above.scale * beside.scale], dtype=torch.float64, device=self._device
        )
        limit = round_down(scaled).clamp_(min=LEAST).expand(len(above))

        def limits(rows: slice, columns: slice) -> tuple[torch.Tensor, None]:
            return limit[rows], None

        for i, j in self._survivors(near, limits, slice(0, len(near)), slice(0, near.shape[1])):
            if same:
                ordered = i + above.start < j + beside.start
                i = i[ordered]
                j = j[ordered]
            scores = self._scores_at(above, beside, i, j)
            enough = scores >= float(threshold)
            yield i[enough] + above.start, j[enough] + beside.start, scores[enough]

    def scores(self, left: Tile, right: Tile, out: NDArray[Any]) -> None:
        """See ``Engine.scores``; NumPy computes them, because the full matrix is left to CPUs."""
        PlainEngine().scores(left, right, out)

    def _product(self, above: Panel, beside: Panel, same: bool) -> torch.Tensor:
        """Return near[len(above), m] with m at least len(beside), padded with -inf."""
        right = beside.right()
        near = torch.empty((len(above), len(right)), dtype=torch.float16, device=self._device)
        _multiply(above.cheap, right, near)
        near[:, len(beside) :] = -torch.inf
        shift = above.start - beside.start
        if same and -len(above) < shift < len(beside):
            # Exclude each row's product with itself from the k products that ``seed`` uses.
            near.diagonal(shift).fill_(-torch.inf)
        return near

    def _survivors(
        self, near: torch.Tensor, limits: Limits, rows: slice, columns: slice
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield rows and columns of the entries that reach ``limits(rows, columns)``.

        If there are many, yield them in parts.
        """
        height = rows.stop - rows.start
        width = columns.stop - columns.start
        step = width // GROUP
        groups = near[rows, columns].view(height, GROUP, step)
        of_rows, of_columns = limits(rows, columns)
        least = of_rows[:, None]
        if of_columns is not None:
            of_columns = of_columns.view(GROUP, step)
            least = torch.minimum(least, of_columns.amin(0))
        i, group = (groups.amax(1) >= least).nonzero().unbind(1)
        is_strip = width <= STRIP_COLUMNS
        most = self._survivors_at_once
        is_smallest = is_strip and height <= STRIP_ROWS
        if len(i) <= most or is_smallest:
            entries = groups[i, :, group]
            mask = entries >= of_rows[i, None]
            if of_columns is not None:
                mask |= entries >= of_columns.T[group]
            at, within = mask.nonzero().unbind(1)
            if (
                len(at) <= (most if is_strip else min(most, MAX_SURVIVING * height * width))
                or is_smallest
            ):
                if len(at):
                    yield i[at] + rows.start, within * step + group[at] + columns.start
                return
            # Free them, because each part makes its own, with higher limits.
            del entries, mask, at, within
        if is_strip:
            middle = rows.start + height // 2
            parts = [(slice(rows.start, middle), columns), (slice(middle, rows.stop), columns)]
        else:
            # At a multiple of STRIP_COLUMNS, so that parts consist of whole groups.
            middle = columns.start + -(-width // (2 * STRIP_COLUMNS)) * STRIP_COLUMNS
            parts = [(rows, slice(columns.start, middle)), (rows, slice(middle, columns.stop))]
        for part in parts:
            yield from self._survivors(near, limits, *part)

    def _scores_at(
        self, above: Panel, beside: Panel, i: torch.Tensor, j: torch.Tensor
    ) -> torch.Tensor:
        self.scored += len(i)
        scores = torch.empty(len(i), dtype=torch.float32, device=self._device)
        # For each column: both rows' elements, both as float64, and their product, of up to 8 bytes
        # each.
        step = max(1, self._pair_bytes // (40 * above.rows.shape[1]))
        for start in range(0, len(i), step):
            rows = i[start : start + step]
            columns = j[start : start + step]
            scores[start : start + step] = pair_scores(
                above.rows[rows], beside.rows[columns], above.norms[rows], beside.norms[columns]
            )
        return scores


def _order(above: Cut, beside: Cut, diagonal: bool) -> Iterator[tuple[int, int]]:
    """Yield pairs of panels, back and forth, so that a line begins where the last one ended."""
    for i in range(len(above.parts)):
        columns = range(i if diagonal else 0, len(beside.parts))
        for j in columns if i % 2 == 0 or diagonal else reversed(columns):
            yield i, j


def _multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    """Write the products of two float16 matrices, summed in float32 and rounded once."""
    if left.device.type == "cuda":
        torch.mm(left, right.T, out=out)
    else:
        out.copy_(left.to(torch.float32) @ right.T.to(torch.float32))


# ---- the device
# -------------------------------------------------------------------------------------------------


def cuda_engine(columns: int) -> CudaEngine:
    """Return the engine of this process's GPU; raise ``Unavailable`` if none can be used."""
    try:
        if not torch.cuda.is_available():
            raise Unavailable(f"torch {torch.__version__} finds no GPU that it can use")
        return CudaEngine("cuda", columns)
    except RuntimeError as error:
        # The driver's message says, for example, that it is too old for this torch, or that the GPU
        # is in use.
        raise Unavailable(f"CUDA fails: {str(error).splitlines()[0]}") from error


@functools.cache
def _check_products(device: torch.device, columns: int) -> None:
    """Check that the errors of the device's products are as small as ``bounds`` assumes."""
    width = -(-columns // 8) * 8
    half = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 64, -(-width // 2)))).to(
        torch.float16
    )
    left = torch.cat([half[0], half[0]], dim=1)[:, :width].contiguous()
    # The second half is nearly the negative of the first, so a small sum is left of large terms.
    right = torch.cat([half[1], -half[1] * (1 + 2.0**-10)], dim=1)[:, :width].contiguous()
    near = torch.empty(64, 64, dtype=torch.float16, device=device)
    _multiply(left.to(device), right.to(device), near)
    first = left.to(torch.float64)
    second = right.to(torch.float64)
    exact = first @ second.T
    # The last two terms are the error of rounding the output to float16.
    most = (
        bounds.device_growth(width) * (first.abs() @ second.abs().T)
        + exact.abs() * 2.0**-10
        + 2.0**-24
    )
    if not bool(((near.cpu().to(torch.float64) - exact).abs() <= most).all()):
        raise Unavailable(
            "the float16 products of this GPU are further off than was measured of others"
        )


@functools.cache
def _check_scores(device: torch.device, length: int) -> None:
    """Compare the device's scores with NumPy's, for products that nearly cancel each other."""
    rng = np.random.default_rng(length)
    half = rng.standard_normal((2, 8, length - length // 2))
    left, right = np.concatenate([half, half * [[[1.0]], [[-1.0]]]], axis=2)[
        :, :, rng.permutation(length)
    ]
    norms = np.linspace(0.5, 2, 8)
    arguments = (torch.from_numpy(array.copy()).to(device) for array in (left, right, norms, norms))
    if not np.array_equal(
        pair_scores(*arguments).cpu().numpy(), score.pair_scores(left, right, norms, norms)
    ):
        raise Unavailable(
            f"this GPU and NumPy {np.__version__} differ in scores of {length} elements"
        )
