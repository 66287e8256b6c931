"""The engine of a GPU: float16 products, a filter, exact scores and the merging of keys, all on the device.

One product of two *panels* (pieces of tiles, see ``panels``) says of every pair the most that its score can be,
by the bound in ``bounds``; who reaches the limit of its row or of its column is scored by the definition, in float64
(``scores``), and merged into the best of both. While one product is filtered, the next one is computed, on a
stream of its own; rows travel on a third. A product with too many survivors is gone through by strips, limits rising
in between: that takes time, and no more memory.

**Memory on the device**, of ``free`` bytes that it has when the engine is made:

    panels, the latest ones                       at most free / 2, and never fewer than two
  + two products of P x P entries, float16        4 P**2
  + masks, or a turned copy, of one product       3 P**2       P**2 <= free / 64 is the size of a panel: with the
  + survivors at a time, with their keys          about 200 * 2**20                            two, 7 / 64 of free
  + rows of pairs in float64, while scored        free / 16
  + the best of a tile's rows and columns         3 * 8 k (n + m)

and at most 256 MiB while a panel is made. On the host: two pinned buffers of 32 MiB, and the mapped rows.

Everything is torch, so it runs on a CPU too, where its tests compare it with the other engines, index for index.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.engines import bounds
from raysm.workloads.similarity.engines.cuda import scores as scores_on_gpu
from raysm.workloads.similarity.engines.cuda.best import LEAST, DeviceBest, PanelBest, panel_best
from raysm.workloads.similarity.engines.cuda.checks import check_device, device_name, multiply
from raysm.workloads.similarity.engines.cuda.panels import Cut, Panel, Panels, panel_bytes, rounded_down
from raysm.workloads.similarity.engines.cuda.streams import Streams, streams_of
from raysm.workloads.similarity.engines.protocol import Best, Frame, Pairs, PreparedTile
from raysm.workloads.similarity.kernels.build import Unavailable

__all__ = ["CudaEngine", "cuda_engine"]

MOST_PANEL_ROWS = 1 << 14
"""Larger products would not be faster."""

LEAST_PANEL_ROWS = 32

STRIP_ROWS = 64

STRIP_COLUMNS = 256
"""An overflowed product is gone through by strips of so many columns, each of at least ``STRIP_ROWS`` rows."""

SURVIVORS = 1 << 20
"""A product is overflowed if more pairs than this pass the filter; so many are scored before limits are raised."""

MOST_SURVIVING = 1 / 8
"""So it is if more than this fraction of it does."""

LEAST_FREE = 1 << 30
"""A GPU with less memory free is not used."""


@dataclass(frozen=True, slots=True)
class _Product:
    """Two panels and their product, which is being computed."""

    above: Panel
    beside: Panel
    near: torch.Tensor
    servers: tuple[PanelBest | None, PanelBest | None]
    buffer: int
    ready: Any


class CudaEngine:
    """float16 products of a GPU, decided by ``bounds``, and scores in float64 there."""

    def __init__(
        self,
        device: str,
        columns: int,
        *,
        free_bytes: int | None = None,
        survivors: int = SURVIVORS,
        streams: Streams | None = None,
    ) -> None:
        """Take the device, and compare its scores and products with NumPy's.

        Args:
            device: ``cuda``, or ``cpu`` for tests.
            columns: Of the matrix.
            free_bytes: Memory that it may use; None asks the device.
            survivors: A product with more is overflowed.
            streams: Where work is queued; None makes the device's own.

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
                if free_bytes < LEAST_FREE:
                    raise Unavailable(f"only {free_bytes >> 20} MiB of the GPU's memory are free")
        self.name = f"float16 CUDA ({device_name(self._device)})"
        self.scored = 0
        """Pairs that were scored so far."""
        self._survivors_at_once = survivors
        self._streams = streams_of(self._device) if streams is None else streams
        free = 1 << 28 if free_bytes is None else free_bytes
        self._room = free // 2
        self._pair_bytes = max(1 << 20, free // 16)
        # A power of two: halves of it are cut evenly.
        most = 1 << (math.isqrt(free // 64).bit_length() - 1)
        self._panel_rows = max(LEAST_PANEL_ROWS, min(MOST_PANEL_ROWS, most))
        self._panels = Panels(self._device, self._streams, self._room)
        self._buffers: list[torch.Tensor] = []
        self._free: list[Any] = [None, None]
        check_device(self._device, min(columns, 1 << 16))

    def prepare(self, tile: Tile, frame: Frame) -> PreparedTile[Tile]:
        """Cut the tile into panels; they are brought to the device when they are compared."""
        one = panel_bytes(1, tile.rows)
        # Four panels have room: the two of a product, and the two of the next one.
        rows = max(1, min(self._panel_rows, self._room // (4 * one)))
        cut = Cut(tile, frame, rows)
        self._panels.follow(cut)
        return PreparedTile(tile=tile, prepared=cut, nbytes=0)

    @property
    def panels(self) -> Panels:
        """What is on the device."""
        return self._panels

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
        with self._streams.filtering():
            mine = DeviceBest.of(best_left, above, self._device)
            # One object: what one side has learned of a row is a limit for the other.
            theirs = mine if diagonal else None
            if best_right is not None and not diagonal:
                theirs = DeviceBest.of(best_right, beside, self._device)

        def servers(i: int, j: int) -> tuple[PanelBest, PanelBest | None]:
            # Of a panel with itself each row is served once.
            other = None if theirs is None or (diagonal and i == j) else panel_best(theirs, beside, j)
            return panel_best(mine, above, i), other

        squared = _squared(above.frame)
        for product in self._products(above, beside, _order(above, beside, diagonal), servers, same):
            self._serve(product, squared)
        with self._streams.filtering():
            # On the stream of the filters, behind the last one: from any other it could be copied too early.
            best_left.keys[...] = scores_on_gpu.to_host(mine.keys)
            if best_right is not None and theirs is not None and not diagonal:
                best_right.keys[...] = scores_on_gpu.to_host(theirs.keys)

    def pairs(self, left: PreparedTile[Tile], right: PreparedTile[Tile], threshold: np.float32, *, same: bool) -> Pairs:
        """See ``Engine.pairs``."""
        above, beside = left.prepared, right.prepared
        squared, least = _squared(above.frame), float(threshold)
        # More than half a step of float32, as in PanelBest.limits.
        least -= abs(least) * 2.0**-23 + 2.0**-149 + squared
        survivors: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]] = []
        steps = _order(above, beside, False)
        for product in self._products(above, beside, steps, lambda i, j: (None, None), same):
            up, side = product.above, product.beside
            # All of it lies on the diagonal or below: no row has a neighbor with a higher number here.
            if same and up.start >= side.start + len(side) - 1:
                continue
            with self._filtering(product):
                scaled = torch.tensor([least * up.scale * side.scale], dtype=torch.float64, device=self._device)
                limit = rounded_down(scaled).clamp_(min=LEAST)

                def chosen(
                    rows: slice, columns: slice, product: _Product = product, limit: torch.Tensor = limit
                ) -> torch.Tensor:
                    mask = product.near[rows, columns] >= limit
                    # With ``same``, row < neighbor.
                    shift = product.above.start + rows.start - product.beside.start - columns.start
                    return mask.triu_(shift + 1) if same else mask

                for i, j in self._survivors(product, chosen):
                    scores = self._scores_at(up, side, i, j)
                    enough = scores >= float(threshold)
                    rows, columns = i[enough] + (up.start - left.tile.start), j[enough] + side.start
                    survivors.append((rows.cpu().numpy(), columns.cpu().numpy(), scores[enough].cpu().numpy()))
        none = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
        row, neighbor, similarity = (np.concatenate(parts) for parts in zip(none, *survivors, strict=True))
        # Products come panel by panel, so their pairs are not in order.
        order = np.lexsort((neighbor, row))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(left)))]).astype(np.int64)
        return Pairs(offsets=offsets, neighbors=neighbor[order].astype(np.uint32), similarities=similarity[order])

    def scores(self, left: Tile, right: Tile, out: NDArray[Any]) -> None:
        """See ``Engine.scores``."""
        frame = Frame.plain(left.rows.shape[1])
        above, beside = self.prepare(left, frame).prepared, self.prepare(right, frame).prepared
        for i in range(len(above.parts)):
            for j in range(len(beside.parts)):
                up, side = self._panels.get(above, i), self._panels.get(beside, j)
                at, first = up.start - left.start, side.start - right.start
                with self._streams.filtering():
                    columns = torch.arange(len(side), device=self._device)
                    self._streams.after(up.ready)
                    self._streams.after(side.ready)
                    step = max(1, SURVIVORS // len(side))
                    for start in range(0, len(up), step):
                        rows = torch.arange(start, min(start + step, len(up)), device=self._device)
                        pairs = rows.repeat_interleave(len(side)), columns.repeat(len(rows))
                        some = self._scores_at(up, side, *pairs).cpu().numpy().reshape(len(rows), len(side))
                        out[at + start : at + start + len(rows), first : first + len(side)] = some

    def _products(
        self,
        above: Cut,
        beside: Cut,
        steps: Iterator[tuple[int, int]],
        servers: Callable[[int, int], tuple[PanelBest | None, PanelBest | None]],
        same: bool,
    ) -> Iterator[_Product]:
        """Yield the products of panels, the next one already queued when one is given."""
        before: _Product | None = None
        for buffer, (i, j) in enumerate(steps):
            up, side = self._panels.get(above, i), self._panels.get(beside, j)
            product = self._multiply(up, side, servers(i, j), buffer % 2, same)
            if before is not None:
                yield before
            before = product
        if before is not None:
            yield before

    def _multiply(
        self, above: Panel, beside: Panel, servers: tuple[PanelBest | None, PanelBest | None], buffer: int, same: bool
    ) -> _Product:
        size = len(above) * len(beside)
        with self._streams.multiplying():
            for event in (above.ready, beside.ready, self._free[buffer]):
                self._streams.after(event)
            if not self._buffers:
                rows = self._panel_rows
                self._buffers = [torch.empty(rows * rows, dtype=torch.float16, device=self._device) for _ in range(2)]
                for tensor in self._buffers:
                    self._streams.shared(tensor)
            near = self._buffers[buffer][:size].view(len(above), len(beside))
            multiply(above.cheap, beside.right(), near)
            shift = above.start - beside.start
            if same and -len(above) < shift < len(beside):
                # A row's own product would count among the k from which its limit is learned.
                near.diagonal(shift).fill_(-torch.inf)
            return _Product(above, beside, near, servers, buffer, self._streams.mark())

    def _filtering(self, product: _Product) -> "_Filtering":
        return _Filtering(self, product)

    def _serve(self, product: _Product, squared: float) -> None:
        """Give a product's rows, and its columns, who of it is among their best."""
        above, beside, near = product.above, product.beside, product.near
        mine, theirs = product.servers
        assert mine is not None
        with self._filtering(product):
            mine.seed(near, above, beside, squared)
            if theirs is not None:
                theirs.seed(near.T, beside, above, squared)

            def chosen(rows: slice, columns: slice) -> torch.Tensor:
                part = near[rows, columns]
                mask = part >= mine.limits(above, beside, squared, columns.start)[rows, None]
                if theirs is not None:
                    mask |= part >= theirs.limits(beside, above, squared, rows.start)[None, columns]
                return mask

            for i, j in self._survivors(product, chosen):
                scores = self._scores_at(above, beside, i, j)
                mine.take(i, scores, j + beside.start)
                if theirs is not None:
                    theirs.take(j, scores, i + above.start)

    def _survivors(
        self, product: _Product, chosen: Callable[[slice, slice], torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield rows and columns of those that ``chosen(rows, columns)`` marks; where they are many, some at a time."""
        rows, columns = product.near.shape
        mask = chosen(slice(0, rows), slice(0, columns))
        count = int(mask.sum())
        if count <= min(self._survivors_at_once, MOST_SURVIVING * mask.numel()):
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
            scores[start : start + step] = scores_on_gpu.pair_scores(
                above.rows[rows], beside.rows[columns], above.norms[rows], beside.norms[columns]
            )
        return scores


class _Filtering:
    """Queues among the filters, behind a product; its buffer is free again after that."""

    def __init__(self, engine: CudaEngine, product: _Product) -> None:
        self._engine, self._product = engine, product
        self._stream = engine._streams.filtering()

    def __enter__(self) -> None:
        self._stream.__enter__()
        self._engine._streams.after(self._product.ready)

    def __exit__(self, *details: Any) -> None:
        # Before the stream is left: an event is recorded where work is queued at that moment.
        self._engine._free[self._product.buffer] = self._engine._streams.mark()
        self._stream.__exit__(*details)


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
        Unavailable: There is none that can be used.
    """
    try:
        if not torch.cuda.is_available():
            raise Unavailable(f"torch {torch.__version__} finds no GPU that it can use")
        return CudaEngine("cuda", columns)
    except RuntimeError as error:
        # The driver's own words: too old for this torch, or a GPU that another process has.
        raise Unavailable(f"CUDA fails: {str(error).splitlines()[0]}") from error
