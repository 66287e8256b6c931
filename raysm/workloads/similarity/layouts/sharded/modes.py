"""What is computed and gathered of a sharded matrix: as of a replicated one, meeting by meeting.

Meetings hold rows in runs; results hold them in the order of the matrix. So what is written by ranges of rows is read
from, or written to, as many places as a range has runs.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.contract.result import ResultFile
from raysm.workloads.announce import Pace
from raysm.workloads.blocks import RowBlock, TileBlock, map_blocks
from raysm.workloads.gather import ArrayFile, PrefixDigest, check_room
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity import output
from raysm.workloads.similarity.arithmetic.score import least_score
from raysm.workloads.similarity.arithmetic.topk_accumulator import Standing, zero_row_keys
from raysm.workloads.similarity.layouts.sharded import tasks
from raysm.workloads.similarity.layouts.sharded.index import Run, ShardIndex
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import Feed, Meeting, meetings
from raysm.workloads.similarity.layouts.sharded.schedule import Parcel, Visit
from raysm.workloads.similarity.modes import compute as modes
from raysm.workloads.similarity.modes import threshold
from raysm.workloads.similarity.reading.npy import header
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.work import Work

__all__ = ["Deal", "compute"]

PAIR_BINS = 4096
"""Ranges of rows whose pairs are counted, so that about as many as wanted are merged at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deal:
    """Who meets whom where."""

    index: ShardIndex
    """Where the rows are."""
    starts: dict[str, int]
    """Where each instance's rows begin in line."""
    visits: dict[str, list[Visit]]
    """Of each instance, in order."""
    slots: dict[str, int]
    """Tasks that each instance runs at once."""
    send: Callable[[Parcel], Any]
    """Begins to bring a parcel's rows under way."""

    def meetings(self) -> Iterator[Meeting]:
        """Yield all meetings."""
        for there in self.visits.values():
            yield from (meeting for visit in there for meeting in meetings(visit))

    def line_of(self, parcel: Parcel) -> RowBlock:
        """Return where a parcel's rows are in line."""
        start = self.starts[parcel.host]
        return RowBlock(start + parcel.start, start + parcel.stop)


def compute(work: Work, deal: Deal) -> tuple[ResultFile, ...]:
    """Compute what the workload asks for, and write it; return its files.

    Raises:
        NoRoom: The head's disk became full.
        BlockFailed: A meeting failed on every attempt.
        InstanceLost: An instance went away for good; its rows are nowhere else.
    """
    workload = work.workload
    if workload.top_k is not None:
        return (_top_k(work, deal, workload.top_k),)
    if workload.threshold is not None:
        return (_threshold(work, deal, least_score(workload.threshold)),)
    return (_full(work, deal),)


def _hold(
    work: Work,
    deal: Deal,
    function: Callable[[Any, Any], Any],
    record: BlockRecord[Part] | None = None,
    tell: Callable[[Meeting], Any] = lambda meeting: None,
    skip: Callable[[Meeting], bool] = lambda meeting: False,
) -> Iterator[tuple[Meeting, Part]]:
    """Hold all meetings but those to skip, and announce the progress, in rows: a meeting counts by its pairs."""
    rows = work.matrix.rows
    everyone = list(deal.meetings())
    area = sum(meeting.area for meeting in everyone)
    feed = Feed(
        deal.visits,
        deal.slots,
        deal.send,
        found=(lambda meeting: False) if record is None else record.__contains__,
        tell=tell,
        skip=skip,
    )
    pace = Pace("similarity", rows, "rows", work.announce)
    reached = sum(meeting.area for meeting in everyone if skip(meeting))
    work.blocks += len(everyone)
    work.blocks_found += sum(skip(meeting) or (record is not None and meeting in record) for meeting in everyone)
    held = map_blocks(
        partial(tasks.compare, function, work.context), feed, record=record, in_flight=max(1, feed.in_flight)
    )
    with work.phase("similarity"):
        for meeting, part in held:
            work.took_part(part)
            again = _pieces(meeting) if "crowded" in part.arrays else []
            yield meeting, part
            del part
            feed.finished(meeting, again)
            if not again:
                reached += meeting.area
                pace.reach(rows if reached == area else math.floor(rows * reached / area))
    for shard in deal.index.shards:
        work.sent_bytes[shard.host] = feed.sent[shard.host] * shard.bytes // max(1, shard.rows)


def _pieces(meeting: Meeting) -> list[TileBlock]:
    return list(threshold.pieces(TileBlock(RowBlock(0, meeting.left.rows), RowBlock(0, meeting.right.rows))))


def _top_k(work: Work, deal: Deal, k: int) -> ResultFile:
    record = modes.record_of(work, "topk of shards")
    norms = work.context.norms
    # Rows stand in line there: a parcel is one range of them. Their keys hold numbers in the matrix.
    standing = Standing(work.scratch, work.matrix.rows, k)

    def tell(meeting: Meeting) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        left, right = deal.line_of(meeting.left), deal.line_of(meeting.right)
        columns = standing.floors[right.start : right.stop] if meeting.left is not meeting.right else norms[:0]
        return standing.floors[left.start : left.stop].copy(), columns.astype(np.float32)

    spans = _spans(deal)

    def keys(start: int, stop: int) -> NDArray[np.uint64]:
        found = np.empty((stop - start, k), dtype=np.uint64)
        for run in _between(spans, start, stop):
            at = slice(run.start - start, run.start - start + run.rows)
            found[at] = standing.read(run.offset, run.offset + run.rows)
            zero = np.flatnonzero(norms[run.offset : run.offset + run.rows] == 0)
            found[at][zero] = zero_row_keys(zero + run.start, k, same=True)
        return found

    try:
        for meeting, part in _hold(work, deal, partial(tasks.topk_arrays, k), record, tell):
            standing.merge(deal.line_of(meeting.left), part.arrays["counts"], part.arrays["keys"])
            if "column_counts" in part.arrays:
                right = deal.line_of(meeting.right)
                standing.merge(right, part.arrays["column_counts"], part.arrays["column_keys"])
        with modes.gathering(work) as pace:
            file = output.write_neighbors(work.folders.result, keys, k, work.matrix.rows, pace.add, modes.ids_of(work))
    finally:
        standing.close()
    record.remove()
    return file


def _spans(deal: Deal) -> list[Run]:
    """Return the runs of all instances in the order of the matrix; offsets are in line."""
    runs = [
        Run(run.start, deal.starts[shard.host] + run.offset, run.rows)
        for shard in deal.index.shards
        for run in shard.runs
    ]
    return sorted(runs, key=lambda run: run.start)


def _between(spans: Sequence[Run], start: int, stop: int) -> Iterator[Run]:
    """Yield the parts of the spans that lie in rows start to stop."""
    for run in spans:
        low, high = max(start, run.start), min(stop, run.start + run.rows)
        if low < high:
            yield Run(low, run.offset + low - run.start, high - low)


def _threshold(work: Work, deal: Deal, least: np.float32) -> ResultFile:
    record = modes.record_of(work, "threshold of shards")
    held: list[Meeting] = []
    for meeting, part in _hold(work, deal, partial(tasks.threshold_arrays, least), record):
        if "crowded" not in part.arrays and len(part.arrays["rows"]):
            held.append(Meeting(meeting.host, meeting.left, meeting.right, meeting.piece))
    with modes.gathering(work) as pace:
        ids = modes.ids_of(work)
        # A pair takes 12 bytes in a part.
        check_room([(work.folders.result, int(record.size_bytes() / 12 * output.pair_bytes(ids)))])
        pairs = _sorted_pairs(record, held, work.matrix.rows, pace)
        file = output.write_pair_chunks(work.folders.result, pairs, ids)
    record.remove()
    return file


def _sorted_pairs(
    record: BlockRecord[Part], held: Sequence[Meeting], rows: int, pace: Pace
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
    """Merge the parts, about ``PAIRS_GROUP`` pairs at a time; one part is open at a time."""
    step = math.ceil(rows / PAIR_BINS)
    counts = np.zeros(PAIR_BINS, dtype=np.int64)
    bounds = []
    for meeting in held:
        own = record.load(meeting, mapped_bytes=0).arrays["rows"]
        counts += np.bincount(own // step, minlength=PAIR_BINS)
        bounds.append((int(own[0]), int(own[-1])))
    before = np.concatenate([[0], np.cumsum(counts)])
    first = 0
    while first < PAIR_BINS:
        last = max(first + 1, int(np.searchsorted(before, before[first] + output.PAIRS_GROUP, side="right")) - 1)
        start, stop = first * step, min(last * step, rows)
        parts = [
            _pairs_between(record, meeting, start, stop)
            for meeting, (low, high) in zip(held, bounds, strict=True)
            if low < stop and start <= high
        ]
        if parts:
            row, neighbor, similarity = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            order = np.lexsort((neighbor, row))
            yield row[order].astype(np.int64), neighbor[order].astype(np.int64), similarity[order]
        pace.add(max(0, stop - start))
        first = last


def _pairs_between(
    record: BlockRecord[Part], meeting: Meeting, start: int, stop: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]]:
    arrays = record.load(meeting, mapped_bytes=0).arrays
    low, high = np.searchsorted(arrays["rows"], [start, stop]).tolist()
    return (
        arrays["rows"][low:high].copy(),
        arrays["neighbors"][low:high].copy(),
        arrays["similarities"][low:high].copy(),
    )


def _full(work: Work, deal: Deal) -> ResultFile:
    rows, dtype = work.matrix.rows, np.dtype(work.workload.dtype)
    record: BlockRecord[str] = modes.digests_of(work, "full of shards")
    array = ArrayFile(record.folder / "array", header((rows, rows), dtype), rows, rows, dtype)
    digest = PrefixDigest(array.path)
    try:
        there = {str(meeting) for meeting in deal.meetings() if meeting in record and _holds(array, meeting, record)}
        missing = [meeting for meeting in deal.meetings() if str(meeting) not in there]
        unfinished = Counter(parcel for meeting in missing for parcel in {meeting.left, meeting.right})
        heights = sorted(
            ((run, parcel) for parcel in _parcels(deal) for run in parcel.runs), key=lambda item: item[0].start
        )
        function = partial(tasks.full_arrays, dtype.name)
        for meeting, part in _hold(work, deal, function, skip=lambda meeting: str(meeting) in there):
            record.save(meeting, _write(array, meeting, part.arrays["scores"]))
            unfinished.subtract({meeting.left, meeting.right})
            while heights and not unfinished[heights[0][1]]:
                run, _ = heights.pop(0)
                digest.reach(array.position(run.start + run.rows, 0))
        digest.reach(array.position(rows, 0))
        with modes.gathering(work) as pace:
            sha256 = digest.finish()
            array.close()
            file = modes.full_file(work, array.path, sha256)
            pace.reach(rows)
    finally:
        digest.close()
        with suppress(OSError):
            array.close()
    record.remove()
    return file


def _parcels(deal: Deal) -> set[Parcel]:
    return {parcel for meeting in deal.meetings() for parcel in (meeting.left, meeting.right)}


def _rectangles(meeting: Meeting) -> Iterator[tuple[TileBlock, slice, slice]]:
    """Yield, of the tile of a meeting, the rectangles of the matrix and where in the tile they are."""
    for above in meeting.left.runs:
        for beside in meeting.right.runs:
            block = TileBlock(
                RowBlock(above.start, above.start + above.rows), RowBlock(beside.start, beside.start + beside.rows)
            )
            yield (
                block,
                slice(above.offset, above.offset + above.rows),
                slice(beside.offset, beside.offset + beside.rows),
            )


def _write(array: ArrayFile, meeting: Meeting, scores: NDArray[Any]) -> str:
    """Write a tile, and its mirror image; return the digests of its rectangles."""
    digests = []
    for block, above, beside in _rectangles(meeting):
        digests.append(array.write(block, scores[above, beside]))
        if meeting.left is not meeting.right:
            array.write(block, scores[above, beside], mirrored=True)
    return " ".join(digests)


def _holds(array: ArrayFile, meeting: Meeting, record: BlockRecord[str]) -> bool:
    """Whether the file still has a tile that was written by an earlier run."""
    digests = record.load(meeting).split()
    alone = meeting.left is meeting.right
    return all(
        array.holds(block, digest) and (alone or array.holds(block, digest, mirrored=True))
        for (block, _, _), digest in zip(_rectangles(meeting), digests, strict=True)
    )
