"""Prepare the rows before any two are compared: norms, checks, centre and clusters.

The rows are prepared in share-nothing blocks. Blocks are cut into steps whose size depends only on
the number of
columns: each step's contribution to the centre is computed in one order, and the head adds them in
the order of the steps. So the centre does not depend on the number of instances, blocks or tasks.
Neither do the tight clusters, which the head finds among some rows that are chosen by their places.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.arithmetic.score import (
    Norms,
    Rows,
    Tile,
    prepare,
    scale_rows,
)
from raysm.features.similarity.cluster.arithmetic.sparse_rows import SAMPLED, sparse_pays
from raysm.features.similarity.cluster.arithmetic.tight_clusters import (
    find_clusters,
    sample_stride,
    unit_rows,
)
from raysm.features.similarity.cluster.engines.protocol import unit_sum
from raysm.features.similarity.cluster.engines.sparse import sparse_library, sparse_norms
from raysm.features.similarity.cluster.kernels.build import Unavailable
from raysm.features.similarity.cluster.reading.matrix import Matrix
from raysm.features.similarity.cluster.tasks import Operand, Part, RowShape, tile_rows
from raysm.instance.work.row_blocks import RowBlock, row_blocks

BLOCK_ROWS = 1 << 20
SPARSE_ELEMENTS = 1 << 22
"""Approximate number of elements of a sparse matrix in one step."""

CENTRE_ROWS = 1 << 14
"""Approximate number of rows, spread evenly, that the centre is computed from: more would not
improve quantising."""


def compares_elements(matrix: Matrix) -> bool:
    """Return whether the rows are compared by shared columns, and not by dense products."""
    return matrix.sparse and by_elements(matrix, matrix.rows)


def by_elements(matrix: Matrix, rows: int) -> bool:
    """Return whether rows like these, of ``rows`` rows, are compared by shared columns."""
    some = max(1, min(matrix.rows, SAMPLED * matrix.rows // max(1, matrix.elements)))
    if not sparse_pays(matrix.read_sparse(0, some), rows):
        return False
    try:
        sparse_library(matrix.columns)
    except Unavailable:
        # Without a compiled library, other engines compare the rows, made dense one tile at a time.
        return False
    return True


def prepare_blocks(shape: RowShape, slots: int) -> list[RowBlock]:
    """Cut the rows into blocks for ``slots`` tasks at a time, each of whole steps."""
    # Sparse rows have no centre, so blocks need not have whole steps.
    if shape.sparse:
        return row_blocks(shape.rows, min(BLOCK_ROWS, math.ceil(shape.rows / slots)))
    step = _step_rows(shape.columns)
    steps = max(1, min(BLOCK_ROWS // step, math.ceil(shape.rows / (step * slots))))
    return row_blocks(shape.rows, steps * step)


def _step_rows(columns: int) -> int:
    return tile_rows(2 * columns)


def prepare_block(shape: RowShape, block: RowBlock) -> dict[str, NDArray[Any]]:
    """Return a block's ``norms``, ``exponents``, ``first_bad`` (-1: none), ``sums`` and ``some``.

    ``sums[steps, D]`` are sums of every ``stride``-th row of each step, divided by its norm.
    ``some[n, D]`` are a few such rows, for the clusters.
    """
    resident = shape.open()
    if shape.sparse:
        return _prepare_sparse(shape, block)
    step = _step_rows(shape.columns)
    stride = max(1, shape.rows // CENTRE_ROWS)
    parts = []
    sums = []
    some_rows = []
    for start in range(block.start, block.stop, step):
        rows = resident.read(start, min(start + step, block.stop))
        norms = prepare(rows)
        parts.append(norms)
        # Rows are chosen by their places in the whole matrix, so that the centre does not depend on
        # the blocks.
        tile = _every(stride, start, rows, norms)
        # Zeros instead of NaN; they are never used, because the bad row ends the run.
        sums.append(unit_sum(tile) if norms.first_bad is None else np.zeros(shape.columns))
        few = _every(sample_stride(shape.rows, shape.columns), start, rows, norms)
        some_rows.append(
            unit_rows(few) if norms.first_bad is None else np.empty((0, shape.columns), np.float32)
        )
    return _arrays(parts, block.start, step) | {
        "sums": np.stack(sums),
        "some": np.concatenate(some_rows),
    }


def _every(stride: int, start: int, rows: Rows, norms: Norms) -> Tile:
    """Return those of ``rows``, from ``start`` on, whose places are multiples of ``stride``."""
    some = slice(-start % stride, None, stride)
    return Tile(
        start=start, rows=scale_rows(rows[some], norms.exponents[some]), norms=norms.norms[some]
    )


def _prepare_sparse(shape: RowShape, block: RowBlock) -> dict[str, NDArray[Any]]:
    """Prepare sparse rows by their elements, without a centre, which would make them dense."""
    resident = shape.open()
    own = shape.source.open()
    step = max(1, SPARSE_ELEMENTS * own.rows // max(1, own.elements))
    starts = range(block.start, block.stop, step)
    parts = [
        sparse_norms(resident.read_sparse(start, min(start + step, block.stop))) for start in starts
    ]
    none = np.empty((0, shape.columns))
    return _arrays(parts, block.start, step) | {"sums": none, "some": none.astype(np.float32)}


def _arrays(parts: list[Norms], first: int, step: int) -> dict[str, NDArray[Any]]:
    bad = [
        at * step + norms.first_bad for at, norms in enumerate(parts) if norms.first_bad is not None
    ]
    return {
        "norms": np.concatenate([norms.norms for norms in parts]),
        "exponents": np.concatenate([norms.exponents for norms in parts]),
        "first_bad": np.array(first + bad[0] if bad else -1),
    }


def make_operand(
    shape: RowShape, parts: Iterable[tuple[RowBlock, Part]], *, name: str = "the matrix"
) -> Operand:
    rows = shape.rows
    norms = np.empty(rows)
    exponents = np.empty(rows, dtype=np.int16)
    sums: dict[int, NDArray[np.float64]] = {}
    some: dict[int, NDArray[np.float32]] = {}
    first_bad = rows
    for block, part in parts:
        norms[block.start : block.stop] = part.arrays["norms"]
        exponents[block.start : block.stop] = part.arrays["exponents"]
        # They are added at the end, because parts come in any order.
        sums[block.start] = part.arrays["sums"]
        some[block.start] = part.arrays["some"]
        bad = int(part.arrays["first_bad"])
        first_bad = min(first_bad, bad if bad >= 0 else rows)
    # Raise only when all parts are there, so that the message names the same row whichever block
    # comes first.
    if first_bad < rows:
        raise InvalidInput(
            f"row {first_bad} of {name} (counted from 0) holds NaN or infinity, the first such "
            "row; replace it"
        )
    # Sparse rows have no centre, which would be as long as a dense row.
    centre = np.empty(0)
    clusters = None
    if not shape.sparse:
        centre = np.zeros(shape.columns)
        for start in sorted(sums):
            # Add step by step: sums of whole blocks would make the rounding depend on the blocks.
            for one in sums[start]:
                centre += one
        centre /= len(range(0, rows, max(1, rows // CENTRE_ROWS)))
        clusters = find_clusters(np.concatenate([some[start] for start in sorted(some)]), centre)
    # Not ``dataclasses.asdict``, which would turn the source into a dict as well.
    own = {field: getattr(shape, field) for field in RowShape.__slots__}
    return Operand(
        **own,
        norms=norms,
        # Hardly any matrix needs exponents; an empty array saves multiplying and sending them.
        exponents=exponents if exponents.any() else np.empty(0, dtype=np.int16),
        centre=centre,
        clusters=clusters,
    )
