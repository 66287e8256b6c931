"""The engine for sparse rows: it touches only the columns that two rows share.

**Candidates.** y = float32(x / n) with elements of less than 2**-62 made 2**-62, so that no product
of two vanishes and a touched sum never looks untouched. With u = 2**-24 and m the most elements of
a row, ||y - x^|| <= u*(1 + 2**-20) + sqrt(m) * 2**-62, and at most m products of two rows are not
zero. So the argument of ``score`` holds with m instead
of D, since adding zeros rounds nothing: 2*u and a little from the elements, g(m, u) * (1 + u)**2
from the sum in any order, u from the score, together below g(m + 8, u) = ``float32_bound(m)``
(sqrt(m) * 2**-61 is far below the 2*u that are left). Pairs that share no column have the score 0
and are never summed: only those with the lowest numbers can be among the best, and only if fewer
than k scores are positive.

**Scores.** The definition sums all D products in an order that follows from D. Adding zeros changes
nothing, so the products of shared columns, added in that order, give the same float64
(``sparse.c``, held against NumPy at load and for each D). Self-products, for the norms, likewise.

**Memory**: a side with z elements takes 24*z bytes, and each segment 4*D for the list of its
columns, or 8 bytes for each element if D is more than ALL_LISTED. A comparison takes 20 bytes for
each row of a segment, 24 for each element of the longest row, and at most 512 KiB.
"""

import ctypes
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.arithmetic.score import (
    EXTREME,
    Norms,
    float32_bound,
    lower_bound_of_product,
    prepare,
)
from raysm.features.similarity.cluster.arithmetic.sparse_rows import SparseRows, SparseTile
from raysm.features.similarity.cluster.engines.protocol import (
    Best,
    Frame,
    Pairs,
    PreparedTile,
    SparseSide,
)
from raysm.features.similarity.cluster.kernels.build import (
    SPARSE_FOR,
    InstructionSet,
    Unavailable,
    check_sizes,
    library,
    sparse,
)

LONGEST_CHECKED = 1 << 22
"""Most columns of the dense rows with which the order of sums is checked."""

Array = ctypes.c_void_p
Integer = ctypes.c_int64


# These structures must match sparse.c field by field; their sizes are compared when it is loaded.
class RowsStructure(ctypes.Structure):
    """Rows of a side: count, number of the first, columns, and pointers to their arrays."""

    _fields_ = [(name, Integer) for name in ("count", "start", "columns")] + [
        (name, Array) for name in ("begins", "indices", "unit", "data", "norms")
    ]


class ColumnsStructure(ctypes.Structure):
    """Columns, where the postings of each begin, and the postings: a row and its element."""

    _fields_ = [("count", Integer), *((name, Array) for name in ("names", "first", "postings"))]


class BestStructure(ctypes.Structure):
    _fields_ = [
        ("k", Integer),
        *((name, Array) for name in ("keys", "lower_bounds", "least")),
        ("bound", ctypes.c_double),
    ]


ROWS, COLUMNS, BEST = (
    ctypes.POINTER(structure) for structure in (RowsStructure, ColumnsStructure, BestStructure)
)

FUNCTIONS: dict[str, list[Any]] = {
    "sparse_check": [ROWS],
    "sparse_columns": [ROWS, Array, Array],
    "sparse_squares": [ROWS, Array],
    "sparse_topk": [ROWS, ROWS, COLUMNS, BEST, BEST, Array, ctypes.c_int],
    "sparse_pairs": [
        ROWS,
        ROWS,
        COLUMNS,
        Integer,
        ctypes.c_float,
        ctypes.c_float,
        Integer,
        Array,
        Array,
        Array,
    ],
    "sparse_scores": [ROWS, ROWS, COLUMNS, Integer, Integer, Array],
}
"""All return an int64, which is negative if the function failed."""

WRONG_COLUMNS = -2


def _check_result(result: int, function: Any, arguments: tuple[Any, ...]) -> int:
    if result == WRONG_COLUMNS:
        raise InvalidInput(
            "sparse rows have columns that do not rise from 0 to at most "
            f"{arguments[0].columns - 1}: "
            "their file has changed since it was checked, or is damaged"
        )
    if result < 0:
        raise MemoryError(f"{function.__name__}: no memory")
    return result


@functools.cache
def _load(candidates: tuple[InstructionSet, ...]) -> Any:
    reason = Unavailable("no instructions")
    for instructions in candidates:
        try:
            functions = library(sparse(instructions))
            break
        except Unavailable as error:
            # Report the last reason: the last library has the fewest requirements.
            reason = error
    else:
        raise reason
    check_sizes(functions, RowsStructure, ColumnsStructure, BestStructure)
    for name, arguments in FUNCTIONS.items():
        function = getattr(functions, name)
        function.argtypes = arguments
        function.restype = Integer
        function.errcheck = _check_result
    return functions


def sparse_library(columns: int, candidates: tuple[InstructionSet, ...] = SPARSE_FOR) -> Any:
    """Return the compiled ``sparse.c``.

    Raise ``Unavailable`` if it sums in another order than NumPy.
    """
    functions = _load(candidates)
    if not sums_as_numpy(functions, columns):
        raise Unavailable(
            f"NumPy {np.__version__} sums rows of {columns} elements in another order"
        )
    return functions


def address(array: NDArray[Any]) -> int:
    """Return the address of a contiguous array, which must outlive the use of the address."""
    assert array.flags.c_contiguous
    return int(array.ctypes.data)


def describe_rows(
    rows: SparseRows,
    data: NDArray[np.float64],
    norms: NDArray[np.float64],
    unit: NDArray[np.float32],
    start: int,
) -> tuple[RowsStructure, tuple[NDArray[Any], ...]]:
    """Describe rows; return the structure, and the arrays that must live as long as it does.

    ``unit`` are the elements of ``data``, float64, divided by the rows' norms, as float32.
    """
    arrays = (rows.begins, np.ascontiguousarray(rows.indices), unit, data, norms)
    return RowsStructure(
        len(rows), start, rows.columns, *(address(array) for array in arrays)
    ), arrays


def describe_best(
    best: Best, rows: slice, bound: float
) -> tuple[BestStructure, tuple[NDArray[Any], ...]]:
    keys = best.keys[rows]
    lower_bounds = best.lower_bounds[rows]
    least = np.empty(len(lower_bounds), dtype=np.float32)
    described = BestStructure(
        keys.shape[1], address(keys), address(lower_bounds), address(least), bound
    )
    return described, (keys, lower_bounds, least)


@functools.lru_cache(maxsize=16)
def sums_as_numpy(library: Any, columns: int) -> bool:
    # For very long rows, check the longest that fits into memory: sums of both are halved in the
    # same way.
    length = columns if columns <= LONGEST_CHECKED else LONGEST_CHECKED + columns % 128
    rng = np.random.default_rng(length)
    for share in (1.0, 0.1):
        # With elements of very different sizes, sums in another order round to other numbers.
        rows = rng.standard_normal((2, length)) * np.exp2(rng.integers(-20, 20, (2, length)))
        rows *= rng.random((2, length)) < share
        sparse = SparseRows(
            np.arange(3) * length, np.tile(np.arange(length), 2), rows.ravel(), length
        ).canonical()
        if not np.array_equal(np.sqrt(sums_of_squares(library, sparse)), prepare(rows).norms):
            return False
    return True


def sums_of_squares(library: Any, rows: SparseRows) -> NDArray[np.float64]:
    """Return each row's sum of squares, added in the order of the definition."""
    squares = np.zeros(len(rows))
    described, _kept = describe_rows(
        rows, rows.data.astype(np.float64), squares, np.empty(0, dtype=np.float32), 0
    )
    library.sparse_squares(described, address(squares))
    return squares


ALL_LISTED = 1 << 22
"""Up to so many columns, a segment lists all of them, in 16 MiB. If there are more, it lists those
that its rows have, and a comparison looks them up by bisection."""

SEGMENT_ROWS = 12_000
"""Approximate number of right rows that are summed at a time: their sums just fit a core's
first-level cache."""

OUTPUT_ENTRIES = 1 << 22
SMALLEST = np.float32(2.0**-62)

PairColumns: TypeAlias = tuple[NDArray[Any], ...]
"""Rows, counted from the side's first, with neighbors and scores; one entry for each pair."""


@dataclass(frozen=True, slots=True)
class _Segment:
    start: int
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


class SparseEngine:
    """Sums over shared columns, in float32; for tiles whose rows are ``SparseRows``."""

    name = "float32 sparse"

    def __init__(
        self,
        columns: int,
        *,
        segment_rows: int = SEGMENT_ROWS,
        all_listed: int = ALL_LISTED,
        instructions: tuple[InstructionSet, ...] = SPARSE_FOR,
    ) -> None:
        """Load ``sparse.c``, compiled for the first ``instructions`` of this machine.

        Otherwise raise ``Unavailable``.
        """
        self._segment_rows = segment_rows
        self._lists_all = columns <= all_listed
        self._library = sparse_library(columns, instructions)

    def prepare(self, tile: SparseTile, frame: Frame) -> SparseSide:
        rows = tile.rows
        pieces = -(-len(rows) // self._segment_rows)
        if self._lists_all:
            # Each segment lists all D columns. With fewer segments, the lists take at most 32 bytes
            # for each element.
            pieces = max(1, min(pieces, 8 * len(rows.own().indices) // rows.columns))
        cuts = np.linspace(0, len(rows), pieces + 1).astype(np.int64).tolist()
        segments = [
            self._segment(rows[start:stop].own(), tile.norms[start:stop], start, tile.start)
            for start, stop in zip(cuts, cuts[1:], strict=False)
        ]
        prepared = _Prepared(segments, int(rows.counts.max(initial=0)))
        nbytes = sum(array.nbytes for segment in segments for array in segment.arrays)
        return PreparedTile(tile=tile, prepared=prepared, nbytes=nbytes)

    def _segment(
        self, rows: SparseRows, norms: NDArray[np.float64], start: int, first_row: int
    ) -> _Segment:
        # sparse.c computes scores from float64, as the definition does for elements of any type.
        data = rows.data.astype(np.float64)
        # A row without elements has the norm 0; skip its division, about which NumPy would warn.
        inverse = np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms != 0)
        # Round once, from float64, as the bound assumes; elements that underflow become SMALLEST
        # below.
        with np.errstate(under="ignore"):
            unit = (data * np.repeat(inverse, rows.counts)).astype(np.float32)
        # Now no product of two elements vanishes, and no touched sum looks untouched.
        small = np.abs(unit) < SMALLEST
        unit[small] = np.copysign(SMALLEST, unit[small])
        described, arrays = describe_rows(
            rows, data, np.ascontiguousarray(norms), unit, start + first_row
        )
        columns, lists = self._columns(described, rows, unit)
        return _Segment(start, described, columns, lists[0], (*arrays, *lists))

    def _columns(
        self, described: RowsStructure, rows: SparseRows, unit: NDArray[np.float32]
    ) -> tuple[ColumnsStructure, tuple[NDArray[Any], ...]]:
        """List the rows of each column; return the structure and its arrays, the starts first."""
        postings = np.empty(len(unit), dtype=np.dtype([("row", np.int32), ("value", np.float32)]))
        if self._lists_all:
            first = np.empty(rows.columns + 1, dtype=np.int32)
            self._library.sparse_columns(described, address(first), address(postings))
            return ColumnsStructure(rows.columns, None, address(first), address(postings)), (
                first,
                postings,
            )
        self._library.sparse_check(described)
        # Stable, so that the rows of each column rise.
        order = np.argsort(rows.indices, kind="stable")
        postings["row"] = np.repeat(np.arange(len(rows), dtype=np.int32), rows.counts)[order]
        postings["value"] = unit[order]
        names, starts = np.unique(rows.indices[order], return_index=True)
        first = np.append(starts, len(unit)).astype(np.int32)
        columns = ColumnsStructure(len(names), address(names), address(first), address(postings))
        return columns, (first, postings, names)

    def topk(
        self,
        left: SparseSide,
        right: SparseSide,
        best_left: Best,
        best_right: Best | None,
        *,
        same: bool,
    ) -> None:
        # Two rows share at most as many columns as the row with fewer elements has.
        bound = float32_bound(min(left.prepared.most, right.prepared.most))
        once = best_right is best_left
        for i, above in enumerate(left.prepared.segments):
            # A tile with itself compares each two segments once: no pair may be offered to a Best
            # twice.
            for beside in right.prepared.segments[i if once else 0 :]:
                mine, arrays = describe_best(best_left, above.numbers, bound)
                theirs, others = (
                    (None, ())
                    if best_right is None
                    else describe_best(best_right, beside.numbers, bound)
                )
                # A copy, which the kernel advances past finished rows; it needs ``first`` for the
                # ends of columns.
                cursor = beside.first.copy() if once and beside.start == above.start else None
                self._library.sparse_topk(
                    above.rows,
                    beside.rows,
                    beside.columns,
                    mine,
                    # The same structure: the kernel recognizes a comparison of rows with themselves
                    # by its address.
                    theirs if cursor is None else mine,
                    None if cursor is None else address(cursor),
                    same,
                )
                # Keep these arrays alive until here, because the structures point into them.
                del arrays, others

    def pairs(
        self, left: SparseSide, right: SparseSide, threshold: np.float32, *, same: bool
    ) -> Pairs:
        # Up to 0, pairs that share no column are among the answers.
        parts = (self._pairs if threshold > 0 else self._all_pairs)(left, right, threshold)
        if same:
            upper = ((part, part[0] + left.tile.start < part[1]) for part in parts)
            parts = (tuple(column[some] for column in part) for part, some in upper)
        return Pairs.of(parts, len(left))

    def _pairs(
        self, left: SparseSide, right: SparseSide, threshold: np.float32
    ) -> Iterator[PairColumns]:
        bound = float32_bound(min(left.prepared.most, right.prepared.most))
        cut = float(lower_bound_of_product(np.array([threshold], dtype=np.float32), bound)[0])
        for above in left.prepared.segments:
            for beside in right.prepared.segments:
                # The kernel begins a row only if all its pairs would fit, so it needs room for at
                # least one row.
                capacity = max(int(beside.rows.count), OUTPUT_ENTRIES)
                neighbors = np.empty(capacity, np.uint32)
                similarities = np.empty(capacity, np.float32)
                done = 0
                while done < above.rows.count:
                    counts = np.zeros(above.rows.count, dtype=np.int64)
                    room = capacity, address(counts), address(neighbors), address(similarities)
                    done = self._library.sparse_pairs(
                        above.rows, beside.rows, beside.columns, done, cut, threshold, *room
                    )
                    size = int(counts.sum())
                    rows = np.repeat(np.arange(above.start, above.stop), counts)
                    # Copies, because the next call overwrites the same memory.
                    yield rows, neighbors[:size].copy(), similarities[:size].copy()

    def _all_pairs(
        self, left: SparseSide, right: SparseSide, threshold: np.float32
    ) -> Iterator[PairColumns]:
        for i, j, scores in self._scores(left, right):
            rows, columns = np.nonzero(scores >= threshold)
            yield (
                rows + i,
                (columns + j + right.tile.start).astype(np.uint32),
                scores[rows, columns],
            )

    def scores(self, left: SparseTile, right: SparseTile, out: NDArray[Any]) -> None:
        plain = Frame.plain(left.rows.shape[1])
        first = self.prepare(left, plain)
        second = first if right is left else self.prepare(right, plain)
        for i, j, scores in self._scores(first, second):
            out[i : i + len(scores), j : j + scores.shape[1]] = scores

    def _scores(
        self, left: SparseSide, right: SparseSide
    ) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
        for above in left.prepared.segments:
            for beside in right.prepared.segments:
                step = max(1, OUTPUT_ENTRIES // max(1, int(beside.rows.count)))
                for start in range(0, int(above.rows.count), step):
                    stop = min(start + step, int(above.rows.count))
                    out = np.empty((stop - start, beside.rows.count), dtype=np.float32)
                    self._library.sparse_scores(
                        above.rows, beside.rows, beside.columns, start, stop, address(out)
                    )
                    yield above.start + start, beside.start, out


def sparse_norms(rows: SparseRows) -> Norms:
    """Compute from the elements what ``score.prepare`` computes for dense rows."""
    library = sparse_library(rows.columns)
    own = rows.own()
    exponents = _exponents(own) if own.dtype == np.float64 else np.zeros(len(own), dtype=np.int16)
    squares = sums_of_squares(library, own.scaled(exponents))
    bad_rows = ~np.isfinite(squares)
    return Norms(
        norms=np.sqrt(squares),
        exponents=exponents,
        first_bad=int(np.argmax(bad_rows)) if bad_rows.any() else None,
    )


def _exponents(rows: SparseRows) -> NDArray[np.int16]:
    largest = np.zeros(len(rows))
    # Leave out rows without elements, for which reduceat would take the first element of the next
    # row.
    some = np.flatnonzero(rows.counts)
    if len(some):
        largest[some] = np.maximum.reduceat(np.abs(rows.data), rows.begins[some])
    binary = np.frexp(np.where(np.isfinite(largest) & (largest != 0), largest, 1.0))[1]
    return np.where(np.abs(binary) > EXTREME, binary, 0).astype(np.int16)
