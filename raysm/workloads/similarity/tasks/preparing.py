"""Prepare the rows before any two are compared: norms, rows that cannot be used, the centre and clusters of all rows.

The rows are prepared in share-nothing blocks, which are cut into steps whose size depends on the number of columns
alone: each step's contribution to the centre is computed in one order, and the head adds them in the order of the
steps. So the centre does not depend on the number of instances, blocks or tasks; nor do the tight clusters, which the
head finds among some rows that are chosen by their places.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.workloads.blocks import RowBlock, row_blocks
from raysm.workloads.similarity.arithmetic.score import Norms, Rows, Tile, prepare, scaled
from raysm.workloads.similarity.arithmetic.sparse_rows import SAMPLED, sparse_pays
from raysm.workloads.similarity.arithmetic.tight_clusters import find_clusters, sample_stride, unit_rows
from raysm.workloads.similarity.engines.protocol import unit_sum
from raysm.workloads.similarity.engines.sparse import sparse_library, sparse_norms
from raysm.workloads.similarity.kernels.build import Unavailable
from raysm.workloads.similarity.reading.matrix import Matrix
from raysm.workloads.similarity.tasks.context import Operand, RowShape, tile_rows
from raysm.workloads.similarity.tasks.parts import Part

BLOCK_ROWS = 1 << 20
"""Most rows of one task."""

SPARSE_ELEMENTS = 1 << 22
"""About so many elements of a sparse matrix are looked at in one step."""

CENTRE_ROWS = 1 << 14
"""About so many rows, spread evenly, make the centre: more would not move it by what quantising could notice."""


def compares_elements(matrix: Matrix) -> bool:
    """Return whether the rows of this matrix are compared by the columns that they share, and not by dense products."""
    return matrix.sparse and by_elements(matrix, matrix.rows)


def by_elements(matrix: Matrix, rows: int) -> bool:
    """Return whether rows like these are compared by the columns that they share, and not by dense products.

    Args:
        matrix: Sparse rows: the whole matrix, or one instance's.
        rows: How many the whole matrix has.
    """
    some = max(1, min(matrix.rows, SAMPLED * matrix.rows // max(1, matrix.elements)))
    if not sparse_pays(matrix.read_sparse(0, some), rows):
        return False
    try:
        sparse_library(matrix.columns)
    except Unavailable:
        # Without a compiled library the rows are made dense, a tile at a time, for the other engines.
        return False
    return True


def prepare_blocks(shape: RowShape, slots: int) -> list[RowBlock]:
    """Cut the rows into blocks for ``slots`` tasks at a time, each of whole steps."""
    # No centre is made of sparse rows, so steps need not be whole.
    if shape.sparse:
        return row_blocks(shape.rows, min(BLOCK_ROWS, math.ceil(shape.rows / slots)))
    step = _step_rows(shape.columns)
    steps = max(1, min(BLOCK_ROWS // step, math.ceil(shape.rows / (step * slots))))
    return row_blocks(shape.rows, steps * step)


def _step_rows(columns: int) -> int:
    return tile_rows(2 * columns)


def prepare_block(shape: RowShape, block: RowBlock) -> dict[str, NDArray[Any]]:
    """Return of a block's rows ``norms`` and ``exponents``, ``integral``, ``first_bad`` (-1: none), ``sums``, ``some``.

    ``sums[steps, D]`` are of every ``stride``-th row of each step, divided by its norm, ``some[n, D]`` a few such rows.
    """
    resident = shape.open()
    if shape.sparse:
        return _prepare_sparse(shape, block)
    step, stride = _step_rows(shape.columns), max(1, shape.rows // CENTRE_ROWS)
    parts, sums, some_rows = [], [], []
    for start in range(block.start, block.stop, step):
        rows = resident.read(start, min(start + step, block.stop))
        norms = prepare(rows)
        parts.append(norms)
        # Chosen by their places in the whole matrix, or the centre would depend on how it is cut.
        tile = _every(stride, start, rows, norms)
        # Zeros instead of NaN; they are not used: the run ends because of that row.
        sums.append(unit_sum(tile) if norms.first_bad is None else np.zeros(shape.columns))
        few = _every(sample_stride(shape.rows, shape.columns), start, rows, norms)
        some_rows.append(unit_rows(few) if norms.first_bad is None else np.empty((0, shape.columns), np.float32))
    return _arrays(parts, block.start, step) | {"sums": np.stack(sums), "some": np.concatenate(some_rows)}


def _every(stride: int, start: int, rows: Rows, norms: Norms) -> Tile:
    """Return every ``stride``-th row of the matrix, of those that begin at ``start``."""
    some = slice(-start % stride, None, stride)
    return Tile(start=start, rows=scaled(rows[some], norms.exponents[some]), norms=norms.norms[some])


def _prepare_sparse(shape: RowShape, block: RowBlock) -> dict[str, NDArray[Any]]:
    """Do the same by the rows' elements; about the origin, since a centre would make them dense."""
    resident, own = shape.open(), shape.source.open()
    step = max(1, SPARSE_ELEMENTS * own.rows // max(1, own.elements))
    starts = range(block.start, block.stop, step)
    parts = [sparse_norms(resident.read_sparse(start, min(start + step, block.stop))) for start in starts]
    none = np.empty((0, shape.columns))
    return _arrays(parts, block.start, step) | {"sums": none, "some": none.astype(np.float32)}


def _arrays(parts: list[Norms], first: int, step: int) -> dict[str, NDArray[Any]]:
    bad = [at * step + norms.first_bad for at, norms in enumerate(parts) if norms.first_bad is not None]
    return {
        "norms": np.concatenate([norms.norms for norms in parts]),
        "exponents": np.concatenate([norms.exponents for norms in parts]),
        "integral": np.array(all(norms.integral for norms in parts)),
        "first_bad": np.array(first + bad[0] if bad else -1),
    }


def prepared(shape: RowShape, parts: Iterable[tuple[RowBlock, Part]], *, name: str = "the matrix") -> Operand:
    """Return the rows, ready to be compared, from the parts of all blocks in any order.

    Raises:
        InvalidInput: A row holds NaN or infinity; the first such row is named.
    """
    rows = shape.rows
    norms, exponents = np.empty(rows), np.empty(rows, dtype=np.int16)
    sums: dict[int, NDArray[np.float64]] = {}
    some: dict[int, NDArray[np.float32]] = {}
    integral, first_bad = True, rows
    for block, part in parts:
        norms[block.start : block.stop] = part.arrays["norms"]
        exponents[block.start : block.stop] = part.arrays["exponents"]
        # Added when all are there, since parts come in any order.
        sums[block.start], some[block.start] = part.arrays["sums"], part.arrays["some"]
        integral = integral and bool(part.arrays["integral"])
        bad = int(part.arrays["first_bad"])
        first_bad = min(first_bad, bad if bad >= 0 else rows)
    # Not as soon as one is seen: the message must name the same row, whichever block was the first to find one.
    if first_bad < rows:
        raise InvalidInput(
            f"row {first_bad} of {name} (counted from 0) holds NaN or infinity, the first such row; replace it"
        )
    centre = _centre(sums, rows, shape.columns)
    return shape.prepared(
        norms,
        # Nearly no matrix needs them: then nothing is multiplied, and nothing is shipped.
        exponents if exponents.any() else np.empty(0, dtype=np.int16),
        integral=integral,
        centre=centre,
        clusters=find_clusters(np.concatenate([some[start] for start in sorted(some)]), centre),
    )


def _centre(sums: Mapping[int, NDArray[np.float64]], rows: int, columns: int) -> NDArray[np.float64]:
    """Return the mean of the unit rows that were looked at; added in one order, wherever each sum was made."""
    total = np.zeros(columns)
    for start in sorted(sums):
        # Step by step: sums of whole blocks, added first, would round by how the rows were cut.
        for one in sums[start]:
            total += one
    return total / len(range(0, rows, max(1, rows // CENTRE_ROWS)))
