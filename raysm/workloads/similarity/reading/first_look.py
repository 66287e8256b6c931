"""Check a similarity's inputs before the job is sent, by their headers and first rows.

It reads at most some megabytes of a few local files. The job reports what this check does not see.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.request.similarity import MATRIX, QUERIES, Similarity
from raysm.workloads.similarity.reading.arrays import map_array
from raysm.workloads.similarity.reading.columns import Selection
from raysm.workloads.similarity.reading.files import Shape, matrix_files, peek, suffix
from raysm.workloads.similarity.reading.tables import read_csv, read_parquet

__all__ = ["check_inputs"]

NOTHING = Shape(None, None, None)
"""What is known of a matrix that is not on this machine."""

FIRST_BYTES = 1 << 20
"""Read of an array."""

FIRST_FILES = 8
"""Whose rows are read, in the order of the matrix: each table costs some hundredths of a second."""


def check_inputs(workload: Similarity, inputs: Mapping[str, Path | None]) -> None:
    """Look at the matrix and at the queries, where they are here.

    Args:
        workload: What is asked for.
        inputs: By channel: the file or folder; None for what is elsewhere.

    Raises:
        InvalidInput: The file, what is wrong with it, and what to do.
    """
    matrix, queries, selection = inputs.get(MATRIX), inputs.get(QUERIES), Selection.of(workload)
    shape = NOTHING if matrix is None else peek(matrix, selection)
    of_queries = Selection.of(workload, QUERIES)
    width = None if queries is None else peek(queries, of_queries, shape.features).columns
    rows, columns = shape.rows, shape.columns
    # Whether there are queries says the channel's name alone: of those that lie elsewhere the path is None.
    _check_neighbors(workload.top_k, rows, matrix, with_queries=QUERIES in inputs)
    if None not in (columns, width) and columns != width:
        raise InvalidInput(f"{queries} has {width} columns, {matrix} has {columns}; both need the same columns")
    for path, chosen in ((matrix, selection), (queries, of_queries)):
        if path is None:
            continue
        counted = _check_rows(path, chosen)
        # The header of a CSV does not tell the number of rows.
        if path is matrix and rows is None:
            _check_neighbors(workload.top_k, counted, matrix, with_queries=QUERIES in inputs)


def _check_neighbors(k: int | None, rows: int | None, matrix: Path | None, *, with_queries: bool) -> None:
    if k is None or rows is None:
        return
    if with_queries and k > rows:
        raise InvalidInput(f"{k:,} neighbors of each row: {matrix} has {rows:,} rows; ask for at most as many")
    if not with_queries and k > rows - 1:
        raise InvalidInput(f"{k:,} neighbors of each row: {matrix} has {rows:,} rows, so at most {rows - 1:,} others")


def _check_rows(path: Path, selection: Selection) -> int | None:
    """Look at the first rows; return how many there are, None where not all of them were read."""
    files = matrix_files(path)
    first = [(name, *_first_rows(file, selection)) for name, file in files[:FIRST_FILES]]
    # A file without rows may lie beside others that have some.
    if len(files) <= FIRST_FILES and all(rows is not None and not len(rows) for _, rows, _ in first):
        raise InvalidInput(f"{path.name} has no rows below its header; there is nothing to compute")
    for name, rows, _ in first:
        # Integers hold no NaN, and an archive would have to be unpacked.
        if rows is None or rows.dtype.kind != "f":
            continue
        bad = ~np.isfinite(rows).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad))
            raise InvalidInput(
                f"row {row} of {name} (counted from 0) holds NaN or infinity, the first such row; replace it"
            )
    is_whole = len(files) <= FIRST_FILES and all(whole for *_, whole in first)
    return sum(len(rows) for _, rows, _ in first if rows is not None) if is_whole else None


def _first_rows(file: Path, selection: Selection) -> tuple[NDArray[Any] | None, bool]:
    """Return the first rows[n, D] of a file, None of an archive, which would be unpacked; and whether those are all."""
    kind = suffix(file)
    if kind == ".npz":
        return None, False
    if kind == ".npy":
        array = map_array(file)
        first = array[: max(1, FIRST_BYTES // (array.itemsize * array.shape[1]))]
        return first, len(first) == len(array)
    batches = (read_parquet if kind == ".parquet" else read_csv)(file, selection)
    batch = next(batches, None)
    if batch is None:
        return np.empty((0, 0)), True
    return batch.rows, next(batches, None) is None
