"""The files of a channel: names, headers, the check before a job is sent, and digests.

A folder's files are one matrix in the natural order of their names (``part-2`` before ``part-10``),
the same on every instance.
"""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysm.core.protocol.names import natural
from raysm.core.protocol.store import sha256_of
from raysm.errors import InvalidInput, option
from raysm.features.similarity.cluster.reading.arrays import archive_shape, map_array, read_layout
from raysm.features.similarity.cluster.reading.columns import (
    NO_SELECTION,
    Features,
    Selection,
    agree_on_features,
    quote_names,
    type_name,
)
from raysm.features.similarity.cluster.reading.tables import Table, describe_table, read_table
from raysm.features.similarity.request import MATRIX, QUERIES, Similarity
from raysm.instance.work.file_names import data_files

SUFFIXES = (".npy", ".npz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
ARRAYS = (".npy", ".npz")


def suffix(path: Path) -> str | None:
    """Return the one of ``SUFFIXES`` that a file has; None if it cannot be read."""
    # Not Path.suffix, which is .gz for .csv.gz; lower case because Windows programs write .CSV.
    name = path.name.lower()
    return next((s for s in SUFFIXES if name.endswith(s)), None)


def matrix_files(path: Path) -> list[tuple[str, Path]]:
    """List a channel's files as (name, path), in natural order.

    Names that begin with ``.`` or ``_`` are skipped.
    """
    if not path.exists():
        raise InvalidInput(
            f"{path} does not exist; give a file, a folder, s3://…, or job:NAME/model"
        )
    files = sorted(data_files(path), key=lambda item: natural(item[0]))
    if not files:
        raise InvalidInput(f"the folder {path} holds no files; put the rows of the matrix there")
    for name, file in files:
        if suffix(file) is None:
            raise InvalidInput(
                f"{name} cannot be read as a matrix; supported are {', '.join(SUFFIXES)}: convert "
                "it, or move it away"
            )
        if file.stat().st_size == 0:
            raise InvalidInput(
                f"{name} is empty (0 bytes); write it again, or remove it from the input"
            )
    return files


class DataFile(NamedTuple):
    name: str
    path: Path
    table: Table | None
    """None: an array, whose columns have no names."""


def describe_files(path: Path, selection: Selection = NO_SELECTION) -> list[DataFile]:
    """Describe the files of ``matrix_files``.

    Refuse columns that an array has no names for, and ids of two types.
    """
    files = []
    for name, file in matrix_files(path):
        if suffix(file) not in ARRAYS:
            files.append(DataFile(name, file, describe_table(file, selection)))
            continue
        if selection.named:
            column = selection.named[0]
            raise InvalidInput(
                f"the columns of {file.name} have no names, so there is no column {column!r}; "
                "save the rows as CSV or "
                f"Parquet (matrix and queries), or drop {option(selection.option, column)}"
            )
        files.append(DataFile(name, file, None))
    # Compare the types of ids now: they are written only after everything is computed.
    kinds = [
        (file.name, file.table.ids) for file in files if file.table is not None and selection.ids
    ]
    for name, kind in kinds:
        if kind != kinds[0][1]:
            raise InvalidInput(
                f"the ids ({quote_names(selection.ids)}) of {name} are {type_name(kind)}, those "
                f"of {kinds[0][0]} are "
                f"{type_name(kinds[0][1])}; write all files with one type (ids of a CSV are text)"
            )
    return files


def find_features(files: Sequence[DataFile]) -> Features | None:
    """Return the features of the first file with named features, else with a list column."""
    named = [
        replace(file.table.features, file=file.name)
        for file in files
        if file.table and file.table.features is not None
    ]
    return min(named, key=lambda features: features.is_one_list, default=None)


class Shape(NamedTuple):
    rows: int | None
    columns: int | None
    """Number of columns; None if rows would have to be read to count them."""
    features: Features | None


def peek(
    path: Path, selection: Selection = NO_SELECTION, expected: Features | None = None
) -> Shape:
    """Return the shape and the features of a matrix from its files' headers.

    ``expected`` are the features of the matrix that these rows are compared with.
    """
    rows: int | None = 0
    columns: int | None = None
    first = ""
    files = describe_files(path, selection)
    expected = agree_on_features([find_features(files)], expected)
    for file in files:
        if file.table is not None:
            file.table.ordered(expected)
            file_rows = file.table.rows
            file_columns = file.table.columns
        else:
            shape = (
                archive_shape(file.path)
                if suffix(file.path) == ".npz"
                else read_layout(file.path).shape
            )
            # This can happen only with an archive: read_layout has refused other files.
            if len(shape) != 2:
                raise InvalidInput(
                    f"{file.path.name} has the shape {shape}; expected 2 dimensions (rows, columns)"
                )
            file_rows, file_columns = shape
        rows = None if rows is None or file_rows is None else rows + file_rows
        # The number is None for lists whose length only reading reveals.
        if columns is not None and file_columns not in (None, columns):
            raise InvalidInput(
                f"{file.name} has {file_columns} columns, {first} has {columns}; all files need "
                "the same columns"
            )
        if columns is None and file_columns is not None:
            first = file.name
            columns = file_columns
    if rows == 0 or columns == 0:
        raise InvalidInput(
            f"{path.name} has the shape ({rows}, {columns}); there is nothing to compute"
        )
    return Shape(rows, columns, expected)


# ---- the check before a job is sent
# ---------------------------------------------------------------------------------

FIRST_BYTES = 1 << 20
FIRST_FILES = 8
"""Number of files whose rows are checked, the first of the matrix: each table costs some hundredths
of a second."""


def check_inputs(workload: Similarity, inputs: Mapping[str, Path | None]) -> None:
    """Check the headers and first rows of the matrix and the queries that are on this machine.

    The check reads at most some megabytes of a few files; the job itself reports all other faults.
    ``inputs`` has the file or folder of each channel; None if it is elsewhere.
    """
    matrix = inputs.get(MATRIX)
    queries = inputs.get(QUERIES)
    selection = Selection.of(workload)
    shape = Shape(None, None, None) if matrix is None else peek(matrix, selection)
    of_queries = Selection.of(workload, QUERIES)
    width = None if queries is None else peek(queries, of_queries, shape.features).columns
    count = shape.rows
    # Rows of a CSV are known only after reading it, which is cheap if it is small.
    is_csv = matrix is not None and matrix.is_file() and matrix.suffix.lower() in (".csv", ".tsv")
    if matrix is not None and is_csv and matrix.stat().st_size <= FIRST_BYTES:
        count = sum(len(batch.rows) for batch in read_table(matrix, selection))
    if workload.top_k is not None and count:
        # Without queries, a row is not its own neighbor. Look for the name: the path of queries
        # elsewhere is None.
        most = count if QUERIES in inputs else count - 1
        if workload.top_k > most:
            raise InvalidInput(
                f"{workload.top_k:,} neighbors of each row: {matrix} has {count:,} rows; ask for "
                f"at most {most:,}"
            )
    if None not in (shape.columns, width) and shape.columns != width:
        raise InvalidInput(
            f"{queries} has {width} columns, {matrix} has {shape.columns}; both need the same "
            "columns"
        )
    for path, chosen in ((matrix, selection), (queries, of_queries)):
        if path is not None:
            files = matrix_files(path)
            first = [(name, _first_rows(file, chosen)) for name, file in files[:FIRST_FILES]]
            # One file may be empty if others have rows.
            if len(files) <= FIRST_FILES and all(
                rows is not None and not len(rows) for _, rows in first
            ):
                raise InvalidInput(
                    f"{path.name} has no rows below its header; there is nothing to compute"
                )
            for name, rows in first:
                # Integers cannot be NaN.
                if rows is None or rows.dtype.kind != "f":
                    continue
                bad = ~np.isfinite(rows).all(axis=1)
                if bad.any():
                    row = int(np.argmax(bad))
                    raise InvalidInput(
                        f"row {row} of {name} (counted from 0) holds NaN or infinity, the first "
                        "such row; replace it"
                    )


def _first_rows(file: Path, selection: Selection) -> NDArray[Any] | None:
    """Return the first rows[n, D] of a file; None for an archive, which must be unpacked first."""
    kind = suffix(file)
    if kind == ".npz":
        return None
    if kind == ".npy":
        array = map_array(file)
        return array[: max(1, FIRST_BYTES // (array.itemsize * array.shape[1]))]
    batch = next(read_table(file, selection), None)
    return np.empty((0, 0)) if batch is None else batch.rows


# ---- digests: for the manifest, and for the record of finished blocks
# ---------------------------------

_started_digests: dict[Path, "Future[str]"] = {}
"""Digests that ``start_digest`` has started and ``digest`` has not taken yet."""


def start_digest(path: Path) -> None:
    _started_digests[path] = run_in_thread(lambda: join_digests(file_digests(path)))


def digest(path: Path) -> "Future[str]":
    """Return a future of the SHA-256 of a file, or of a folder as ``join_digests`` makes it."""
    # Each started digest is used once: the file may have changed by the next call.
    return _started_digests.pop(path, None) or run_in_thread(
        lambda: join_digests(file_digests(path))
    )


def file_digests(path: Path) -> list[tuple[str, str]]:
    return [(name, sha256_of(file)) for name, file in matrix_files(path)]


def join_digests(sums: Sequence[tuple[str, str]]) -> str:
    """Return the digest of a matrix: its only file's, or of lines ``<sha256>  <name>``, in order.

    The digest does not depend on which instances have the files.
    """
    if len(sums) == 1:
        return sums[0][1]
    return hashlib.sha256(
        "".join(f"{value}  {name}\n" for name, value in sums).encode()
    ).hexdigest()


def run_in_thread(make: Callable[[], str]) -> "Future[str]":
    """Call ``make()`` in a thread; return a future of its value."""
    future: Future[str] = Future()

    def call() -> None:
        try:
            future.set_result(make())
        except BaseException as error:
            # Pass on any error: otherwise the caller would wait forever.
            future.set_exception(error)

    # Not a thread of a pool, which would keep the process alive until all files are read.
    threading.Thread(target=call, name="digest", daemon=True).start()
    return future
