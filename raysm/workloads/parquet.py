"""Write a Parquet file, with its digest, while its row groups still arrive; it gets its name once it is complete.

Nothing is compressed. 10^7 rows of top-10 take 1.24 GB; with zstd they took 0.69 GB and three times as long
(similarities hardly shrink, neighbors are half zero bytes), which pays only if the file then travels below 90 MB/s.
There is no dictionary either, because hardly any value repeats.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raysm.contract.result import ResultFile
from raysm.contract.store import replacing
from raysm.workloads.disk import Stream, full_disk_is_no_room

PIECE_BYTES = 16 << 20
"""About as many bytes are brought to the disk at once."""

BATCH_VALUES = 8192
"""Values that Arrow encodes at a time: with its default of 1,024, lists of ten take half as long again."""


def write_parquet(
    path: Path,
    schema: pa.Schema,
    groups: Iterable[Sequence[pa.Array]],
    *,
    inner: tuple[int, ...] = (),
    units: tuple[str, ...] = ("rows",),
    statistics: Sequence[str] = (),
) -> ResultFile:
    """Write one Parquet file, the columns of each of ``groups`` as one row group of it.

    The bytes depend on the groups alone: give them sizes that do not depend on who computed them. At most
    ``disk.PIECES`` pieces of the file, and one group that is being made, are held.

    Args:
        path: The file.
        schema: Names and types of the columns.
        groups: Columns of equal length.
        inner: The result's shape beside the number of rows: the k of top-k.
        units: What the lengths of that shape count.
        statistics: Columns whose least and largest value of each group are kept: readers then skip groups.
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
                    # With its own length as the size of a group: Arrow would cut a longer table at 1,048,576 rows.
                    writer.write_table(pa.Table.from_arrays(list(columns), schema=schema), len(columns[0]))
                    rows += len(columns[0])
            # Only now: closing the writer has put the file's footer into the sink.
            sink.flush()
            sha256 = stream.finish()
        finally:
            # Also after an error, before the file is removed: its threads may still be writing.
            stream.close()
        size = beside.stat().st_size
    return ResultFile(
        name=path.name,
        shape=(rows, *inner),
        bytes=size,
        sha256=sha256,
        units=units,
        how_to_read=f'import pyarrow.parquet as pq; table = pq.read_table("{path.name}")',
    )


class _Sink:
    """What Arrow writes to, as to a file that only grows: small pieces are put into the stream together."""

    # Arrow also reads this, and calls ``tell``, as for any file of Python's.
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
            self._waiting, self._waiting_bytes = [], 0

    def tell(self) -> int:
        return self._position + self._waiting_bytes

    def close(self) -> None:
        # The stream stays open: ``finish`` has yet to wait for the disk, and to give the digest.
        self.closed = True
