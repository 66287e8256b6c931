"""``sparse.c`` as Python calls it: its structures, its functions, and whether it sums as NumPy does.

In flow NumPy's arrays; out flow structures that point into them, which the caller keeps alive for as long as a call.
"""

import ctypes
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.similarity.arithmetic.score import prepare
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows
from raysm.workloads.similarity.engines.protocol import Best
from raysm.workloads.similarity.kernels.build import Unavailable, library
from raysm.workloads.similarity.kernels.instructions import InstructionSet
from raysm.workloads.similarity.kernels.recipes import SPARSE_FOR, sparse

__all__ = [
    "ColumnsStructure",
    "RowsStructure",
    "address",
    "described_best",
    "described_rows",
    "sparse_library",
    "sums_as_numpy",
    "sums_of_squares",
]

LONGEST_CHECKED = 1 << 22
"""Columns of the longest rows that are made dense to see that both sums agree."""

Array = ctypes.c_void_p
Integer = ctypes.c_int64


# As sparse.c declares them, field by field: ctypes reads no header, and nothing would notice another order.
class RowsStructure(ctypes.Structure):
    """Rows of a side: how many, the number of the first, the columns, and where their arrays lie."""

    _fields_ = [(name, Integer) for name in ("count", "start", "columns")] + [
        (name, Array) for name in ("begins", "indices", "unit", "data", "norms")
    ]


class ColumnsStructure(ctypes.Structure):
    """For each column where its postings begin, and the postings: who has it, and how much."""

    _fields_ = [(name, Array) for name in ("first", "postings")]


class BestStructure(ctypes.Structure):
    _fields_ = [
        ("k", Integer),
        *((name, Array) for name in ("keys", "lower_bounds", "least")),
        ("bound", ctypes.c_double),
    ]


ROWS, COLUMNS, BEST = (ctypes.POINTER(structure) for structure in (RowsStructure, ColumnsStructure, BestStructure))

FUNCTIONS: dict[str, list[Any]] = {
    "sparse_columns": [ROWS, Array, Array],
    "sparse_squares": [ROWS, Array],
    "sparse_topk": [ROWS, ROWS, COLUMNS, BEST, BEST, Array, ctypes.c_int],
    "sparse_pairs": [ROWS, ROWS, COLUMNS, Integer, ctypes.c_float, ctypes.c_float, Integer, Array, Array, Array],
    "sparse_scores": [ROWS, ROWS, COLUMNS, Integer, Integer, Array],
}
"""All return an int64 that is negative where there was no memory."""


def _checked(result: int, function: Any, _: Any) -> int:
    if result < 0:
        raise MemoryError(f"{function.__name__}: no memory")
    return result


@functools.cache
def sparse_library(candidates: tuple[InstructionSet, ...] = SPARSE_FOR) -> tuple[Any | None, str]:
    """Return the compiled ``sparse.c``, or None and why this machine cannot compile it."""
    why = ""
    for instructions in candidates:
        try:
            return _declared(library(sparse(instructions))), ""
        except Unavailable as error:
            # The last one is that of the library that asks for least.
            why = str(error)
    return None, why


def _declared(functions: Any) -> Any:
    for name, arguments in FUNCTIONS.items():
        function = getattr(functions, name)
        function.argtypes, function.restype, function.errcheck = arguments, Integer, _checked
    return functions


def address(array: NDArray[Any]) -> int:
    """Return where a contiguous array lies; it has to outlive whatever is told."""
    assert array.flags.c_contiguous
    return int(array.ctypes.data)


def described_rows(
    rows: SparseRows, data: NDArray[np.float64], norms: NDArray[np.float64], unit: NDArray[np.float32], start: int
) -> tuple[RowsStructure, tuple[NDArray[Any], ...]]:
    """Describe rows; return the structure, and what has to live as long as it does.

    Args:
        rows: The rows; only where their elements lie is read.
        data: Their elements, as float64.
        norms: Their norms, one a row.
        unit: Their elements divided by the norms, as float32.
        start: Number of the first row.
    """
    arrays = (rows.begins, np.ascontiguousarray(rows.indices), unit, data, norms)
    return RowsStructure(len(rows), start, rows.columns, *(address(array) for array in arrays)), arrays


def described_best(best: Best, rows: slice, bound: float) -> tuple[BestStructure, tuple[NDArray[Any], ...]]:
    """Describe the best of some rows of a side; return the structure, and what has to live as long as it does."""
    keys, lower_bounds = best.keys[rows], best.lower_bounds[rows]
    least = np.empty(len(lower_bounds), dtype=np.float32)
    described = BestStructure(keys.shape[1], address(keys), address(lower_bounds), address(least), bound)
    return described, (keys, lower_bounds, least)


@functools.lru_cache(maxsize=16)
def sums_as_numpy(library: Any, columns: int) -> bool:
    """Return whether the library sums rows of that many columns as NumPy does."""
    # Of very long rows, one as long as can be held: they are halved in the same way.
    length = columns if columns <= LONGEST_CHECKED else LONGEST_CHECKED + columns % 128
    rng = np.random.default_rng(length)
    for share in (1.0, 0.1):
        # Elements of very different sizes: sums in another order then round to another number.
        rows = rng.standard_normal((2, length)) * np.exp2(rng.integers(-20, 20, (2, length)))
        rows *= rng.random((2, length)) < share
        sparse = SparseRows.of(np.arange(3) * length, np.tile(np.arange(length), 2), rows.ravel(), length)
        if not np.array_equal(np.sqrt(sums_of_squares(library, sparse)), prepare(rows).norms):
            return False
    return True


def sums_of_squares(library: Any, rows: SparseRows) -> NDArray[np.float64]:
    """Return each row's sum of squares, added in the order that the definition adds a row's D products in."""
    squares = np.zeros(len(rows))
    described, _kept = described_rows(rows, rows.data.astype(np.float64), squares, np.empty(0, dtype=np.float32), 0)
    library.sparse_squares(described, address(squares))
    return squares
