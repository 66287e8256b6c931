"""``.npy`` and ``.npz`` files: opened without ever unpickling, mapped, and written row by row.

An ``.npz`` has one dense array, or the arrays of a SciPy CSR matrix; they are extracted to ``.npy``
files that are mapped.
"""

import contextlib
import io
import math
import shutil
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.arithmetic.sparse_rows import MAX_COLUMNS
from raysm.instance.work.disk import map_file


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int


HEADER_BYTES = 128
"""Size of every header that ``header`` makes; it is fixed, so that the header can be written
last."""

MAX_HEADER_BYTES = 64 << 10
REAL_KINDS = "fiub"
READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""Readers by version; NumPy writes version 3 only for structured types with names that are not
Latin-1."""


def header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return the 128 bytes before the data of a C-ordered array."""
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": shape})
    length = HEADER_BYTES - 10
    return (
        np.lib.format.magic(1, 0)
        + struct.pack("<H", length)
        + text.ljust(length - 1).encode("latin1")
        + b"\n"
    )


def read_header(stream: BinaryIO, where: str) -> ArrayLayout:
    # A small file can claim a header of 4 GiB, for which NumPy would allocate memory. So it reads
    # from this piece.
    beginning = io.BytesIO(stream.read(MAX_HEADER_BYTES))
    try:
        read = READ_HEADER[np.lib.format.read_magic(beginning)]
        shape, fortran, dtype = read(beginning, max_header_size=MAX_HEADER_BYTES)
    # Python's parser raises the last three for a text that is nested too deeply, or ends too early.
    except (
        ValueError,
        KeyError,
        TypeError,
        MemoryError,
        RecursionError,
        SyntaxError,
        tokenize.TokenError,
    ) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InvalidInput(
            f"{where} is not a valid .npy file ({reason}); write it with numpy.save"
        ) from error
    if dtype.hasobject:
        raise InvalidInput(
            f"{where} holds Python objects, which raysm never unpickles; save numbers (float32, "
            "say)"
        )
    if dtype.kind not in REAL_KINDS or dtype.itemsize > 8:
        raise InvalidInput(f"{where} holds {dtype}; a matrix is of float16/32/64, integers or bool")
    # Not numpy.prod, whose integers overflow: 2**32 times 2**32 would be 0.
    if any(type(length) is not int or length < 0 for length in shape) or (
        math.prod(max(1, length) for length in shape) * dtype.itemsize > sys.maxsize
    ):
        raise InvalidInput(
            f"{where} has the shape {shape}, which no array can have; write it again"
        )
    return ArrayLayout(shape, dtype, fortran, beginning.tell())


class Unmappable(InvalidInput):
    """The file system of an array cannot map files into memory."""


def read_layout(path: Path, dimensions: int = 2) -> ArrayLayout:
    """Read a file's header; compare it with the file's size and the number of dimensions."""
    with path.open("rb") as stream:
        layout = read_header(stream, path.name)
    shape = layout.shape
    dtype = layout.dtype
    if len(shape) != dimensions:
        raise InvalidInput(
            f"{path.name} has the shape {shape}; expected {dimensions} dimensions (rows, columns)"
        )
    size = math.prod(shape) * dtype.itemsize
    available = path.stat().st_size - layout.offset
    if available < size:
        raise InvalidInput(
            f"{path.name} is truncated: {shape} of {dtype} need {size} bytes, it has {available}; "
            "write it again"
        )
    return layout


def map_array(path: Path, dimensions: int = 2) -> NDArray[Any]:
    """Map a ``.npy`` into memory, read-only; ``Unmappable`` if its file system cannot map files."""
    layout = read_layout(path, dimensions)
    if math.prod(layout.shape) == 0:
        # mmap refuses an empty file, and an empty part of one.
        return np.empty(layout.shape, layout.dtype)
    with path.open("rb") as file:
        mapped = map_file(file.fileno())
    if mapped is None:
        raise Unmappable(
            f"{path} is on a file system that cannot map files into memory; use the input mode File"
        )
    # Not numpy.memmap, which runs Python code for each slice, and cannot use the mapping of
    # ``map_file``.
    order: Literal["F", "C"] = "F" if layout.fortran else "C"
    return np.ndarray(layout.shape, layout.dtype, buffer=mapped, offset=layout.offset, order=order)


def write_rows(
    path: Path, row_shape: tuple[int, ...], dtype: np.dtype[Any], pieces: Iterable[NDArray[Any]]
) -> None:
    """Write pieces[n, *row_shape] as one C-ordered ``.npy`` of this machine's byte order."""
    dtype = dtype.newbyteorder("=")
    count = 0
    with path.open("wb") as file:
        # Room for the header, which is written last: the number of rows is known only then.
        file.write(bytes(HEADER_BYTES))
        for piece in pieces:
            file.write(
                np.ascontiguousarray(piece, dtype=dtype).data.cast("B") if piece.size else b""
            )
            count += len(piece)
        file.seek(0)
        file.write(header((count, *row_shape), dtype))


CHUNK_BYTES = 8 << 20
SPARSE_MEMBERS = ("data", "indices", "indptr")


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    # zipfile raises NotImplementedError for a compression that it does not know.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise InvalidInput(
            f"{path.name} is not a complete .npz archive ({error}); write it with numpy.savez"
        ) from error


def _members(archive: zipfile.ZipFile, path: Path) -> tuple[str, ...]:
    """Return the names of the arrays: ``SPARSE_MEMBERS``, or one dense array."""
    members = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if {"format", "shape"} <= set(members):
        with archive.open("format.npy") as stream:
            # SciPy writes bytes or, in some versions, text with four bytes for each letter.
            text = (
                stream.read(1024)[-16:].decode("latin1").replace("\0", "").split("\n")[-1].strip()
            )
        if text != "csr":
            raise InvalidInput(
                f"{path.name} is a sparse matrix in the format {text!r}; convert it with .tocsr()"
            )
        missing = [name for name in SPARSE_MEMBERS if name not in members]
        if missing:
            raise InvalidInput(
                f"{path.name} is not a valid CSR matrix: it lacks {', '.join(missing)}"
            )
        return SPARSE_MEMBERS
    if len(members) != 1:
        names = ", ".join(members) or "none"
        raise InvalidInput(
            f"{path.name} must hold exactly one array, or a SciPy CSR matrix; it holds {names}"
        )
    return (members[0],)


def archive_shape(path: Path) -> tuple[int, ...]:
    with _archive(path) as archive:
        members = _members(archive, path)
        if members == SPARSE_MEMBERS:
            return _sparse_shape(archive, path)
        with archive.open(f"{members[0]}.npy") as stream:
            return read_header(cast(BinaryIO, stream), path.name).shape


def _sparse_shape(archive: zipfile.ZipFile, path: Path) -> tuple[int, ...]:
    with archive.open("shape.npy") as stream:
        content = stream.read(MAX_HEADER_BYTES)
    layout = read_header(io.BytesIO(content), path.name)
    data = content[layout.offset :]
    if (
        layout.shape != (2,)
        or len(data) != 2 * layout.dtype.itemsize
        or layout.dtype.kind not in "iu"
    ):
        raise InvalidInput(
            f"{path.name}: a CSR matrix has two dimensions, its shape member is {layout.dtype} of "
            f"shape {layout.shape}"
        )
    rows, columns = np.frombuffer(data, dtype=layout.dtype).tolist()
    if rows < 0 or not 0 <= columns <= MAX_COLUMNS:
        raise InvalidInput(
            f"{path.name} has the shape ({rows}, {columns}); a CSR matrix has at most "
            f"{MAX_COLUMNS} columns"
        )
    return rows, columns


def extract_archive(path: Path, folder: Path) -> None:
    """Write the archive's arrays into ``folder``: ``rows.npy``, or the arrays of CSR."""
    with _archive(path) as archive:
        members = _members(archive, path)
        if members != SPARSE_MEMBERS:
            _extract_member(archive, members[0], folder / "rows.npy", path)
            return
        rows, columns = _sparse_shape(archive, path)
        for name in members:
            _extract_member(archive, name, folder / f"{name}.npy", path)
    np.save(folder / "shape.npy", np.array([rows, columns], dtype=np.int64))
    data, indices, indptr = (map_array(folder / f"{name}.npy", 1) for name in SPARSE_MEMBERS)
    wrong = f"{path.name} is not a valid CSR matrix"
    if (
        len(indptr) != rows + 1
        or len(data) != len(indices)
        or indptr.dtype.kind != "i"
        or indices.dtype.kind != "i"
    ):
        raise InvalidInput(f"{wrong}: its arrays do not fit its shape ({rows}, {columns})")
    # In steps, because the arrays may be larger than the memory.
    step = CHUNK_BYTES // 8
    # Compare instead of subtracting: the difference of two int64 may overflow.
    later = indptr[1:]
    earlier = indptr[:-1]
    rises = all(
        np.all(later[start : start + step] >= earlier[start : start + step])
        for start in range(0, rows, step)
    )
    if indptr[0] != 0 or indptr[-1] != len(indices) or not rises:
        raise InvalidInput(f"{wrong}: indptr does not rise from 0 to the number of elements")
    for start in range(0, len(indices), step):
        part = indices[start : start + step]
        if part.min() < 0 or part.max() >= columns:
            raise InvalidInput(f"{wrong}: a column index is outside 0 to {columns - 1}")


def _extract_member(archive: zipfile.ZipFile, name: str, target: Path, path: Path) -> None:
    # Check the header first, to refuse an array that is not a matrix before it is written.
    with archive.open(f"{name}.npy") as stream:
        read_header(cast(BinaryIO, stream), f"{path.name}: {name}")
    # Open it again from the beginning: the extracted file needs the header too.
    with archive.open(f"{name}.npy") as source, target.open("wb") as written:
        shutil.copyfileobj(source, written, CHUNK_BYTES)
