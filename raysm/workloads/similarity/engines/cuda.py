"""The engine of a GPU: float16 products, a filter, exact scores and the merging of keys, all on the GPU.

One product of two *panels* (pieces of tiles, see ``cuda_panels``) says of every pair the most that its score can be, by
the bound in ``bounds``. A pair that reaches the limit of its row or of its column is scored by the definition, in
float64, and merged into the best of both. A product with too many survivors is gone through by strips, limits rising in
between: that takes time, and no more memory.

**Memory on the GPU**, of ``free`` bytes that it has when the engine is made:

    panels, the latest ones                       at most free / 2, and never fewer than two
  + a product of P x P entries, float16           2 P**2       P**2 <= free / 64 is the size of a panel
  + masks, or a turned copy, of the product       3 P**2
  + survivors at a time, with their keys          about 200 * 2**20
  + rows of pairs in float64, while scored        free / 16
  + the best of a tile's rows and columns         3 * 8 k (n + m)

and at most 256 MiB while a panel is made. Everything is torch, so it runs on a CPU too, where its tests compare it with
the other engines, index for index.
"""

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from raysm.workloads.similarity.arithmetic import score
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.engines import bounds
from raysm.workloads.similarity.engines.cuda_panels import (
    Panel,
    decoded,
    encoded,
    from_host,
    make_panel,
    pair_scores,
    panel_bytes,
    rounded_down,
    to_host,
)
from raysm.workloads.similarity.engines.protocol import Best, Frame, Pairs, PreparedTile
from raysm.workloads.similarity.kernels.build import Unavailable

__all__ = ["CudaEngine", "cuda_engine"]

MAX_PANEL_ROWS, MIN_PANEL_ROWS = 1 << 14, 32
"""Larger products would not be faster."""

STRIP_ROWS, STRIP_COLUMNS = 64, 256
"""An overflowed product is gone through by strips of so many columns, each of at least so many rows."""

SURVIVORS = 1 << 20
"""A product is overflowed if more pairs than this pass the filter; so many are scored before limits are raised."""

MAX_SURVIVING = 1 / 8
"""So it is if more than this fraction of it does."""

MIN_FREE = 1 << 30
"""A GPU with less memory free is not used."""

LEAST = -65504.0
"""Of float16. No product comes near it: ``bounds`` keeps them below 2**14."""

LENGTHS = (1, 7, 8, 9, 127, 128, 129, 136, 300, 768, 1021)
"""Of rows whose scores must be NumPy's before a GPU is used."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A tile in panels of one size; what ``PreparedTile.prepared`` is."""

    frame: Frame
    parts: tuple[Tile, ...]

    def rows_of(self, at: int) -> slice:
        """Return which rows of the tile a panel has."""
        start = sum(map(len, self.parts[:at]))
        return slice(start, start + len(self.parts[at]))


@dataclass(slots=True)
class DeviceBest:
    """The best of a tile's rows, on the device."""

    keys: torch.Tensor
    """keys[n, k], less 2**63."""
    bounds: torch.Tensor
    """bounds[n], float32: scores that each row's k-th best is known to reach."""
    unseeded: list[bool]
    """Of each panel: whether rows may have no limit yet."""
    unserved: torch.Tensor
    """unserved[n]: these rows look for no neighbors."""

    @classmethod
    def of(cls, best: Best, cut: Cut, device: torch.device) -> "DeviceBest":
        """Bring the best of a tile, in the panels of ``cut``, to the device."""
        starts = np.cumsum([0, *map(len, cut.parts)]).tolist()
        # A copy: seed raises these in place, and on a CPU the tensor would be the caller's own array.
        bounds = torch.from_numpy(np.array(best.lower_bounds)).to(device)
        return cls(
            keys=from_host(best.keys, device),
            bounds=bounds,
            unseeded=[bool((best.lower_bounds[a:b] == -np.inf).any()) for a, b in pairwise(starts)],
            unserved=bounds == torch.inf,
        )


@dataclass(frozen=True, slots=True)
class PanelBest:
    """A panel's part of a ``DeviceBest``."""

    best_of_tile: DeviceBest
    """Of the whole tile."""
    at: int
    """Which panel."""
    some: slice
    """Its rows of the tile."""

    def limits(self, panel: Panel, other: Panel, squared: float, first: int = 0) -> torch.Tensor:
        """Return limits[n], float16, that the panel's products with the other one, from ``first`` on, have to reach.

        Who has a score t has a quotient of t less half a step at least; half a step is below 2**-23 t + 2**-149.
        """
        keys = self.best_of_tile.keys[self.some]
        kth = decoded(keys[:, -1])
        least = torch.maximum(kth, self.best_of_tile.bounds[self.some]).to(torch.float64)
        scaled = (least - least.abs() * 2.0**-23 - 2.0**-149 - squared) * (panel.scale * other.scale)
        # No score is above 1, see ``bounds``: behind k neighbors with 1, none with a higher index enters.
        behind = (keys[:, -1] & 0xFFFFFFFF) < other.start + first
        closed = self.best_of_tile.unserved[self.some] | ((kth >= 1) & behind)
        # The least finite number: the row itself, which stands at -inf in the product, is never let in.
        limits = rounded_down(torch.where(least.isinf(), -torch.inf, scaled)).clamp_(min=LEAST)
        return torch.where(closed, torch.inf, limits)

    def seed(self, near: torch.Tensor, panel: Panel, other: Panel, squared: float) -> None:
        """Learn from a product near[n, m] what the k-th best score of each row reaches at least."""
        k = self.best_of_tile.keys.shape[1]
        if not self.best_of_tile.unseeded[self.at] or near.shape[1] <= k:
            return
        unit = panel.scale * other.scale
        kth = torch.topk(near, k, dim=1).values[:, -1].to(torch.float64)
        cross = 3 * (panel.error * other.length.max() + panel.length * other.error.max())
        kth = kth - kth.abs() * 2.0**-10 - 2.0**-24 - cross
        least = kth / unit - panel.spare - other.spare.max() + squared
        least = (least - least.abs() * 2.0**-22 - 2.0**-140).to(torch.float32)
        bounds = self.best_of_tile.bounds[self.some]
        torch.maximum(bounds, torch.where(least.isnan(), -torch.inf, least), out=bounds)
        self.best_of_tile.unseeded[self.at] = False

    def take(self, rows: torch.Tensor, scores: torch.Tensor, numbers: torch.Tensor) -> None:
        """Merge scored pairs: rows of the panel, and the numbers of their neighbors."""
        keys, bounds = self.best_of_tile.keys[self.some], self.best_of_tile.bounds[self.some]
        new = encoded(scores, numbers)
        better = (new < keys[rows, -1]) & (scores >= bounds[rows])
        rows, new = rows[better], new[better]
        if not len(rows):
            return
        k = keys.shape[1]
        counts = torch.bincount(rows, minlength=len(keys))
        some = counts.nonzero()[:, 0]
        everyone = torch.cat([new, keys[some].flatten()])
        whose = torch.cat([rows, some.repeat_interleave(k)])
        # By row, then by key: two stable sorts. Each row's then lie together, its k best first.
        order = torch.argsort(everyone, stable=True)
        order = order[torch.argsort(whose[order], stable=True)]
        each = counts[some] + k
        starts = each.cumsum(0) - each
        keys[some] = everyone[order[starts[:, None] + torch.arange(k, device=order.device)]]


class CudaEngine:
    """float16 products of a GPU, decided by ``bounds``, and scores in float64 there."""

    def __init__(
        self,
        device: str,
        columns: int,
        *,
        free_bytes: int | None = None,
        survivors: int = SURVIVORS,
    ) -> None:
        """Take the device, and compare its scores and products with NumPy's.

        Args:
            device: ``cuda``, or ``cpu`` for tests.
            columns: Of the matrix.
            free_bytes: Memory that it may use; None asks the device.
            survivors: A product with more is overflowed.

        Raises:
            Unavailable: The device, or a matrix of that many columns, cannot have it.
        """
        if columns > bounds.MOST_COLUMNS or not 0 < bounds.device_growth(columns) <= 1 / 8:
            raise Unavailable(f"the sum of {columns} products of a GPU may be too far off")
        self._device = torch.device(device)
        if self._device.type == "cuda":
            self._device = torch.device("cuda", torch.cuda.current_device())
            # Sums in float16 would break the bound.
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
            # Only newer versions of torch have this one.
            if hasattr(torch.backends.cuda.matmul, "allow_fp16_accumulation"):
                torch.backends.cuda.matmul.allow_fp16_accumulation = False
            if free_bytes is None:
                # What torch keeps of freed memory counts as taken: the driver does not know better.
                torch.cuda.empty_cache()
                free_bytes = torch.cuda.mem_get_info()[0]
                if free_bytes < MIN_FREE:
                    raise Unavailable(f"only {free_bytes >> 20} MiB of the GPU's memory are free")
        self.name = f"float16 CUDA ({_device_name(self._device)})"
        self.scored = 0
        """Pairs that were scored so far."""
        self._survivors_at_once = survivors
        free = 1 << 28 if free_bytes is None else free_bytes
        self._room = free // 2
        self._pair_bytes = max(1 << 20, free // 16)
        # A power of two: halves of it are cut evenly.
        most = 1 << (math.isqrt(free // 64).bit_length() - 1)
        self._panel_rows = max(MIN_PANEL_ROWS, min(MAX_PANEL_ROWS, most))
        self._panels: OrderedDict[tuple[Cut, int], Panel] = OrderedDict()
        """The latest ones, up to ``_room`` bytes and never fewer than two."""
        _check_device(self._device, min(columns, 1 << 16))

    def prepare(self, tile: Tile, frame: Frame) -> PreparedTile[Tile]:
        """Cut the tile into panels; they are brought to the device when they are compared."""
        # Four panels have room: the two of a product, and those of the next one.
        rows = max(1, min(self._panel_rows, self._room // (4 * panel_bytes(1, tile.rows))))
        parts = tuple(tile.part(start, start + rows) for start in range(0, len(tile), rows))
        return PreparedTile(tile=tile, prepared=Cut(frame, parts), nbytes=0)

    @property
    def held_bytes(self) -> int:
        """Memory of the panels on the device."""
        return sum(panel.nbytes for panel in self._panels.values())

    def _panel(self, cut: Cut, at: int) -> Panel:
        """Return one panel of a tile; what was asked for longest ago makes room for it."""
        panel = self._panels.pop((cut, at), None)
        if panel is None:
            tile = cut.parts[at]
            need = panel_bytes(len(tile), tile.rows)
            # All but the one that was asked for last: it is the other side of the product that comes.
            while len(self._panels) > 1 and self.held_bytes + need > self._room:
                self._panels.popitem(last=False)
            panel = make_panel(tile, cut.frame, self._device)
        self._panels[cut, at] = panel
        return panel

    def topk(
        self,
        left: PreparedTile[Tile],
        right: PreparedTile[Tile],
        best_left: Best,
        best_right: Best | None,
        *,
        same: bool,
    ) -> None:
        """See ``Engine.topk``."""
        diagonal = best_right is best_left
        if diagonal and (left.tile.start, len(left)) != (right.tile.start, len(right)):
            raise ValueError("two tiles share one Best, but are not the same rows")
        above, beside = left.prepared, left.prepared if diagonal else right.prepared
        mine = DeviceBest.of(best_left, above, self._device)
        # One object: what one side has learned of a row is a limit for the other.
        theirs = mine if diagonal else None
        if best_right is not None and not diagonal:
            theirs = DeviceBest.of(best_right, beside, self._device)
        for i, j in _order(above, beside, diagonal):
            # Of a panel with itself each row is served once.
            other = None if theirs is None or (diagonal and i == j) else PanelBest(theirs, j, beside.rows_of(j))
            self._serve(
                self._panel(above, i), self._panel(beside, j), PanelBest(mine, i, above.rows_of(i)), other, above, same
            )
        best_left.keys[...] = to_host(mine.keys)
        if best_right is not None and theirs is not None and not diagonal:
            best_right.keys[...] = to_host(theirs.keys)

    def _serve(
        self, above: Panel, beside: Panel, mine: PanelBest, theirs: PanelBest | None, cut: Cut, same: bool
    ) -> None:
        """Compare two panels, and give their rows, and their columns, who is among their best."""
        near, squared = self._product(above, beside, same), _squared(cut.frame)
        mine.seed(near, above, beside, squared)
        if theirs is not None:
            theirs.seed(near.T, beside, above, squared)

        def chosen(rows: slice, columns: slice) -> torch.Tensor:
            part = near[rows, columns]
            mask = part >= mine.limits(above, beside, squared, columns.start)[rows, None]
            if theirs is not None:
                mask |= part >= theirs.limits(beside, above, squared, rows.start)[None, columns]
            return mask

        for i, j in self._survivors(near, chosen):
            scores = self._scores_at(above, beside, i, j)
            mine.take(i, scores, j + beside.start)
            if theirs is not None:
                theirs.take(j, scores, i + above.start)

    def pairs(self, left: PreparedTile[Tile], right: PreparedTile[Tile], threshold: np.float32, *, same: bool) -> Pairs:
        """See ``Engine.pairs``."""
        above, beside = left.prepared, right.prepared
        least = float(threshold)
        # More than half a step of float32, as in PanelBest.limits.
        least -= abs(least) * 2.0**-23 + 2.0**-149 + _squared(above.frame)
        found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]] = []
        for at, beside_at in _order(above, beside, False):
            up, side = above.parts[at], beside.parts[beside_at]
            # All of it lies on the diagonal or below: no row has a neighbor with a higher number here.
            if same and up.start >= side.start + len(side) - 1:
                continue
            found += self._pairs(self._panel(above, at), self._panel(beside, beside_at), threshold, least, same)
        none = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
        row, neighbor, similarity = (np.concatenate(parts) for parts in zip(none, *found, strict=True))
        row -= left.tile.start
        # Products come panel by panel, so their pairs are not in order.
        order = np.lexsort((neighbor, row))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(left)))]).astype(np.int64)
        return Pairs(offsets=offsets, neighbors=neighbor[order].astype(np.uint32), similarities=similarity[order])

    def _pairs(
        self, above: Panel, beside: Panel, threshold: np.float32, least: float, same: bool
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
        """Yield numbers of rows and neighbors of two panels, and their scores."""
        near = self._product(above, beside, same)
        scaled = torch.tensor([least * above.scale * beside.scale], dtype=torch.float64, device=self._device)
        limit = rounded_down(scaled).clamp_(min=LEAST)

        def chosen(rows: slice, columns: slice) -> torch.Tensor:
            mask = near[rows, columns] >= limit
            # With ``same``, row < neighbor.
            shift = above.start + rows.start - beside.start - columns.start
            return mask.triu_(shift + 1) if same else mask

        for i, j in self._survivors(near, chosen):
            scores = self._scores_at(above, beside, i, j)
            enough = scores >= float(threshold)
            rows, columns = i[enough] + above.start, j[enough] + beside.start
            yield rows.cpu().numpy(), columns.cpu().numpy(), scores[enough].cpu().numpy()

    def scores(self, left: Tile, right: Tile, out: NDArray[Any]) -> None:
        """See ``Engine.scores``."""
        frame = Frame.plain(left.rows.shape[1])
        above, beside = self.prepare(left, frame).prepared, self.prepare(right, frame).prepared
        for i in range(len(above.parts)):
            for j in range(len(beside.parts)):
                up, side = self._panel(above, i), self._panel(beside, j)
                at, first = up.start - left.start, side.start - right.start
                columns = torch.arange(len(side), device=self._device)
                step = max(1, SURVIVORS // len(side))
                for start in range(0, len(up), step):
                    rows = torch.arange(start, min(start + step, len(up)), device=self._device)
                    pairs = rows.repeat_interleave(len(side)), columns.repeat(len(rows))
                    some = self._scores_at(up, side, *pairs).cpu().numpy().reshape(len(rows), len(side))
                    out[at + start : at + start + len(rows), first : first + len(side)] = some

    def _product(self, above: Panel, beside: Panel, same: bool) -> torch.Tensor:
        """Return near[n, m] of two panels: in units of their scales, the most that each pair's score can be."""
        near = torch.empty((len(above), len(beside)), dtype=torch.float16, device=self._device)
        _multiply(above.cheap, beside.right(), near)
        shift = above.start - beside.start
        if same and -len(above) < shift < len(beside):
            # A row's own product would count among the k from which its limit is learned.
            near.diagonal(shift).fill_(-torch.inf)
        return near

    def _survivors(
        self, near: torch.Tensor, chosen: Callable[[slice, slice], torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield rows and columns of those that ``chosen(rows, columns)`` marks; where they are many, some at a time."""
        rows, columns = near.shape
        mask = chosen(slice(0, rows), slice(0, columns))
        count = int(mask.sum())
        if count <= min(self._survivors_at_once, MAX_SURVIVING * mask.numel()):
            if count:
                i, j = mask.nonzero().unbind(1)
                yield i, j
            return
        # It is half as large as the product, and each strip makes its own.
        del mask
        for left in range(0, columns, STRIP_COLUMNS):
            strip = slice(left, min(left + STRIP_COLUMNS, columns))
            ends = np.cumsum(chosen(slice(0, rows), strip).sum(dim=1).cpu().numpy())
            start = 0
            while start < rows:
                before = ends[start - 1] if start else 0
                stop = int(np.searchsorted(ends, before + self._survivors_at_once, side="right"))
                # Some rows at least, however full they are, or it would not go on.
                stop = max(stop, min(start + STRIP_ROWS, rows))
                # Limits rose since they were counted: fewer are left.
                i, j = chosen(slice(start, stop), strip).nonzero().unbind(1)
                if len(i):
                    yield i + start, j + left
                start = stop

    def _scores_at(self, above: Panel, beside: Panel, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        """Return scores[n] of pairs of rows of two panels, by the definition."""
        self.scored += len(i)
        scores = torch.empty(len(i), dtype=torch.float32, device=self._device)
        # Both rows as they are and in float64, and their products: five numbers of up to 8 bytes a column.
        step = max(1, self._pair_bytes // (40 * above.rows.shape[1]))
        for start in range(0, len(i), step):
            rows, columns = i[start : start + step], j[start : start + step]
            scores[start : start + step] = pair_scores(
                above.rows[rows], beside.rows[columns], above.norms[rows], beside.norms[columns]
            )
        return scores


def _order(above: Cut, beside: Cut, diagonal: bool) -> Iterator[tuple[int, int]]:
    """Yield which panels meet: back and forth, so that the last ones of a line are still there for the next."""
    for i in range(len(above.parts)):
        columns = range(i if diagonal else 0, len(beside.parts))
        for j in columns if i % 2 == 0 or diagonal else reversed(columns):
            yield i, j


def _squared(frame: Frame) -> float:
    return float(frame.centre @ frame.centre)


def cuda_engine(columns: int) -> CudaEngine:
    """Return the engine of this process's GPU.

    Raises:
        Unavailable: No GPU can be used.
    """
    try:
        if not torch.cuda.is_available():
            raise Unavailable(f"torch {torch.__version__} finds no GPU that it can use")
        return CudaEngine("cuda", columns)
    except RuntimeError as error:
        # The driver's own words: too old for this torch, or a GPU that another process has.
        raise Unavailable(f"CUDA fails: {str(error).splitlines()[0]}") from error


def _check_device(device: torch.device, columns: int) -> None:
    """Check all that rows of that many columns need.

    Raises:
        Unavailable: The device computes otherwise.
    """
    # Two calls: each is remembered by its lengths, so the many are checked once, whatever matrices come.
    _check_scores(device, LENGTHS)
    _check_scores(device, (columns,))
    _check_products(device, columns)


def _device_name(device: torch.device) -> str:
    """Return what the device is called."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"


def _multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
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
    _multiply(left.to(device), right.to(device), near)
    first, second = left.to(torch.float64), right.to(torch.float64)
    exact = first @ second.T
    # The last two terms are what rounding the output to float16 takes.
    most = bounds.device_growth(width) * (first.abs() @ second.abs().T) + exact.abs() * 2.0**-10 + 2.0**-24
    if not bool(((near.cpu().to(torch.float64) - exact).abs() <= most).all()):
        raise Unavailable(f"the float16 products of {_device_name(device)} are further off than was measured of others")


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
        scores = pair_scores(*arguments).cpu().numpy()
        if not np.array_equal(scores, score.pair_scores(left, right, norms, norms)):
            raise Unavailable(
                f"{_device_name(device)} and NumPy {np.__version__} differ in scores of {length} elements"
            )
