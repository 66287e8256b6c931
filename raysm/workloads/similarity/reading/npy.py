"""``.npy`` files: opened without ever unpickling, written row by row."""

import ast
import math
import mmap
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput
from raysm.workloads.mapping import MapPages, map_file

__all__ = [
    "HEADER_BYTES",
    "ArrayLayout",
    "RowWriter",
    "Unmappable",
    "header",
    "map_array",
    "read_header",
    "read_layout",
    "write_array",
]

MAGIC = b"\x93NUMPY\x01\x00"

HEADER_BYTES = 128
"""Every header that ``header`` makes has this size, so that it can be written last."""

MAX_HEADER_BYTES = 64 << 10

REAL_KINDS = "fiub"
"""float, int, unsigned, bool."""


def header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return the 128 bytes before the data of a C-ordered array."""
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": shape})
    length = HEADER_BYTES - len(MAGIC) - 2
    return MAGIC + struct.pack("<H", length) + text.ljust(length - 1).encode("latin1") + b"\n"


def read_header(stream: BinaryIO, where: str) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Read a header; return shape, type and whether the order is Fortran's, and leave the stream at the data.

    Raises:
        InvalidInput: It is no ``.npy``, or the type is not one of real numbers.
    """
    magic = stream.read(8)
    if len(magic) < 8 or magic[:6] != MAGIC[:6] or magic[6] not in (1, 2, 3):
        raise InvalidInput(
            f"{where} is not a .npy file: it does not begin with the .npy signature; write it with numpy.save"
        )
    size = 2 if magic[6] == 1 else 4
    prefix = stream.read(size)
    length = int.from_bytes(prefix, "little")
    # Before it is read: four bytes of length can claim 4 GiB.
    if len(prefix) < size or length > MAX_HEADER_BYTES:
        raise InvalidInput(f"{where} is not a complete .npy file: its header is truncated; write it again")
    try:
        fields = ast.literal_eval(stream.read(length).decode("utf-8" if magic[6] == 3 else "latin1"))
        shape, order, descr = fields["shape"], fields["fortran_order"], fields["descr"]
        dtype = np.dtype(descr) if isinstance(descr, str) else np.dtype([tuple(field) for field in descr])
    # The last two are what Python's parser raises of a text that is nested too deeply.
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError) as error:
        raise InvalidInput(f"{where} is not a valid .npy file: its header cannot be read ({error})") from error
    if dtype.hasobject:
        raise InvalidInput(f"{where} holds Python objects, which raysm never unpickles; save numbers (float32, say)")
    if dtype.kind not in REAL_KINDS or dtype.itemsize > 8:
        raise InvalidInput(f"{where} holds {dtype}; a matrix is of float16/32/64, integers or bool")
    _check_layout(where, shape, order, dtype.itemsize)
    return shape, dtype, order


def _check_layout(where: str, shape: Any, order: Any, itemsize: int) -> None:
    if not isinstance(shape, tuple) or not all(type(length) is int and length >= 0 for length in shape):
        raise InvalidInput(
            f"{where} is not a valid .npy file: its shape is {shape!r}, not a tuple of non-negative integers"
        )
    # An axis of no length makes no other one addressable.
    # Not NumPy's prod, whose integers wrap: 2**32 times 2**32 would be 0.
    if math.prod(max(1, length) for length in shape) * itemsize > sys.maxsize:
        raise InvalidInput(f"{where} has the shape {shape}, more than any memory can hold; write it again")
    # The text 'False' would count as true, and the matrix would be read transposed.
    if not isinstance(order, bool):
        raise InvalidInput(f"{where} is not a valid .npy file: 'fortran_order' is {order!r}, neither True nor False")


class Unmappable(InvalidInput):
    """The file system of an array maps no files."""


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """Where the elements of a ``.npy`` lie."""

    shape: tuple[int, ...]
    """Its lengths."""
    dtype: np.dtype[Any]
    """Of its elements."""
    fortran: bool
    """Whether the first index runs fastest."""
    offset: int
    """Bytes before the first element."""


def read_layout(path: Path, dimensions: int = 2) -> ArrayLayout:
    """Read what a file's header says, and compare it with the file's size.

    Raises:
        InvalidInput: It is truncated, or has another number of dimensions.
    """
    with path.open("rb") as stream:
        shape, dtype, fortran = read_header(stream, path.name)
        offset = stream.tell()
    if len(shape) != dimensions:
        raise InvalidInput(f"{path.name} has the shape {shape}; expected {dimensions} dimensions (rows, columns)")
    size = math.prod(shape) * dtype.itemsize
    available = path.stat().st_size - offset
    if available < size:
        raise InvalidInput(
            f"{path.name} is truncated: {shape} of {dtype} need {size} bytes, it has {available}; write it again"
        )
    return ArrayLayout(shape, dtype, fortran, offset)


def map_array(path: Path, dimensions: int = 2, map_pages: MapPages = mmap.mmap) -> NDArray[Any]:
    """Map a ``.npy`` into memory, read-only.

    Raises:
        InvalidInput: It is truncated, or has another number of dimensions.
        Unmappable: Where it lies nothing can be mapped: a copy elsewhere can.
    """
    layout = read_layout(path, dimensions)
    if math.prod(layout.shape) == 0:
        # The system maps no file of no bytes, nor a part of none.
        return np.empty(layout.shape, layout.dtype)
    with path.open("rb") as file:
        mapped = map_file(file.fileno(), map_pages)
    if mapped is None:
        raise Unmappable(f"{path} is on a file system that cannot map files into memory; use the input mode File")
    # Not numpy.memmap, which runs Python code for each slice of it, and knows no other mapping than a shared one.
    order: Literal["F", "C"] = "F" if layout.fortran else "C"
    return np.ndarray(layout.shape, layout.dtype, buffer=mapped, offset=layout.offset, order=order)


class RowWriter:
    """Writes a two-dimensional ``.npy`` whose number of rows is known at the end."""

    def __init__(self, path: Path, columns: int, dtype: np.dtype[Any]) -> None:
        """Open ``path`` for rows of that many columns."""
        self.rows = 0
        self.columns = columns
        # This machine's: no kernel reads another byte order, and what is written here is mapped as it is.
        self.dtype = dtype.newbyteorder("=")
        self._file = path.open("wb")
        # Room for the header, which says how many rows there were.
        self._file.write(bytes(HEADER_BYTES))

    def write(self, rows: NDArray[Any]) -> None:
        """Append rows[n, columns]."""
        self._file.write(np.ascontiguousarray(rows, dtype=self.dtype).data.cast("B") if rows.size else b"")
        self.rows += len(rows)

    def close(self) -> None:
        """Write the header, which says how many rows there are."""
        self._file.seek(0)
        self._file.write(header((self.rows, self.columns), self.dtype))
        self._file.close()

    def __enter__(self) -> "RowWriter":
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it."""
        self.close()


def write_array(path: Path, array: NDArray[Any], step: int) -> None:
    """Write an array as one C-ordered ``.npy`` of this machine's byte order, ``step`` of its rows at a time."""
    dtype = array.dtype.newbyteorder("=")
    with path.open("wb") as file:
        file.write(header(array.shape, dtype))
        for start in range(0, len(array), step):
            file.write(np.ascontiguousarray(array[start : start + step], dtype=dtype).tobytes())
