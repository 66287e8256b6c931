"""The rows of a channel, as one matrix, mapped from this instance's own disk.

``Matrix`` reads rows without ever holding all of them. C-ordered ``.npy`` files are mapped where
they lie; all other files are converted once, to arrays in a scratch folder of the instance. A
``Source`` is sent to the tasks, and each task maps the matrix on its own instance.
"""

import errno
import functools
import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raysm.errors import InvalidInput, NoRoom
from raysm.features.similarity.cluster.arithmetic.score import Rows
from raysm.features.similarity.cluster.arithmetic.sparse_rows import SparseRows
from raysm.features.similarity.cluster.reading import tables
from raysm.features.similarity.cluster.reading.arrays import (
    Unmappable,
    extract_archive,
    map_array,
    write_rows,
)
from raysm.features.similarity.cluster.reading.columns import (
    NO_SELECTION,
    Features,
    Selection,
    quote_names,
)
from raysm.features.similarity.cluster.reading.files import (
    ARRAYS,
    describe_files,
    find_features,
    suffix,
)
from raysm.instance import environment
from raysm.instance.work.file_names import data_files

CHUNK_BYTES = 16 << 20
ID_ROWS = 1 << 17
"""Number of ids in one batch, and in one row group of the files of ids."""

ROWS = "rows.npy"
IDS = "ids.parquet"
DATA = "data.npy"
INDICES = "indices.npy"
INDPTR = "indptr.npy"
SHAPE = "shape.npy"
"""Files that a converted file becomes: its rows, or the three arrays of CSR with their shape; and
its ids, if any."""


def convert_file(
    file: Path, scratch: Path, selection: Selection, expected: Features | None = None
) -> Path:
    """Return the folder with the file's arrays; convert the file if it does not exist yet.

    Several tasks of an instance may convert the same file at the same time: each writes into a
    temporary folder, and the first to finish renames its own. ``expected`` are the features in the
    order in which the rows have them.
    """
    stat = file.resolve().stat()
    # The name depends on size and time, so that a file that changed is converted again.
    chosen = [selection.ids, selection.columns, selection.exclude, expected and expected.names]
    identity = json.dumps([str(file), stat.st_size, stat.st_mtime_ns, chosen])
    folder = scratch / hashlib.sha256(identity.encode()).hexdigest()[:32]
    if folder.exists():
        return folder
    scratch.mkdir(parents=True, exist_ok=True)
    # In the same folder, because a rename cannot cross file systems.
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=scratch))
    try:
        kind = suffix(file)
        if kind == ".npy":
            try:
                _straighten(map_array(file), beside / ROWS)
            except Unmappable:
                shutil.copyfile(file, beside / ROWS)
                _straighten_in_place(beside / ROWS, 2)
        elif kind == ".npz":
            extract_archive(file, beside)
            for name in (ROWS, DATA, INDICES, INDPTR):
                if (beside / name).exists():
                    _straighten_in_place(beside / name, 2 if name == ROWS else 1)
        else:
            table = tables.describe_table(file, selection)
            _write_table(file, table, tables.read_table(file, selection, expected), beside)
        beside.rename(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoRoom(
                f"the disk of {scratch} became full while {file.name} was converted to rows"
            ) from error
        # If the folder exists now, another task was first.
        if not folder.exists():
            raise
    finally:
        # After a successful rename this path no longer exists.
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def _straighten_in_place(path: Path, dimensions: int) -> None:
    array = map_array(path, dimensions)
    if array.flags.c_contiguous and array.dtype.isnative:
        return
    # Write to another file, since the array is mapped from this one.
    straight = path.with_suffix(".straight")
    _straighten(array, straight)
    straight.replace(path)


def _straighten(array: NDArray[Any], target: Path) -> None:
    step = max(1, CHUNK_BYTES * len(array) // max(1, array.nbytes))
    pieces = (array[start : start + step] for start in range(0, len(array), step))
    write_rows(target, array.shape[1:], array.dtype, pieces)


def _write_table(
    file: Path, table: tables.Table, batches: Iterator[tables.Batch], folder: Path
) -> None:
    # A table may be empty if others have rows: engines that write in parts leave empty ones.
    first = next(batches, None)
    columns, dtype = (
        (table.columns, table.dtype) if first is None else (first.rows.shape[1], first.rows.dtype)
    )
    if columns is None:
        raise InvalidInput(
            f"{file.name} has no rows, and so no list tells the number of columns; remove it from "
            "the input"
        )
    whole = itertools.chain([] if first is None else [first], batches)
    if table.ids is None:
        write_rows(folder / ROWS, (columns,), dtype, (batch.rows for batch in whole))
        return
    schema = pa.schema([("id", table.ids)])

    def rows() -> Iterator[NDArray[Any]]:
        for batch in whole:
            # Not write_table, which would make each batch of a few thousand rows a row group of its
            # own.
            writer.write_batch(pa.record_batch([batch.ids], schema=schema), ID_ROWS)
            yield batch.rows

    # No dictionary: most ids are distinct, so it would only make the file larger.
    with pq.ParquetWriter(folder / IDS, schema, use_dictionary=False) as writer:
        write_rows(folder / ROWS, (columns,), dtype, rows())


def _dense(rows: NDArray[Any] | SparseRows) -> Rows:
    return rows.dense() if isinstance(rows, SparseRows) else rows


class MatrixInfo(Protocol):
    """A matrix without its rows: a ``Matrix`` here, or a ``ShardIndex`` of sharded files."""

    rows: int
    columns: int
    dtype: np.dtype[Any]
    names: list[str]

    @property
    def ids(self) -> pa.DataType | None: ...

    @property
    def elements(self) -> int: ...

    @property
    def sparse(self) -> bool: ...

    def id_batches(self) -> Iterator[pa.Array]: ...


def describe(matrix: MatrixInfo, selection: Selection, features: Features | None) -> str:
    """Describe a matrix for the log: ``3,000 rows x 32 columns (f0 ... f31), float64``."""
    if features is not None:
        names = f" ({features.describe(matrix.columns)})"
    elif any(suffix(Path(name)) not in ARRAYS for name in matrix.names):
        names = " (columns without names)"
    else:
        names = ""
    text = f"{matrix.rows:,} rows x {matrix.columns:,} columns{names}, {matrix.dtype}"
    if selection.ids:
        text += f"; named by {quote_names(selection.ids)}"
    if features is not None and features.left_out:
        text += f"; left out: {quote_names(features.left_out)}"
    return text


class Matrix:
    """Rows from one or several files, read as ``dtype``, by default the common type of the files.

    ``id_files`` has a file of ids for each file; it is empty if the user named no id column.
    """

    def __init__(
        self,
        parts: list[NDArray[Any] | SparseRows],
        names: list[str],
        id_files: list[Path],
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self.columns = parts[0].shape[1]
        for name, part in zip(names, parts, strict=True):
            # The client compares widths too, but only of files on its machine.
            if part.shape[1] != self.columns:
                raise InvalidInput(
                    f"{name} has {part.shape[1]} columns, {names[0]} has {self.columns}; all need "
                    "the same columns"
                )
        self._starts = np.cumsum([0, *(part.shape[0] for part in parts)])
        self.rows = int(self._starts[-1])
        if self.columns == 0:
            raise InvalidInput(
                f"the matrix has the shape ({self.rows}, 0); there is nothing to compute"
            )
        self.dtype = np.result_type(*(part.dtype for part in parts)) if dtype is None else dtype
        self.names = names
        self.id_files = id_files
        self._parts = parts

    @property
    def sparse(self) -> bool:
        return all(isinstance(part, SparseRows) for part in self._parts)

    @property
    def elements(self) -> int:
        return sum(part.size for part in self._parts)

    @property
    def files(self) -> list[tuple[str, int, np.dtype[Any]]]:
        return [
            (name, part.shape[0], part.dtype)
            for name, part in zip(self.names, self._parts, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def as_type(self, dtype: np.dtype[Any]) -> "Matrix":
        return (
            self if dtype == self.dtype else Matrix(self._parts, self.names, self.id_files, dtype)
        )

    @property
    def ids(self) -> pa.DataType | None:
        # The first file speaks for all: described_files has refused files of different types.
        return pq.read_schema(self.id_files[0]).field(0).type if self.id_files else None

    def id_batches(self) -> Iterator[pa.Array]:
        for file in self.id_files:
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(batch_size=ID_ROWS):
                    yield batch.column(0)

    def _between(
        self, start: int, stop: int
    ) -> Iterator[tuple[int, str, NDArray[Any] | SparseRows]]:
        """Yield those of rows start to stop that each file has, where they begin, and the file."""
        # Not strict: ``_starts`` has one more entry, the end of the last part.
        for part, name, begin in zip(self._parts, self.names, self._starts.tolist(), strict=False):
            low = max(start, begin)
            high = min(stop, begin + part.shape[0])
            if low < high:
                yield low - start, name, part[low - begin : high - begin]

    def portion(self, start: int, stop: int, dtype: np.dtype[Any] | None = None) -> "Matrix":
        """Return rows start to stop as a matrix of their own, without ids.

        The arrays of that matrix are views until it is pickled.
        """
        found = [
            (rows.own() if isinstance(rows, SparseRows) else rows, name)
            for _, name, rows in self._between(start, stop)
        ]
        # Use the type of all files, so that every portion is read as the same type.
        return Matrix(
            [rows for rows, _ in found],
            [name for _, name in found],
            [],
            self.dtype if dtype is None else dtype,
        )

    def read(self, start: int, stop: int) -> Rows:
        """Return rows[stop - start, D].

        The rows are a view of the mapped file if they lie in one file and need no conversion.
        """
        # side="right" skips files without rows, which begin where the next one does.
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        if stop <= self._starts[first + 1]:
            offset = int(self._starts[first])
            return _dense(self._parts[first][start - offset : stop - offset]).astype(
                self.dtype, copy=False
            )
        found = np.empty((stop - start, self.columns), dtype=self.dtype)
        for at, _, rows in self._between(start, stop):
            found[at : at + rows.shape[0]] = _dense(rows)
        return found

    def read_sparse(self, start: int, stop: int) -> SparseRows:
        """Return the same rows of a matrix that is ``sparse``, by their elements."""
        parts = [
            rows.canonical()
            for *_, rows in self._between(start, stop)
            if isinstance(rows, SparseRows)
        ]
        # ``joined`` also converts: rows of a single file may need the common type of all files.
        return (
            parts[0]
            if len(parts) == 1 and parts[0].dtype == self.dtype
            else SparseRows.joined(parts, self.dtype)
        )


def open_matrix(
    path: Path,
    scratch: Path,
    selection: Selection = NO_SELECTION,
    *,
    expected: Features | None = None,
    is_share: bool = False,
) -> Matrix:
    """Map the matrix at ``path``.

    Files that cannot be mapped as they are, are first converted into ``scratch``, once.
    ``expected`` are the features in their order; None: those of the first file with names. Only an
    instance's share of a matrix (``is_share``) may have no rows.
    """
    parts: list[NDArray[Any] | SparseRows] = []
    id_files: list[Path] = []
    # Describe all files before converting any of them, which may take minutes.
    files = describe_files(path, selection)
    expected = expected or find_features(files)
    for _, file, _ in files:
        array = _map_unconverted(file) if suffix(file) == ".npy" else None
        if array is not None:
            parts.append(array)
            continue
        folder = convert_file(file, scratch, selection, expected)
        parts.append(_open_converted(folder))
        if selection.ids:
            id_files.append(folder / IDS)
    matrix = Matrix(parts, [file.name for file in files], id_files)
    if not (matrix.rows or is_share):
        raise InvalidInput(f"the files of {path.name} hold no rows; there is nothing to compute")
    return matrix


def _map_unconverted(file: Path) -> NDArray[Any] | None:
    try:
        array = map_array(file)
    except Unmappable:
        return None
    # In Fortran order a row is scattered over the file, and kernels read only this machine's byte
    # order.
    return array if array.flags.c_contiguous and array.dtype.isnative else None


def _open_converted(folder: Path) -> NDArray[Any] | SparseRows:
    if (folder / ROWS).exists():
        return map_array(folder / ROWS)
    _, columns = map_array(folder / SHAPE, 1).tolist()
    data, indices, indptr = (map_array(folder / name, 1) for name in (DATA, INDICES, INDPTR))
    return SparseRows(indptr, indices, data, columns)


@dataclass(frozen=True, slots=True)
class Location:
    channel: Path
    scratch: Path
    host: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    channel: str
    selection: Selection = NO_SELECTION
    expected: Features | None = None
    """Features in the order in which all files have them; None is that of the first file with
    names."""
    sharded: bool = False
    """True if each instance has only its share of the files."""
    location: Location | None = None
    """Its folders; None asks the instance's own environment, as jobs do."""

    def here(self) -> Location:
        if self.location is not None:
            return self.location
        instance = environment.read()
        paths = instance.paths
        return Location(
            paths.channel(self.channel), paths.scratch / self.channel, instance.current_host
        )

    def open(self, location: Location | None = None) -> Matrix:
        """Map the matrix of this instance, at ``location`` if the caller knows it already.

        A process maps it once.
        """
        return _open(location or self.here(), self.selection, self.expected, is_share=self.sharded)

    def features(self) -> Features | None:
        return (
            find_features(describe_files(self.here().channel, self.selection))
            if self.has_files()
            else None
        )

    def has_files(self) -> bool:
        """Return whether this instance has files: with a sharded channel, some may have none."""
        folder = self.here().channel
        # Not matrix_files, which raises an error for a folder without files.
        return bool(data_files(folder))


# A process opens two matrices: the matrix and the queries.
@functools.lru_cache(maxsize=2)
def _open(
    location: Location, selection: Selection, expected: Features | None, *, is_share: bool
) -> Matrix:
    return open_matrix(
        location.channel, location.scratch, selection, expected=expected, is_share=is_share
    )
