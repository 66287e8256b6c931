"""The engines made of ``dense.c``: cheap products with a filter, and scores equal to NumPy's.

**Memory** of a side of n rows, beside the rows: 2 n D' bytes times the element's size (rows are
laid out once as left and once as right side; D' is D rounded up to whole 4 bytes, with NEON to
whole 16, with AMX to whole 64, n to whole panels of up to 48 rows), n D' more for int8 (the rest of
each row, for a closer look), and 32 n. It is twice as much if there are tight clusters, because
rows are then also laid out about their clusters' centres. A call of ``topk`` takes 48 + 8 k + 8
min(64, max(16, 4 k)) bytes for each row of both sides, 32 more with tight clusters. A call of
``pairs`` takes 32 bytes for each row of both sides, twice as much with tight clusters, and the
pairs.
"""

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.features.similarity.cluster.arithmetic.score import Rows, Tile, pair_scores
from raysm.features.similarity.cluster.engines import bounds
from raysm.features.similarity.cluster.engines.protocol import (
    Best,
    DenseSide,
    Frame,
    Pairs,
    PreparedTile,
)
from raysm.features.similarity.cluster.kernels.build import (
    InstructionSet,
    Unavailable,
    check_sizes,
    dense,
    library,
)

ELEMENTS = {8: "int8", 16: "int16", 32: "float32"}
LENGTHS = (*range(1, 33), *range(33, 301, 13), 1000, 1023, 4097)
"""Row lengths at which the kernels' scores must equal NumPy's before they are used."""


TWO_TYPES = -2
"""The kernels return this if the rows of two sides are of different types."""

LINE = 16
ARRAYS = (
    "cheap",
    "finer",
    "panels",
    "first",
    "scale",
    "error",
    "length",
    "shift",
    "finer_error",
    "middle",
)


# These structures must match the kernels' sides.h, keys.h and pairs.h field by field. Their sizes
# are compared when a library is loaded.
class _Form(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_void_p) for name in ("centres", "squares", "radii", "places", *ARRAYS)
    ]


class _Side(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("d", ctypes.c_int64),
        ("start", ctypes.c_int64),
        ("norms", ctypes.c_void_p),
        ("groups", ctypes.c_int64),
        ("slop", ctypes.c_double),
        ("overall", _Form),
        ("local", _Form),
    ]


class _Best(ctypes.Structure):
    _fields_ = [("keys", ctypes.c_void_p), ("lower_bounds", ctypes.c_void_p), ("k", ctypes.c_int64)]


class _PairList(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int64),
        ("room", ctypes.c_int64),
        ("i", ctypes.POINTER(ctypes.c_uint32)),
        ("j", ctypes.POINTER(ctypes.c_uint32)),
        ("scores", ctypes.POINTER(ctypes.c_float)),
    ]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A structure, and the arrays that it points to, kept alive."""

    structure: _Side
    arrays: tuple[NDArray[Any], ...]
    errors: NDArray[np.float32]
    """errors[n]: the largest distance of each row's cheap form from the row over its norm."""
    places: int


@functools.cache
def _library(element: int, instructions: InstructionSet) -> ctypes.CDLL:
    functions = library(dense(element, instructions))
    check_sizes(functions, _Form, _Side, _Best, _PairList)
    side = ctypes.POINTER(_Side)
    best = ctypes.POINTER(_Best)
    number = ctypes.c_int64
    real = ctypes.c_double
    pointer = ctypes.c_void_p
    functions.pack_rows.restype = functions.panel_columns.restype = functions.group_step.restype = (
        number
    )
    functions.pair_scores.argtypes = [side, side, pointer, pointer, number, pointer]
    functions.all_scores.argtypes = [side, side, pointer, number]
    functions.prepare.argtypes = [side, number, pointer, real, real]
    functions.topk.argtypes = [side, side, best, best, number, ctypes.c_int, ctypes.c_int]
    # int64, because a tile may have more scored pairs than a C int holds.
    functions.topk.restype = functions.pairs.restype = number
    functions.pairs.argtypes = [
        side,
        side,
        ctypes.c_float,
        number,
        ctypes.c_int,
        ctypes.POINTER(_PairList),
    ]
    functions.free_pairs.argtypes = [ctypes.POINTER(_PairList)]
    functions.free_pairs.restype = None
    return functions


def kind_name(element: int, instructions: InstructionSet) -> str:
    return f"{ELEMENTS[element]} {instructions.name}"


class CompiledEngine:
    """int8, int16 or float32 products of AMX, AVX-512, AVX2 or NEON, decided by ``bounds``."""

    def __init__(
        self, element: int, instructions: InstructionSet, columns: int, *, mixed: bool
    ) -> None:
        """Load kernels for elements of 8, 16 or 32 bits, if their scores are NumPy's.

        Otherwise raise ``Unavailable``. ``mixed`` multiplies all rows by one orthogonal matrix
        first: integers then represent rows with large elements better.
        """
        # Rows are padded to whole groups of 4 bytes, int8 rows by up to three elements.
        if columns > bounds.MAX_COLUMNS or (
            element < 32 and bounds.largest_integer(columns + 3, element) < 127
        ):
            raise Unavailable(f"{ELEMENTS[element]} sums of {columns} products may overflow")
        self.name = kind_name(element, instructions) + (" mixed" if mixed else "")
        self.scored = 0
        self._library = _library(element, instructions)
        # Two calls, because results are cached by lengths: the second is computed only once in a
        # process.
        _check(self._library, (columns,))
        _check(self._library, LENGTHS)
        self._element = element
        self._columns = columns
        self._mixed = mixed

    def prepare(self, tile: Tile, frame: Frame) -> DenseSide:
        structure, rows, norms = _structure(tile)
        structure.groups = _round_up(
            -(-tile.rows.shape[1] * self._element // 32), self._library.group_step()
        )
        clusters = frame.clusters
        centres = (
            frame.centre[None]
            if clusters is None
            else np.concatenate([frame.centre[None], clusters.centres])
        )
        structure.slop = max(bounds.slop(self._columns, centre) for centre in centres)
        arrays = self._form(structure, structure.overall, centres[:1])
        errors = arrays[ARRAYS.index("error")]
        places = 0
        if clusters is not None:
            places = len(clusters)
            structure.local.radii = clusters.radii.ctypes.data
            own = clusters.nearest(tile, frame.centre)
            structure.local.places = own.ctypes.data
            arrays += (*self._form(structure, structure.local, centres[1:]), own, clusters.radii)
        self._fill(structure, places)
        # A view of the tile's rows takes no memory of its own.
        arrays += () if np.shares_memory(rows, tile.rows) else (rows,)
        prepared = _Prepared(structure, (*arrays, rows, norms), errors, places)
        return PreparedTile(
            tile=tile, prepared=prepared, nbytes=sum(array.nbytes for array in arrays)
        )

    def _form(
        self, side: _Side, form: _Form, centres: NDArray[np.float64]
    ) -> tuple[NDArray[Any], ...]:
        """Allocate a form for the side's rows about these centres.

        Return the arrays that it points to.
        """
        n = side.n
        size = side.groups
        cheap = _aligned(_round_up(n, self._library.pack_rows()), size)
        finer = _aligned(n, size) if self._element == 8 else np.empty(0, dtype=np.int32)
        panels = _aligned(_round_up(n, self._library.panel_columns()), size)
        # Zeros, because the kernels do not fill in rows without a place.
        arrays = (
            cheap,
            finer,
            panels,
            np.zeros(n, np.int32),
            *np.zeros((5, n), np.float32),
            np.zeros(n),
        )
        for name, array in zip(ARRAYS, arrays, strict=True):
            setattr(form, name, array.ctypes.data)
        centres = np.ascontiguousarray(centres)
        squares = np.array([centre @ centre for centre in centres])
        form.centres = centres.ctypes.data
        form.squares = squares.ctypes.data
        return (*arrays, centres, squares)

    def _fill(self, side: _Side, places: int) -> None:
        """Fill the forms of a side; ``places`` is the number of tight clusters, or 0."""
        signs = bounds.signs(self._columns) if self._mixed else None
        failed = self._library.prepare(
            side,
            places,
            None if signs is None else signs.ctypes.data,
            float(
                bounds.largest_integer(self._columns + 3, self._element)
                if self._element < 32
                else 0
            ),
            bounds.growth(self._columns) if self._element == 32 else 0.0,
        )
        if failed:
            raise MemoryError(f"no memory to prepare {side.n} rows")

    def lost(self, side: DenseSide) -> NDArray[np.float32]:
        """Return r[n]: the largest distance of each row's cheap form from the row over its norm."""
        errors: NDArray[np.float32] = side.prepared.errors
        return errors

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
        mine = _best(best_left)
        other = None if best_right is None else _best(best_right)
        scored = self._library.topk(
            left.prepared.structure,
            right.prepared.structure,
            mine,
            other,
            left.prepared.places,
            same,
            diagonal,
        )
        _check_result(
            scored, left.tile, right.tile, f"to compare {len(left)} rows with {len(right)}"
        )
        self.scored += scored

    def pairs(
        self, left: DenseSide, right: DenseSide, threshold: np.float32, *, same: bool
    ) -> Pairs:
        pairs = _PairList()
        try:
            scored = self._library.pairs(
                left.prepared.structure,
                right.prepared.structure,
                threshold,
                left.prepared.places,
                same,
                pairs,
            )
            _check_result(scored, left.tile, right.tile, f"for the {pairs.count} pairs of one tile")
            self.scored += scored
            # The list of no pair may be a null pointer, which as_array refuses.
            if pairs.count == 0:
                i = np.empty(0, np.uint32)
                j = np.empty(0, np.uint32)
                scores = np.empty(0, np.float32)
            else:
                i, j, scores = (
                    np.ctypeslib.as_array(field, (pairs.count,))
                    for field in (pairs.i, pairs.j, pairs.scores)
                )
            offsets = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=len(left)))]).astype(
                np.int64
            )
            # Each row's pairs come in rising order already.
            order = np.argsort(i, kind="stable")
            # All three are copies, because the list is freed on return.
            return Pairs(
                offsets=offsets,
                neighbors=j[order] + np.uint32(right.tile.start),
                similarities=scores[order],
            )
        finally:
            # Free the list after a failed call too, which leaves the pairs that it found.
            self._library.free_pairs(pairs)

    def scores(self, left: Tile, right: Tile, out: NDArray[Any]) -> None:
        first, *keep = _structure(left)
        second, *keep_too = _structure(right)
        # The kernels write contiguous rows of float32; for any other output, use a temporary array.
        direct = out.dtype == np.float32 and out.strides[1] == 4 and out.strides[0] >= 0
        target = out if direct else np.empty(out.shape, dtype=np.float32)
        result = self._library.all_scores(first, second, target.ctypes.data, target.strides[0] // 4)
        _check_result(result, left, right, "for two blocks of rows in float64")
        # Keep these arrays alive until here, because the structures point into them.
        del keep, keep_too
        if not direct:
            out[...] = target


def _check_result(result: int, left: Tile, right: Tile, purpose: str) -> None:
    if result == TWO_TYPES:
        # Reading rows as the other side's type would give garbage, or crash the process.
        types = f"{left.rows.dtype} and {right.rows.dtype}"
        raise AssertionError(f"{types}: rows that are compared are of one type, see Layout.dtype")
    if result < 0:
        raise MemoryError(f"no memory {purpose}")


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step


def _aligned(rows: int, columns: int) -> NDArray[np.int32]:
    """Return zeros[rows, columns] that begin at a cache line, since loads across two are slow."""
    # Zeros, because the kernels fill in only the rows, but multiply the padding too.
    room = np.zeros(rows * columns + LINE, dtype=np.int32)
    start = -room.ctypes.data // room.itemsize % LINE
    return room[start : start + rows * columns].reshape(rows, columns)


def _structure(tile: Tile) -> tuple[_Side, Rows, NDArray[np.float64]]:
    """Return the structure of a tile that is not prepared, and the arrays that it points to."""
    rows = tile.rows
    if rows.dtype not in (np.float16, np.float32, np.float64):
        # Both hold the integers exactly as far as float64 does, which is how the definition takes
        # them.
        rows = rows.astype(np.float32 if rows.dtype.itemsize <= 2 else np.float64)
    # There may be gaps between rows, but each row must be contiguous.
    if rows.strides[1] != rows.itemsize or rows.strides[0] < 0:
        rows = np.ascontiguousarray(rows)
    norms = np.ascontiguousarray(tile.norms, dtype=np.float64)
    shape = {
        "n": rows.shape[0],
        "d": rows.shape[1],
        "stride": rows.strides[0],
        "kind": rows.itemsize,
    }
    structure = _Side(rows=rows.ctypes.data, start=tile.start, norms=norms.ctypes.data, **shape)
    return structure, rows, norms


def _best(best: Best) -> _Best:
    keys = best.keys
    lower_bounds = best.lower_bounds
    # Do not copy: the caller would not see what the kernels write into a copy.
    if not (keys.flags.c_contiguous and lower_bounds.flags.c_contiguous and keys.flags.writeable):
        raise ValueError(
            "the keys and lower_bounds of a Best must be contiguous, and the keys writeable"
        )
    if (
        keys.dtype != np.uint64
        or lower_bounds.dtype != np.float32
        or len(keys) != len(lower_bounds)
    ):
        raise ValueError(
            f"a Best holds keys uint64[n, k] and lower_bounds float32[n], got {keys.dtype} and "
            f"{lower_bounds.dtype}"
        )
    return _Best(keys=keys.ctypes.data, lower_bounds=lower_bounds.ctypes.data, k=keys.shape[1])


def _scores(
    library: ctypes.CDLL, left: Rows, right: Rows, norms: NDArray[np.float64]
) -> list[NDArray[np.float32]]:
    (first, *keep), (second, *keep_too) = (
        _structure(Tile(start=0, rows=rows, norms=norms)) for rows in (left, right)
    )
    i, j = np.divmod(np.arange(len(left) * len(right)), len(right))
    scores = [np.empty(len(i), dtype=np.float32) for _ in range(2)]
    library.pair_scores(first, second, i.ctypes.data, j.ctypes.data, len(i), scores[0].ctypes.data)
    if library.all_scores(first, second, scores[1].ctypes.data, len(right)):
        raise Unavailable("no memory")
    del keep, keep_too
    return scores


@functools.cache
def _check(library: ctypes.CDLL, lengths: tuple[int, ...]) -> None:
    """Compare the kernels' scores with NumPy's.

    Raise ``Unavailable`` if this NumPy sums in another order. The products of each pair of rows
    cancel each other except for rounding errors, so that any other order shows.
    """
    rng = np.random.default_rng(0)
    for columns in lengths:
        half = rng.standard_normal((2, 4, columns - columns // 2))
        rows = np.concatenate([half, half * [[[1.0]], [[-1.0]]]], axis=2)[:, :, :columns]
        order = rng.permutation(columns)
        # The kernels have separate code for each of these types.
        for dtype in (np.float16, np.float32, np.float64):
            left, right = rows[:, :, order].astype(dtype)
            norms = np.ones(len(left))
            i, j = np.divmod(np.arange(len(left) ** 2), len(left))
            expected = pair_scores(left[i], right[j], norms[i], norms[j])
            for scores in _scores(library, left, right, norms):
                if not np.array_equal(scores, expected):
                    raise Unavailable(
                        f"NumPy {np.__version__} sums rows of {columns} elements in another order"
                    )
