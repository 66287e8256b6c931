"""``.npz`` archives: one dense member, or the arrays of a SciPy CSR matrix, extracted to mapped ``.npy`` files."""

import contextlib
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.workloads.similarity.arithmetic.sparse_rows import MOST_COLUMNS
from raysm.workloads.similarity.reading.npy import header, map_array, read_header

__all__ = ["extract", "is_sparse", "shape"]

CHUNK_BYTES = 8 << 20

SPARSE_MEMBERS = ("data", "indices", "indptr")


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    # NotImplementedError is zipfile's of a compression that it does not know.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise InvalidInput(
            f"{path.name} is not a complete .npz archive ({error}); write it with numpy.savez"
        ) from error


def is_sparse(path: Path) -> bool:
    """Return whether the archive is one of ``scipy.sparse.save_npz``.

    Raises:
        InvalidInput: It is truncated, or sparse in another format than CSR.
    """
    with _archive(path) as archive:
        members = set(archive.namelist())
        if "format.npy" not in members or "shape.npy" not in members:
            return False
        with archive.open("format.npy") as stream:
            # As SciPy's versions write it: bytes, or text of four bytes a letter.
            text = stream.read(1024)[-16:].decode("latin1").replace("\0", "").split("\n")[-1].strip()
        if text != "csr":
            raise InvalidInput(f"{path.name} is a sparse matrix in the format {text!r}; convert it with .tocsr()")
        missing = [name for name in SPARSE_MEMBERS if f"{name}.npy" not in members]
        if missing:
            raise InvalidInput(f"{path.name} is not a valid CSR matrix: it lacks {', '.join(missing)}")
        return True


def _dense_member(archive: zipfile.ZipFile, path: Path) -> str:
    members = [name for name in archive.namelist() if name.endswith(".npy")]
    if len(members) != 1:
        names = ", ".join(name.removesuffix(".npy") for name in members) or "none"
        raise InvalidInput(f"{path.name} must hold exactly one array, or a SciPy CSR matrix; it holds {names}")
    return members[0]


def shape(path: Path) -> tuple[int, ...]:
    """Return the matrix's shape from the headers alone.

    Raises:
        InvalidInput: It is truncated, or not a matrix.
    """
    if is_sparse(path):
        with _archive(path) as archive:
            return _sparse_shape(archive, path)
    with _archive(path) as archive, archive.open(_dense_member(archive, path)) as stream:
        return read_header(cast(BinaryIO, stream), path.name)[0]


def _sparse_shape(archive: zipfile.ZipFile, path: Path) -> tuple[int, ...]:
    with archive.open("shape.npy") as stream:
        dimensions, dtype, _ = read_header(cast(BinaryIO, stream), path.name)
        # One byte more than it should have: else a longer member would pass by its beginning.
        data = stream.read(2 * dtype.itemsize + 1)
    whole = dimensions == (2,) and len(data) == 2 * dtype.itemsize and dtype.kind in "iu"
    values = np.frombuffer(data, dtype=dtype).tolist() if whole else []
    if not whole or min(values) < 0:
        shown = values or f"an array of {dtype} of the shape {dimensions}"
        raise InvalidInput(f"{path.name}: a CSR matrix has two dimensions, its shape member says {shown}")
    if values[1] > MOST_COLUMNS:
        raise InvalidInput(f"{path.name} has {values[1]} columns; a CSR matrix has at most {MOST_COLUMNS}")
    return values[0], values[1]


def extract(path: Path, folder: Path) -> None:
    """Write the archive's arrays into ``folder``: ``rows.npy``, or ``data``, ``indices``, ``indptr`` and ``shape``.

    Raises:
        InvalidInput: It is truncated, or not a matrix.
    """
    if not is_sparse(path):
        with _archive(path) as archive:
            _extract_member(archive, _dense_member(archive, path), folder / "rows.npy", path)
        return
    with _archive(path) as archive:
        rows, columns = _sparse_shape(archive, path)
        for name in SPARSE_MEMBERS:
            _extract_member(archive, f"{name}.npy", folder / f"{name}.npy", path)
    shape_array = np.array([rows, columns], dtype=np.int64)
    (folder / "shape.npy").write_bytes(header((2,), shape_array.dtype) + shape_array.tobytes())
    _check_sparse(folder, path, rows, columns)


def _extract_member(archive: zipfile.ZipFile, name: str, target: Path, path: Path) -> None:
    # What can be no matrix is refused before it is written.
    with archive.open(name) as stream:
        read_header(cast(BinaryIO, stream), f"{path.name}: {name}")
    # From the beginning again: the header is part of what is mapped.
    with archive.open(name) as source, target.open("wb") as written:
        shutil.copyfileobj(source, written, CHUNK_BYTES)


def _check_sparse(folder: Path, path: Path, rows: int, columns: int) -> None:
    # A wrong index would read or write outside the arrays: look at each once, here.
    data, indices, indptr = (map_array(folder / f"{name}.npy", 1) for name in SPARSE_MEMBERS)
    if len(indptr) != rows + 1 or len(data) != len(indices) or indptr.dtype.kind != "i" or indices.dtype.kind != "i":
        raise InvalidInput(
            f"{path.name} is not a valid CSR matrix: its arrays do not fit its shape ({rows}, {columns})"
        )
    if indptr[0] != 0 or indptr[-1] != len(indices) or not _all(indptr[1:], indptr[:-1]):
        raise InvalidInput(
            f"{path.name} is not a valid CSR matrix: indptr does not rise from 0 to the number of elements"
        )
    # Some at a time: what is mapped may be larger than the memory.
    step = CHUNK_BYTES // 8
    for start in range(0, len(indices), step):
        part = indices[start : start + step]
        if part.min() < 0 or part.max() >= columns:
            raise InvalidInput(f"{path.name} is not a valid CSR matrix: a column index is outside 0 to {columns - 1}")


def _all(later: NDArray[Any], earlier: NDArray[Any]) -> bool:
    step = CHUNK_BYTES // 8
    return all(
        bool(np.all(later[start : start + step] >= earlier[start : start + step]))
        for start in range(0, len(later), step)
    )
