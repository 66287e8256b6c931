"""Write a Parquet file, with its digest, while its row groups still arrive.

It gets its name once it is complete.

Nothing is compressed. 10^7 rows of top-10 take 1.24 GB; with zstd they took 0.69 GB and three times
as long (similarities hardly shrink, neighbors are half zero bytes), which pays only if the file
then travels below 90 MB/s. There is no dictionary either, because hardly any value repeats.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raysm.core.protocol.result import ResultFile
from raysm.core.protocol.store import replacing
from raysm.instance.work.disk import Stream, full_disk_is_no_room

PIECE_BYTES = 16 << 20
"""About this many bytes are written to the disk at once."""

BATCH_VALUES = 8192
"""Values that Arrow encodes at a time; with its default of 1,024, writing lists of ten takes 1.5
times as long."""


def write_parquet(
    path: Path,
    schema: pa.Schema,
    groups: Iterable[Sequence[pa.Array]],
    *,
    inner: tuple[int, ...] = (),
    units: tuple[str, ...] = ("rows",),
    statistics: Sequence[str] = (),
) -> ResultFile:
    """Write one Parquet file, with one row group for each of ``groups``.

    The bytes depend on the groups alone, so the size of a group must not depend on which instance
    computed it. Memory holds at most ``disk.PIECES`` pieces of the file, and one group.

    Args:
        path: The file.
        schema: Names and types of the columns.
        groups: The columns of each row group, of equal length.
        inner: The result's dimensions after the number of rows: the k of top-k.
        units: The unit of each dimension of the shape.
        statistics: Columns whose minimum and maximum are stored for each group, so that readers can
            skip groups.
    """
    rows = 0
    with full_disk_is_no_room(path), replacing(path) as beside:
        stream = Stream(beside, b"")
        sink = _Sink(stream)
        try:
            with pq.ParquetWriter(
                sink,
                schema,
                compression="none",
                use_dictionary=False,
                write_statistics=list(statistics) or False,
                write_batch_size=BATCH_VALUES,
            ) as writer:
                for columns in groups:
                    # The length is also the group size, because Arrow would cut a longer table at
                    # 1,048,576 rows.
                    writer.write_table(
                        pa.Table.from_arrays(list(columns), schema=schema), len(columns[0])
                    )
                    rows += len(columns[0])
            # After the writer was closed, which put the file's footer into the sink.
            sink.flush()
            sha256 = stream.finish()
        finally:
            # Also after an error: the stream's threads must end before the file is removed.
            stream.close()
        size = beside.stat().st_size
    how = f'import pyarrow.parquet as pq; table = pq.read_table("{path.name}")'
    shape = (rows, *inner)
    return ResultFile(
        name=path.name, shape=shape, bytes=size, sha256=sha256, units=units, how_to_read=how
    )


class _Sink:
    """A file object for Arrow to write to, which joins small pieces for the stream."""

    # Arrow reads this attribute, and calls ``tell``, as of any Python file.
    closed = False

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._waiting: list[bytes | memoryview] = []
        self._waiting_bytes = self._position = 0

    def write(self, data: bytes) -> int:
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= PIECE_BYTES:
            self.flush()
        return len(data)

    def flush(self) -> None:
        if self._waiting:
            self._stream.put(self._position, self._waiting)
            self._position += self._waiting_bytes
            self._waiting = []
            self._waiting_bytes = 0

    def tell(self) -> int:
        return self._position + self._waiting_bytes

    def close(self) -> None:
        # The stream stays open: ``finish`` has yet to wait for the disk, and to give the digest.
        self.closed = True
