"""A Parquet file of numbers that are not touched on their way: written, digested, and renamed to its place.

What flows in are row groups, what flows out is a file, its size and its digest. An array of numbers goes out as it lies
in memory: pages of plain values, between headers that are made here. Anything else is written by Arrow, and so is what
the headers say of schema and types.

Numbers are not compressed. 10^7 rows of top-10 take 1.24 GB and 1.8 s so, the time of the disk and of the digest; by
Arrow with zstd they took 0.69 GB and 7.7 s (similarities hardly shrink, neighbors are half zero bytes): that is sooner
only where the file then travels below 90 MB/s. Arrow's levels, two for each number, cost 1.7 s of a core by themselves;
where all lists have one length they are known before.
"""

import functools
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.contract.store import replacing
from raysm.workloads.gather import full_disk_is_no_room
from raysm.workloads.stream import Stream
from raysm.workloads.thrift import I32, I64, LIST, STRUCT, Struct, decode, encode, varint

__all__ = ["Buffers", "Column", "RowGroups", "write_parquet"]

Buffers: TypeAlias = list[bytes | memoryview]

Column: TypeAlias = NDArray[Any] | pa.Array
"""``[n]`` or ``[n, k]`` numbers, written as they are; an Arrow array of what compresses."""

MAGIC = b"PAR1"

PAGE_BYTES = 1 << 20
"""About so many bytes of values make a page, as Arrow has it."""

# Numbers of fields and of values in parquet.thrift, as far as they are needed here.
FILE_ROWS, FILE_GROUPS = 3, 4
GROUP_CHUNKS, GROUP_BYTES, GROUP_ROWS, GROUP_OFFSET, GROUP_COMPRESSED = 1, 2, 3, 5, 6
CHUNK_META = 3
META_ENCODINGS, META_VALUES, META_BYTES, META_COMPRESSED, META_OFFSET = 2, 5, 6, 7, 9
PLAIN, RLE = 0, 3


def write_parquet(path: Path, schema: pa.Schema, groups: Iterable[Sequence[Column]], *inner: int) -> ResultFile:
    """Write one Parquet file, the columns of each of ``groups`` as one row group of it.

    The bytes depend on the groups alone: give them sizes that do not depend on who computed them. Their arrays must
    stay as they are; at most ``stream.PIECES`` groups, and one that is being made, are held.

    Args:
        path: Where to.
        schema: As ``RowGroups`` has it.
        groups: Columns of equal length.
        inner: What the result's shape has beside the number of rows: the k of top-k.

    Raises:
        NoRoom: The disk became full.
    """
    made = RowGroups(schema)
    with full_disk_is_no_room(path), replacing(path) as beside:
        stream = Stream(beside, MAGIC)
        try:
            for group in groups:
                stream.put(made.position, made.add(group))
            stream.put(made.position, [made.footer()])
        finally:
            stream.close()
        sha256 = stream.finish()
        beside.chmod(0o644)
        size = beside.stat().st_size
    return ResultFile(
        name=path.name,
        shape=(made.rows, *inner),
        bytes=size,
        sha256=sha256,
        how_to_read=f'import pyarrow.parquet; table = pyarrow.parquet.read_table("{path.name}")',
    )


class RowGroups:
    """The row groups of one file, which begins with ``MAGIC``."""

    def __init__(self, schema: pa.Schema) -> None:
        """Begin with none.

        Args:
            schema: Columns that are never null; lists are of fixed size, of elements that are never null.
        """
        self.rows = 0
        """Of all groups."""
        self.position = len(MAGIC)
        """Where the next group begins."""
        self._schema = schema
        # ``empty_table`` would first import pandas where it is installed.
        empty_table = pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        self._footer = _footer(_written(empty_table))
        (empty,) = self._footer[FILE_GROUPS][1][1]
        self._chunks: list[Struct] = empty[GROUP_CHUNKS][1][1]
        self._groups: list[Struct] = []

    def add(self, columns: Sequence[Column]) -> Buffers:
        """Return the bytes of one more group; those of its arrays are the arrays' own."""
        rows, begin = len(columns[0]), self.position
        buffers: Buffers = []
        chunks: list[Struct] = []
        plain_bytes = 0
        for column, field, chunk in zip(columns, self._schema, self._chunks, strict=True):
            assert len(column) == rows
            if isinstance(column, np.ndarray):
                own: Buffers = list(_pages(column))
                meta = chunk[CHUNK_META][1] | {META_ENCODINGS: (LIST, (I32, [PLAIN, RLE]))}
                meta |= {META_VALUES: (I64, column.size)}
                meta[META_BYTES] = meta[META_COMPRESSED] = (I64, sum(map(len, own)))
            else:
                own, meta = _compressed(column, field)
            meta[META_OFFSET] = (I64, self.position)
            chunks.append(chunk | {CHUNK_META: (STRUCT, meta)})
            plain_bytes += meta[META_BYTES][1]
            self.position += meta[META_COMPRESSED][1]
            buffers += own
        self.rows += rows
        self._groups.append(
            {
                GROUP_CHUNKS: (LIST, (STRUCT, chunks)),
                GROUP_BYTES: (I64, plain_bytes),
                GROUP_ROWS: (I64, rows),
                GROUP_OFFSET: (I64, begin),
                GROUP_COMPRESSED: (I64, self.position - begin),
            }
        )
        return buffers

    def footer(self) -> bytes:
        """Return what stands after the last group."""
        footer = encode(
            self._footer | {FILE_ROWS: (I64, self.rows), FILE_GROUPS: (LIST, (STRUCT, self._groups))},
        )
        return footer + struct.pack("<I", len(footer)) + MAGIC


def _written(table: pa.Table, compression: str = "none") -> memoryview:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, compression=compression, use_dictionary=False, write_statistics=False, row_group_size=1 << 62
    )
    return memoryview(sink.getvalue()).cast("B")


def _footer(file: memoryview) -> Struct:
    (size,) = struct.unpack("<I", file[-8:-4])
    return decode(file[-8 - size : -8])


def _compressed(column: pa.Array, field: pa.Field) -> tuple[Buffers, Struct]:
    """Return a chunk as Arrow writes it, and what the footer says of it."""
    schema = pa.schema([field])
    file = _written(pa.Table.from_arrays([column], schema=schema), "zstd")
    (group,) = _footer(file)[FILE_GROUPS][1][1]
    meta: Struct = group[GROUP_CHUNKS][1][1][0][CHUNK_META][1]
    begin = meta[META_OFFSET][1]
    return [file[begin : begin + meta[META_COMPRESSED][1]]], meta


def _pages(values: NDArray[Any]) -> Iterator[bytes | memoryview]:
    """Yield headers and plain values of ``values[n]`` or ``values[n, k]``, in turn."""
    values = np.ascontiguousarray(values)
    row_bytes = values.strides[0] if len(values) else 1
    step = max(1, PAGE_BYTES // row_bytes)
    for start in range(0, len(values), step):
        page = values[start : start + step]
        yield _head(*page.shape, value_bytes=page.nbytes)
        yield page.data.cast("B")


@functools.lru_cache(maxsize=4)
def _head(rows: int, k: int = 0, *, value_bytes: int) -> bytes:
    """Return what stands before the values of one page; k is 0 where each row has one number, and no list."""
    levels = b""
    if k:
        # A list begins where the repetition level is 0; no list is empty, so the definition level is 1 throughout.
        repeats = np.ones((rows, k), dtype=np.uint8)
        repeats[:, 0] = 0
        packed = varint(-(-rows * k // 8) << 1 | 1) + np.packbits(repeats, bitorder="little").tobytes()
        defined = varint(rows * k << 1) + b"\1"
        levels = b"".join(struct.pack("<I", len(one)) + one for one in (packed, defined))
    size = len(levels) + value_bytes
    page: Struct = {1: (I32, rows * max(1, k)), 2: (I32, PLAIN), 3: (I32, RLE), 4: (I32, RLE)}
    return encode({1: (I32, 0), 2: (I32, size), 3: (I32, size), 5: (STRUCT, page)}) + levels
