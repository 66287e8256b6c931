"""Merges recorded parts of pairs into one stream that is sorted by row and neighbor, in bounded memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity import output
from raysm.workloads.similarity.tasks.parts import Part

__all__ = ["merged_pairs", "packed"]


def merged_pairs(
    record: BlockRecord[Part], names: Sequence[str], rows: RowBlock, on_rows: Callable[[int], None]
) -> Iterator[output.PairChunk]:
    """Merge the parts of these names, which are of these rows, sorted by row and neighbor.

    About ``PAIRS_GROUP`` pairs come at a time.

    One part is open at a time, and only the pairs that are merged are copied out of it: a large matrix has more parts
    than a process may have open files.
    """
    counts, bounds = np.zeros(rows.rows, dtype=np.int64), []
    for name in names:
        arrays = record.load(name, mapped_bytes=0).arrays
        # A part names each row once: of an index that came twice, NumPy would add the last alone.
        counts[arrays["rows"] - rows.start] += arrays["counts"]
        bounds.append((int(arrays["rows"][0]), int(arrays["rows"][-1])))
    before = np.concatenate([[0], np.cumsum(counts)])
    start = rows.start
    while start < rows.stop:
        full = int(np.searchsorted(before, before[start - rows.start] + output.PAIRS_GROUP, side="right")) - 1
        # A row's pairs stay together, however many they are.
        stop = min(max(start + 1, rows.start + full), rows.stop)
        parts = [
            _pairs_between(record, name, start, stop)
            for name, (first, last) in zip(names, bounds, strict=True)
            if first < stop and start <= last
        ]
        if parts:
            row, neighbor, similarity = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            # Stable: each part is sorted, and merging sorted runs is what that sort is fast at.
            order = np.argsort(packed(row, neighbor), kind="stable")
            yield row[order].astype(np.int64), neighbor[order].astype(np.int64), similarity[order]
        on_rows(stop - start)
        start = stop


def packed(rows: NDArray[np.int64], neighbors: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return one number for each pair that rises with the row, then with the neighbor."""
    return (rows.astype(np.uint64) << np.uint64(32)) | neighbors.astype(np.uint64)


def _pairs_between(record: BlockRecord[Part], name: str, start: int, stop: int) -> tuple[NDArray[Any], ...]:
    arrays = record.load(name, mapped_bytes=0).arrays
    low, high = np.searchsorted(arrays["rows"], [start, stop]).tolist()
    first = int(arrays["counts"][:low].sum())
    counts = arrays["counts"][low:high]
    some = slice(first, first + int(counts.sum()))
    row = np.repeat(arrays["rows"][low:high], counts)
    # Copies, so that the file of the part is closed on return: a view would keep it open.
    return row, arrays["neighbors"][some].copy(), arrays["similarities"][some].copy()
