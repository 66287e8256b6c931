"""The engine for sparse rows: it touches only the columns that two rows share.

**Candidates.** y = float32(x / n) with elements of less than 2**-62 made 2**-62, so that no product of two vanishes and
a touched sum never looks untouched. With u = 2**-24 and m the most elements of any row, ||y - x^|| <= u*(1 + 2**-20) +
sqrt(m) * 2**-62, and of a row's products with another at most m are not zero. So the argument of ``products`` holds
with m in the place of D, since adding zeros rounds nothing: 2*u and a little from the elements, g(m, u) * (1 + u)**2
from the sum in any order, u from the score, together below g(m + 8, u) = ``float32_bound(m)`` (sqrt(m) * 2**-61 is far
below the 2*u that are left). Pairs that share no column have the score 0 and are never summed: of those, only the
lowest numbers can be among the best, and only where fewer than k scores are positive.

**Scores.** The definition sums all D products in an order that follows from D. Adding zeros changes nothing, so the
products of shared columns, added in that order, give the same float64 (``sparse.c``, held against NumPy at load and
for each D). Self-products, for the norms, likewise.

**Memory** of a side with z elements: 24*z bytes, and 4*D for each segment; of a comparison 20 bytes a row of a segment.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidRequest
from raysm.workloads.similarity.arithmetic.products import Tile, below, float32_bound
from raysm.workloads.similarity.arithmetic.score import EXTREME, Norms, prepare
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows, SparseTile
from raysm.workloads.similarity.engines.plain import PlainEngine
from raysm.workloads.similarity.engines.protocol import Best, Frame, Pairs, PreparedTile
from raysm.workloads.similarity.engines.sparse_library import (
    ColumnsStructure,
    RowsStructure,
    address,
    described_best,
    described_rows,
    sparse_library,
    sums_as_numpy,
    sums_of_squares,
)
from raysm.workloads.similarity.kernels.instructions import InstructionSet
from raysm.workloads.similarity.kernels.recipes import SPARSE_FOR

__all__ = [
    "SparseEngine",
    "dense_tiles",
    "pairs_densely",
    "scores_densely",
    "sparse_engine",
    "sparse_norms",
    "topk_densely",
]

DENSE_BYTES = 32 << 20
"""Most of one tile that is made dense, as float32."""

DENSE_ROWS = 2048
"""Most rows of it."""


def dense_tiles(tile: SparseTile) -> Iterator[Tile]:
    """Cut a tile of sparse rows into tiles of dense ones, one at a time."""
    rows = tile.rows
    step = max(1, min(DENSE_ROWS, DENSE_BYTES // (4 * rows.columns)))
    for start in range(0, len(rows), step):
        norms = tile.norms[start : start + step]
        yield Tile(start=tile.start + start, rows=rows[start : start + step].dense(), norms=norms)


def topk_densely(left: SparseTile, right: SparseTile, best_left: Best, best_right: Best | None, same: bool) -> None:
    """See ``Engine.topk``."""
    plain, frame = PlainEngine(), Frame.plain(left.rows.shape[1])
    once = best_right is best_left
    for above in dense_tiles(left):
        mine = _part(best_left, above, left)
        first = plain.prepare(above, frame)
        if once:
            plain.topk(first, first, mine, mine, same=same)
        for beside in dense_tiles(right):
            # Each two parts once, as no pair may be offered to a Best twice.
            if once and beside.start <= above.start:
                continue
            theirs = None if best_right is None else _part(best_right, beside, right)
            # Prepared again for each part above: kept, the parts would be the whole tile made dense.
            plain.topk(first, plain.prepare(beside, frame), mine, theirs, same=same)


def _part(best: Best, part: Tile, whole: SparseTile) -> Best:
    some = slice(part.start - whole.start, part.start - whole.start + len(part))
    # Views: what is found for a part is written into the whole.
    return Best(best.keys[some], best.lower_bounds[some])


def pairs_densely(
    left: SparseTile, right: SparseTile, threshold: np.float32, same: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]]:
    """Yield rows, counted from the tile's first, with neighbors and scores, see ``Engine.pairs``."""
    plain, frame = PlainEngine(), Frame.plain(left.rows.shape[1])
    for above in dense_tiles(left):
        first = plain.prepare(above, frame)
        for beside in dense_tiles(right):
            pairs = plain.pairs(first, plain.prepare(beside, frame), threshold, same=same)
            rows = np.repeat(np.arange(len(above)) + above.start - left.start, np.diff(pairs.offsets))
            yield rows, pairs.neighbors, pairs.similarities


def scores_densely(left: SparseTile, right: SparseTile) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
    """Yield scores[n, m] with the row and the column, counted from the tiles' first, at which they begin."""
    plain = PlainEngine()
    for above in dense_tiles(left):
        for beside in dense_tiles(right):
            out = np.empty((len(above), len(beside)), dtype=np.float32)
            plain.scores(above, beside, out)
            yield above.start - left.start, beside.start - right.start, out


SEGMENT_ROWS = 12_000
"""About so many right rows are summed at a time: their sums just fit a core's first-level cache."""

OUTPUT_ENTRIES = 1 << 22
"""Scores, or pairs, that one call hands back."""

COMPILED = "float32 sparse"
"""Name of the engine where it is compiled."""

SMALLEST = np.float32(2.0**-62)

PairColumns: TypeAlias = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]
"""Rows, counted from the side's first, with neighbors and scores; one entry for each pair."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """Some rows of a side: the arrays live as long as the structures that point to them."""

    start: int
    """Number of its first row in the side."""
    rows: RowsStructure
    columns: ColumnsStructure
    first: NDArray[np.int32]
    arrays: tuple[NDArray[Any], ...]

    @property
    def stop(self) -> int:
        return self.start + int(self.rows.count)

    @property
    def numbers(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class _Prepared:
    segments: list[_Segment]
    most: int
    """Elements of the fullest row."""


class SparseEngine:
    """Sums over shared columns, in float32; for tiles whose rows are ``SparseRows``.

    On a machine that cannot compile ``sparse.c``, it makes the rows dense, a few at a time, for another engine.
    """

    def __init__(
        self,
        *,
        compiled: bool = True,
        segment_rows: int = SEGMENT_ROWS,
        instructions: tuple[InstructionSet, ...] = SPARSE_FOR,
    ) -> None:
        """Take the compiled ``sparse.c``, or do without it.

        Args:
            compiled: Whether to take it.
            segment_rows: About so many right rows are summed at a time.
            instructions: What it may be compiled for; the first that this machine has is taken.
        """
        self._segment_rows = segment_rows
        library, why = sparse_library(instructions) if compiled else (None, "")
        self._library: Any = library
        self.name = COMPILED if library is not None else f"{PlainEngine(why).name}, sparse rows made dense"

    def prepare(self, tile: SparseTile, frame: Frame) -> PreparedTile[SparseTile]:
        """Divide the rows by their norms, and list for each column who has it."""
        rows = tile.rows
        if self._library is None or not sums_as_numpy(self._library, rows.columns):
            return PreparedTile(tile=tile, prepared=None, nbytes=0)
        # Each segment lists all D columns: so many segments at most that the lists take 32 bytes an element.
        pieces = max(1, min(-(-len(rows) // self._segment_rows), 8 * len(rows.own().indices) // rows.columns))
        cuts = np.linspace(0, len(rows), pieces + 1).astype(np.int64).tolist()
        segments = [
            self._segment(rows[start:stop].own(), tile.norms[start:stop], start, tile.start)
            for start, stop in zip(cuts, cuts[1:], strict=False)
        ]
        prepared = _Prepared(segments, int(rows.counts.max(initial=0)))
        nbytes = sum(array.nbytes for segment in segments for array in segment.arrays)
        return PreparedTile(tile=tile, prepared=prepared, nbytes=nbytes)

    def _segment(self, rows: SparseRows, norms: NDArray[np.float64], start: int, first_row: int) -> _Segment:
        # Whatever the file's type is: sparse.c scores float64, which is what the definition takes of each of them.
        data = rows.data.astype(np.float64)
        # A norm is 0 where a row has no elements: there is nothing to divide, and NumPy would only warn.
        inverse = np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms != 0)
        # Rounded once, from float64, as the bound has it; what underflows on the way is made SMALLEST below.
        with np.errstate(under="ignore"):
            unit = (data * np.repeat(inverse, rows.counts)).astype(np.float32)
        # So that no product of two vanishes, and no touched sum looks untouched.
        small = np.abs(unit) < SMALLEST
        unit[small] = np.copysign(SMALLEST, unit[small])
        described, arrays = described_rows(rows, data, np.ascontiguousarray(norms), unit, start + first_row)
        first = np.empty(rows.columns + 1, dtype=np.int32)
        postings = np.empty(len(data), dtype=np.dtype([("row", np.int32), ("value", np.float32)]))
        self._library.sparse_columns(described, address(first), address(postings))
        columns = ColumnsStructure(address(first), address(postings))
        return _Segment(start, described, columns, first, (*arrays, first, postings))

    def topk(
        self,
        left: PreparedTile[SparseTile],
        right: PreparedTile[SparseTile],
        best_left: Best,
        best_right: Best | None,
        *,
        same: bool,
    ) -> None:
        """See ``Engine.topk``."""
        if left.prepared is None or right.prepared is None:
            topk_densely(left.tile, right.tile, best_left, best_right, same)
            return
        # No two rows share more columns than the emptier of them has.
        bound = float32_bound(min(left.prepared.most, right.prepared.most))
        once = best_right is best_left
        for i, above in enumerate(left.prepared.segments):
            # Of a tile with itself, each two segments once: no pair may be offered to a Best twice.
            for beside in right.prepared.segments[i if once else 0 :]:
                mine, arrays = described_best(best_left, above.numbers, bound)
                theirs, others = (None, ()) if best_right is None else described_best(best_right, beside.numbers, bound)
                # A copy, which the kernel moves past the rows that are done: ``first`` itself says where columns end.
                cursor = beside.first.copy() if once and beside.start == above.start else None
                self._library.sparse_topk(
                    above.rows,
                    beside.rows,
                    beside.columns,
                    mine,
                    # The very structure: by its address the kernel knows both sides for one, and offers no pair twice.
                    theirs if cursor is None else mine,
                    None if cursor is None else address(cursor),
                    same,
                )
                # The structures point into these arrays, which had to live until here.
                del arrays, others

    def pairs(
        self, left: PreparedTile[SparseTile], right: PreparedTile[SparseTile], threshold: np.float32, *, same: bool
    ) -> Pairs:
        """See ``Engine.pairs``."""
        if left.prepared is None or right.prepared is None:
            parts: list[PairColumns] = list(pairs_densely(left.tile, right.tile, threshold, same))
        elif threshold > 0:
            parts = list(self._pairs(left, right, threshold))
        else:
            # Pairs that share no column are among the answers.
            parts = list(self._all_pairs(left, right, threshold))
        rows, neighbors, similarities = (
            np.concatenate([part[column] for part in parts] or [np.empty(0, dtype=kind)])
            for column, kind in enumerate((np.int64, np.uint32, np.float32))
        )
        if same:
            upper = rows + left.tile.start < neighbors
            rows, neighbors, similarities = rows[upper], neighbors[upper], similarities[upper]
        # Segments come one after the other, so their pairs are not in order.
        order = np.lexsort((neighbors, rows))
        offsets = np.searchsorted(rows[order], np.arange(len(left) + 1)).astype(np.int64)
        return Pairs(offsets=offsets, neighbors=neighbors[order], similarities=similarities[order])

    def _pairs(
        self, left: PreparedTile[SparseTile], right: PreparedTile[SparseTile], threshold: np.float32
    ) -> Iterator[PairColumns]:
        bound = float32_bound(min(left.prepared.most, right.prepared.most))
        cut = float(below(np.array([threshold], dtype=np.float32), bound)[0])
        for above in left.prepared.segments:
            for beside in right.prepared.segments:
                # The kernel begins no row that might not fit: with less room than this it would never get on.
                capacity = max(int(beside.rows.count), OUTPUT_ENTRIES)
                neighbors, similarities = np.empty(capacity, np.uint32), np.empty(capacity, np.float32)
                done = 0
                while done < above.rows.count:
                    counts = np.zeros(above.rows.count, dtype=np.int64)
                    room = capacity, address(counts), address(neighbors), address(similarities)
                    done = self._library.sparse_pairs(
                        above.rows, beside.rows, beside.columns, done, cut, threshold, *room
                    )
                    size = int(counts.sum())
                    rows = np.repeat(np.arange(above.start, above.stop), counts)
                    # Copies: the next call fills the same memory, while these are kept until all are there.
                    yield rows, neighbors[:size].copy(), similarities[:size].copy()

    def _all_pairs(
        self, left: PreparedTile[SparseTile], right: PreparedTile[SparseTile], threshold: np.float32
    ) -> Iterator[PairColumns]:
        for i, j, scores in self._scores(left, right):
            rows, columns = np.nonzero(scores >= threshold)
            yield rows + i, (columns + j + right.tile.start).astype(np.uint32), scores[rows, columns]

    def scores(self, left: SparseTile, right: SparseTile, out: NDArray[Any]) -> None:
        """See ``Engine.scores``."""
        plain = Frame.plain(left.rows.shape[1])
        first = self.prepare(left, plain)
        second = first if right is left else self.prepare(right, plain)
        parts = scores_densely(left, right) if first.prepared is None else self._scores(first, second)
        for i, j, scores in parts:
            out[i : i + len(scores), j : j + scores.shape[1]] = scores

    def _scores(
        self, left: PreparedTile[SparseTile], right: PreparedTile[SparseTile]
    ) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
        for above in left.prepared.segments:
            for beside in right.prepared.segments:
                step = max(1, OUTPUT_ENTRIES // max(1, int(beside.rows.count)))
                for start in range(0, int(above.rows.count), step):
                    stop = min(start + step, int(above.rows.count))
                    out = np.empty((stop - start, beside.rows.count), dtype=np.float32)
                    self._library.sparse_scores(above.rows, beside.rows, beside.columns, start, stop, address(out))
                    yield above.start + start, beside.start, out


def sparse_engine(forced: str | None = None) -> SparseEngine:
    """Return the engine for sparse rows.

    Args:
        forced: A word of its name, as ``sparse``, or ``NumPy`` for the one that needs no compiler.

    Raises:
        InvalidRequest: No engine of this machine has that word in its name.
    """
    engines = [SparseEngine(), SparseEngine(compiled=False)]
    chosen = next((engine for engine in engines if forced is None or forced.lower() in engine.name.lower()), None)
    if chosen is None:
        names = " and ".join(repr(engine.name) for engine in engines)
        raise InvalidRequest(f"no engine for sparse rows is called {forced!r}; this machine has {names}")
    return chosen


def sparse_norms(rows: SparseRows) -> Norms:
    """Compute what ``score.prepare`` computes of the same rows made dense, from their elements alone."""
    library, _ = sparse_library()
    if library is None or not sums_as_numpy(library, rows.columns):
        parts = [prepare(tile.rows) for tile in dense_tiles(SparseTile(start=0, rows=rows, norms=np.empty(0)))]
        starts = np.cumsum([0, *(len(part.norms) for part in parts)])
        bad = [int(at) + part.first_bad for at, part in zip(starts, parts, strict=False) if part.first_bad is not None]
        return Norms(
            norms=np.concatenate([part.norms for part in parts]),
            exponents=np.concatenate([part.exponents for part in parts]),
            integral=all(part.integral for part in parts),
            first_bad=bad[0] if bad else None,
        )
    own = rows.own()
    exponents = _exponents(own) if own.dtype == np.float64 else np.zeros(len(own), dtype=np.int16)
    squares = sums_of_squares(library, own.scaled(exponents))
    bad_rows = ~np.isfinite(squares)
    integral = own.dtype.kind in "iub" or bool(
        not bad_rows.any() and not exponents.any() and np.all(np.rint(own.data) == own.data)
    )
    return Norms(
        norms=np.sqrt(squares),
        exponents=exponents,
        integral=integral,
        first_bad=int(np.argmax(bad_rows)) if bad_rows.any() else None,
    )


def _exponents(rows: SparseRows) -> NDArray[np.int16]:
    largest = np.zeros(len(rows))
    # Of a row without elements, reduceat would take the first element of the next one.
    some = np.flatnonzero(rows.counts)
    if len(some):
        largest[some] = np.maximum.reduceat(np.abs(rows.data), rows.begins[some])
    binary = np.frexp(np.where(np.isfinite(largest) & (largest != 0), largest, 1.0))[1]
    return np.where(np.abs(binary) > EXTREME, binary, 0).astype(np.int16)
