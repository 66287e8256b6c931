"""The rows of a channel, as one matrix, mapped from this instance's own disk.

What flows in is a file or a folder; what flows out is ``Matrix``, which reads and gathers rows without ever holding
all of them. A folder's files are one matrix in the natural order of their names (``part-2`` before ``part-10``), the
same on every instance. C-ordered ``.npy`` files are mapped where they lie. Everything else is first brought into a
scratch folder of the instance, streamed: tables and compressed archives as ``.npy``, CSR matrices as their three
arrays.
"""

import errno
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raysm.errors import InvalidInput, NoRoom
from raysm.workloads.similarity.arithmetic.score import Rows
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows
from raysm.workloads.similarity.reading import archives, tables
from raysm.workloads.similarity.reading.ids import plain_bytes, word
from raysm.workloads.similarity.reading.npy import RowWriter, map_array, write_array

__all__ = [
    "Described",
    "Matrix",
    "alike",
    "matrix_files",
    "natural",
    "open_matrix",
    "peek",
]

CHUNK_BYTES = 16 << 20

ID_ROWS = 1 << 17
"""Ids of one batch, and of one row group of the files that keep them."""

ROWS, IDS, DATA, INDICES, INDPTR, SHAPE = (
    "rows.npy",
    "ids.parquet",
    "data.npy",
    "indices.npy",
    "indptr.npy",
    "shape.npy",
)


def _suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((s for s in (".npy", ".npz", ".csv", ".csv.gz", ".parquet") if name.endswith(s)), None)


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return what names are sorted by: ``part-2`` before ``part-10``."""
    pieces = re.findall(r"\d+|\D+", name)
    return [(0, int(p), "") if p.isdecimal() and p.isascii() else (1, 0, p) for p in pieces], name


def matrix_files(path: Path) -> list[tuple[str, Path]]:
    """List a channel's files as (name, path), in natural order; names that begin with ``.`` or ``_`` are passed over.

    Raises:
        InvalidInput: There is none, or one of them has no known suffix.
    """
    if not path.exists():
        raise InvalidInput(f"{path} is not there; give a file, or a folder of files, with the rows of the matrix")
    if path.is_file():
        found = [(path.name, path)]
    else:
        names = [(file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file()]
        shown = [(name, file) for name, file in names if not any(part[0] in "._" for part in name.split("/"))]
        found = sorted(shown, key=lambda item: natural(item[0]))
    if not found:
        raise InvalidInput(f"the folder {path} holds no files; put the rows of the matrix there")
    for name, file in found:
        if _suffix(file) is None:
            raise InvalidInput(f"{name} is no matrix file: .npy, .npz, .csv, .csv.gz and .parquet are; take it away")
        if file.stat().st_size == 0:
            raise InvalidInput(f"{name} is empty; write it again, or take it away")
    return found


def peek(path: Path, id_column: str | None = None) -> tuple[int | None, int | None]:
    """Return (rows, columns) from the files' headers alone; None for what only reading them all would tell.

    Raises:
        InvalidInput: A file is missing, empty, torn in its header or unsupported; the numbers of columns differ; or
            the id column is not there, names no rows, or is of different types.
    """
    rows: int | None = 0
    columns: int | None = None
    first = ""
    files = matrix_files(path)
    if id_column is not None:
        _check_ids(files, id_column)
    for name, file in files:
        file_rows, file_columns = _peek_file(file, id_column)
        rows = None if rows is None or file_rows is None else rows + file_rows
        if columns is not None and file_columns not in (None, columns):
            raise InvalidInput(f"{name} has {file_columns} columns, {first} has {columns}; one matrix has one width")
        if columns is None and file_columns is not None:
            first, columns = name, file_columns
    if rows == 0 or columns == 0:
        raise InvalidInput(f"{path.name} has the shape ({rows}, {columns}); there is nothing to compute")
    return rows, columns


def _peek_file(file: Path, id_column: str | None) -> tuple[int | None, int | None]:
    suffix = _suffix(file)
    if suffix in (".npy", ".npz"):
        _no_ids(file, id_column)
        shape = archives.shape(file) if suffix == ".npz" else map_array(file).shape
        if len(shape) != 2:
            raise InvalidInput(f"{file.name} has the shape {shape}; expected 2 dimensions (rows, columns)")
        return shape[0], shape[1]
    if suffix == ".parquet":
        table = tables.parquet_table(file, id_column)
    else:
        table = tables.csv_table(file, id_column)
    return table.rows, table.columns


def _no_ids(file: Path, id_column: str | None) -> None:
    if id_column is not None:
        raise InvalidInput(
            f"{file.name} has no columns with names, so no {id_column!r} that could name its rows; save it as CSV or "
            "Parquet, matrix and queries alike, or leave the ids away"
        )


@dataclass(frozen=True, slots=True)
class _Dense:
    """Rows of one mapped array."""

    array: NDArray[Any]

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape[0], self.array.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def read(self, start: int, stop: int) -> Rows:
        return self.array[start:stop]

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def portion(self, start: int, stop: int) -> "_Dense":
        return _Dense(self.array[start:stop])


@dataclass(frozen=True, slots=True)
class _Sparse:
    """Rows of a CSR matrix; entries given twice are summed, as SciPy does."""

    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]
    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    def read(self, start: int, stop: int) -> Rows:
        dense = np.zeros((stop - start, self.shape[1]), dtype=self.dtype)
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        target = np.repeat(np.arange(stop - start), np.diff(self.indptr[start : stop + 1]))
        np.add.at(dense, (target, self.indices[first:last]), self.data[first:last])
        return dense

    def read_sparse(self, start: int, stop: int) -> SparseRows:
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        begins = self.indptr[start : stop + 1]
        return SparseRows.of(begins, self.indices[first:last], self.data[first:last], self.shape[1])

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.indices.nbytes + self.indptr.nbytes

    def portion(self, start: int, stop: int) -> "_Sparse":
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        indptr = self.indptr[start : stop + 1] - self.indptr[start]
        return _Sparse(self.data[first:last], self.indices[first:last], indptr, (stop - start, self.shape[1]))


class Described(Protocol):
    """What is known of a matrix by whoever need not read its rows."""

    rows: int
    columns: int
    dtype: np.dtype[Any]
    names: list[str]

    @property
    def ids(self) -> pa.DataType | None:
        """Type of the ids; None where no id column was named."""
        ...

    @property
    def id_bytes(self) -> int:
        """Size of all ids, as a result has them."""
        ...

    @property
    def elements(self) -> int:
        """How many are stored: of dense rows all."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether all of it is CSR."""
        ...

    def id_batches(self) -> Iterator[pa.Array]:
        """Yield the ids in the order of the rows."""
        ...


class Matrix:
    """Rows from one or several files.

    Attributes:
        rows: Number of rows, N.
        columns: Number of columns, D.
        dtype: Type of what is read: the files' common one.
        names: The files, in order.
        id_files: One for each file, with its ids, where an id column was named.
    """

    def __init__(
        self,
        parts: list[_Dense | _Sparse],
        names: list[str],
        id_files: list[Path],
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        """Join the parts, one for each name; what is read is of ``dtype``, or of their common type.

        Raises:
            InvalidInput: Their widths differ, or there is no row or no column.
        """
        self.columns = parts[0].shape[1]
        for name, part in zip(names, parts, strict=True):
            if part.shape[1] != self.columns:
                raise InvalidInput(
                    f"{name} has {part.shape[1]} columns, {names[0]} has {self.columns}; one matrix has one width"
                )
        self._starts = np.cumsum([0, *(part.shape[0] for part in parts)])
        self.rows = int(self._starts[-1])
        if self.rows == 0 or self.columns == 0:
            raise InvalidInput(f"the matrix has the shape ({self.rows}, {self.columns}); there is nothing to compute")
        self.dtype = np.result_type(*(part.dtype for part in parts)) if dtype is None else dtype
        self.names = names
        self.id_files = id_files
        self._parts = parts

    @property
    def sparse(self) -> bool:
        """Whether all parts are CSR."""
        return all(isinstance(part, _Sparse) for part in self._parts)

    @property
    def elements(self) -> int:
        """Number of elements that are stored: N * D, of CSR parts only those that the file has."""
        return sum(len(part.data) if isinstance(part, _Sparse) else part.array.size for part in self._parts)

    @property
    def files(self) -> list[tuple[str, int, np.dtype[Any]]]:
        """The name, number of rows and type of each file."""
        return [(name, part.shape[0], part.dtype) for name, part in zip(self.names, self._parts, strict=True)]

    @property
    def nbytes(self) -> int:
        """Size of the rows as the files have them, and as a portion that is pickled has them."""
        return sum(part.nbytes for part in self._parts)

    def as_type(self, dtype: np.dtype[Any]) -> "Matrix":
        """Return the same rows, read as ``dtype``."""
        return self if dtype == self.dtype else Matrix(self._parts, self.names, self.id_files, dtype)

    @property
    def ids(self) -> pa.DataType | None:
        """Type of the ids; None where no id column was named."""
        return pq.read_schema(self.id_files[0]).field(0).type if self.id_files else None

    @property
    def id_bytes(self) -> int:
        """Size of all ids, as a result has them: neither is compressed."""
        return sum(plain_bytes(pq.read_metadata(file)) for file in self.id_files)

    def id_batches(self) -> Iterator[pa.Array]:
        """Yield the ids in the order of the rows."""
        for file in self.id_files:
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(batch_size=ID_ROWS):
                    yield batch.column(0)

    def portion(self, start: int, stop: int, dtype: np.dtype[Any] | None = None) -> "Matrix":
        """Return rows start to stop as a matrix of its own, without ids; its arrays are views, until it is pickled."""
        parts, names = [], []
        for part, name, begin in zip(self._parts, self.names, self._starts.tolist(), strict=False):
            low, high = max(start, begin), min(stop, begin + part.shape[0])
            if low < high:
                parts.append(part.portion(low - begin, high - begin))
                names.append(name)
        return Matrix(parts, names, [], self.dtype if dtype is None else dtype)

    def read(self, start: int, stop: int) -> Rows:
        """Return rows[stop - start, D]: a view of the mapped file where they lie in one."""
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        if stop <= self._starts[first + 1]:
            offset = int(self._starts[first])
            return self._parts[first].read(start - offset, stop - offset).astype(self.dtype, copy=False)
        rows = np.empty((stop - start, self.columns), dtype=self.dtype)
        for part, begin in zip(self._parts, self._starts.tolist(), strict=False):
            low, high = max(start, begin), min(stop, begin + part.shape[0])
            if low < high:
                rows[low - start : high - start] = part.read(low - begin, high - begin)
        return rows

    def read_sparse(self, start: int, stop: int) -> SparseRows:
        """Return the same rows of a matrix that is ``sparse``, by their elements."""
        found = [
            part.read_sparse(max(start, begin) - begin, min(stop, begin + part.shape[0]) - begin)
            for part, begin in zip(self._parts, self._starts.tolist(), strict=False)
            if isinstance(part, _Sparse) and max(start, begin) < min(stop, begin + part.shape[0])
        ]
        return found[0] if len(found) == 1 and found[0].dtype == self.dtype else SparseRows.joined(found, self.dtype)


def open_matrix(path: Path, scratch: Path, id_column: str | None = None) -> Matrix:
    """Map the matrix at ``path``; what cannot be mapped as it is, is first brought into ``scratch``, once.

    Raises:
        InvalidInput: The files are no matrix; the message names the file, and the row and column where it can.
    """
    parts: list[_Dense | _Sparse] = []
    id_files: list[Path] = []
    files = matrix_files(path)
    if id_column is not None:
        _check_ids(files, id_column)
    for _, file in files:
        if _suffix(file) == ".npy":
            _no_ids(file, id_column)
            array = map_array(file)
            if array.flags.c_contiguous and array.dtype.isnative:
                parts.append(_Dense(array))
                continue
        folder = _converted(file, scratch, id_column)
        parts.append(_open_converted(folder))
        if id_column is not None:
            id_files.append(folder / IDS)
    return Matrix(parts, [name for name, _ in files], id_files)


def alike(matrices: Sequence[Matrix]) -> list[Matrix]:
    """Return matrices whose rows are compared with each other's, all read as their common type.

    That changes no score, since each element stays what it is as float64: the common type either holds all numbers of
    both, or is float64 (that of int64 and uint64, say, which round beyond 2**53 as the definition does).
    """
    dtype = np.result_type(*(matrix.dtype for matrix in matrices))
    return [matrix.as_type(dtype) for matrix in matrices]


def _check_ids(files: list[tuple[str, Path]], id_column: str) -> None:
    """Compare the types of the id columns, by the files' beginnings alone: the ids are written when all is computed."""
    first: pa.DataType | None = None
    for name, file in files:
        if _suffix(file) in (".npy", ".npz"):
            _no_ids(file, id_column)
        reading = tables.parquet_table if _suffix(file) == ".parquet" else tables.csv_table
        found = reading(file, id_column).ids
        if first is not None and found != first:
            raise InvalidInput(
                f"the id column {id_column!r} of {name} is {word(found)}, that of {files[0][0]} is {word(first)} "
                "(a CSV's is text); write all files with one type"
            )
        first = found


def _open_converted(folder: Path) -> _Dense | _Sparse:
    if (folder / ROWS).exists():
        return _Dense(map_array(folder / ROWS))
    rows, columns = map_array(folder / SHAPE, 1).tolist()
    data, indices, indptr = (map_array(folder / name, 1) for name in (DATA, INDICES, INDPTR))
    return _Sparse(data, indices, indptr, (rows, columns))


def _converted(file: Path, scratch: Path, id_column: str | None) -> Path:
    """Return the folder with the file's arrays, made now unless it is there.

    Several tasks of an instance may do so at the same time: each writes beside, the first renames.
    """
    found = file.resolve().stat()
    identity = json.dumps([str(file), found.st_size, found.st_mtime_ns, id_column])
    folder = scratch / hashlib.sha256(identity.encode()).hexdigest()[:32]
    if folder.exists():
        return folder
    scratch.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=scratch))
    try:
        _convert(file, beside, id_column)
        beside.rename(folder)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise NoRoom(f"the disk of {scratch} became full while {file.name} was converted to rows") from error
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def _convert(file: Path, folder: Path, id_column: str | None) -> None:
    suffix = _suffix(file)
    if suffix == ".npy":
        _straighten(map_array(file), folder / ROWS)
        return
    if suffix == ".npz":
        _no_ids(file, id_column)
        archives.extract(file, folder)
        for name in (ROWS, DATA, INDICES, INDPTR):
            if (folder / name).exists():
                _straighten_in_place(folder / name, 2 if name == ROWS else 1)
        return
    reading = tables.read_parquet if suffix == ".parquet" else tables.read_csv
    _write_table(file, reading(file, id_column), folder)


def _straighten_in_place(path: Path, dimensions: int) -> None:
    array = map_array(path, dimensions)
    if array.flags.c_contiguous and array.dtype.isnative:
        return
    straight = path.with_suffix(".straight")
    _straighten(array, straight)
    straight.replace(path)


def _straighten(array: NDArray[Any], target: Path) -> None:
    """Write a Fortran-ordered or byte-swapped array in C order."""
    write_array(target, array, max(1, CHUNK_BYTES * len(array) // max(1, array.nbytes)))


def _write_table(file: Path, batches: Iterator[tables.Batch], folder: Path) -> None:
    first = next(batches, None)
    if first is None:
        raise InvalidInput(f"{file.name} has no rows; there is nothing to compute")
    ids = None if first.ids is None else _id_writer(folder / IDS, first.ids.type)
    try:
        with RowWriter(folder / ROWS, first.rows.shape[1], first.rows.dtype) as writer:
            batch: tables.Batch | None = first
            while batch is not None:
                writer.write(batch.rows)
                if ids is not None:
                    # By batches, which Arrow joins to row groups; by tables each would be one, of a few thousand rows.
                    ids.write_batch(pa.record_batch([batch.ids], schema=ids.schema), ID_ROWS)
                batch = next(batches, None)
    finally:
        if ids is not None:
            ids.close()


def _id_writer(path: Path, kind: pa.DataType) -> pq.ParquetWriter:
    # Without a dictionary its size is that of the values.
    return pq.ParquetWriter(path, pa.schema([("id", kind)]), use_dictionary=False)
