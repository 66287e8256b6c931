"""Which rows travel where, and in what order: pure functions of the instances' shares.

A share is cut into *chunks* of consecutive rows. Every unordered pair of chunks, and each with itself, is compared
once, on an instance that owns at least one of the two; a foreign chunk that comes to an instance is a *transfer*, and
is compared there with all the own chunks that it has to be at once. So it is sent to each instance at most once.

**Half ring.** Of n instances, those whose chunks come to i are i + 1, i + 2, … i + (n - 1) // 2 around the circle.
For even n, the instances i and i + n/2 share their work: half of the one's chunks go to the other, which sends all of
its own back to be compared with the other half. With equal shares of equal instances this is balanced, and of N rows of
``row_bytes``

- n odd: each instance sends and receives (n - 1) / 2 * N / n rows, together N * (n - 1) / 2;
- n even: (n - 2) / 2 * N / n, and of each pair of opposites one receives N / n and the other half of that: together
  N * (n - 2) / 2 + 3/4 * N.

That is below ``N * row_bytes / 2`` for each instance, whatever n. Where shares or CPUs differ, the busiest instances
give transfers away to the least busy ones that they share work with, until they are within ``TOLERANCE`` of the
mean or a chunk would be too much. ``traffic`` counts what any schedule sends, exactly.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic.row_order import Run
from raysm.workloads.similarity.layouts.sharded.index import Shard

__all__ = ["RowChunk", "Share", "Traffic", "Transfer", "cut", "deal", "traffic"]

TOLERANCE = 0.02
"""How far the busiest instance may be above the mean before another arrangement, which sends more, is looked for."""


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Consecutive rows of one instance: what is sent at once, and one side of a task."""

    host: str
    """The instance that has them."""
    start: int
    """The first, among the instance's own rows."""
    stop: int
    """The one after the last."""
    runs: tuple[Run, ...]
    """Where they are in the matrix, rising; offsets count from the chunk's first row."""
    origin: int = 0
    """The place of the instance's own first row."""

    @property
    def range(self) -> RowBlock:
        """The places of its rows."""
        return RowBlock(self.origin + self.start, self.origin + self.stop)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.stop - self.start

    @property
    def first(self) -> int:
        """Number of the first row in the matrix."""
        return self.runs[0].start

    def numbers(self) -> NDArray[np.int64]:
        """Return the rows' numbers[rows] in the matrix, rising."""
        return np.concatenate([np.arange(run.start, run.start + run.rows) for run in self.runs])

    def numbers_of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of some of its rows by their places."""
        # The very same array: whoever asked sees by that, without looking at it, that nothing has to be renumbered.
        if len(self.runs) == 1 and self.first == self.range.start:
            return places
        return self.numbers()[places - self.range.start]

    def __str__(self) -> str:
        """Name it by its rows in the matrix alone: wherever they lie, they are the same."""
        last = self.runs[-1].start + self.runs[-1].rows - 1
        if len(self.runs) == 1:
            return f"rows {self.first} to {last}"
        # Digested: of thousands of small files the runs would be a name as long, in each message and line of the log.
        text = ",".join(f"{run.start}+{run.rows}" for run in self.runs)
        return f"{self.rows} of rows {self.first} to {last} ({hashlib.sha256(text.encode()).hexdigest()[:16]})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one instance has, and what it can do."""

    host: str
    """Its name."""
    slots: int
    """Tasks that it runs at once."""
    chunks: tuple[RowChunk, ...]
    """Its rows."""

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(chunk.rows for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A chunk, and the chunks of one instance that it is compared with there."""

    host: str
    """Where."""
    chunk: RowChunk
    """What comes; one of the instance's own is at home already."""
    partners: tuple[RowChunk, ...]
    """With what; itself among them where it is compared with itself."""
    brings: Literal["either", "queries", "matrix"] = "either"
    """Of which rows the one that comes is: of a self-join both."""

    @property
    def at_home(self) -> bool:
        """Whether nothing has to be sent."""
        return self.chunk.host == self.host


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """What a schedule sends, in rows."""

    sent: Mapping[str, int]
    """By each instance."""
    received: Mapping[str, int]
    """By each instance."""


def cut(shard: Shard, chunk_rows: int, origin: int = 0) -> tuple[RowChunk, ...]:
    """Cut an instance's rows into chunks of nearly equal size.

    Args:
        shard: The rows.
        chunk_rows: No chunk has more.
        origin: The place of the instance's first row.
    """
    rows = shard.rows
    count = math.ceil(rows / chunk_rows)
    # Each from the whole: sizes differ by one row at most, and the last is no small rest.
    edges = [rows * at // count for at in range(count + 1)] if count else [0]
    return tuple(
        RowChunk(shard.host, start, stop, shard.portion(start, stop), origin)
        for start, stop in zip(edges, edges[1:], strict=False)
        if start < stop
    )


def deal(shares: Sequence[Share]) -> dict[str, list[Transfer]]:
    """Return the transfers of each instance, in the order in which they are to be computed.

    First come the instance's own chunks, each with itself: that gives every row its first bound. Then with each
    other, then the neighbours' chunks come, those of the next one on the circle first, so that at any moment each
    instance sends to one and receives from one.

    Raises:
        ValueError: An instance that has rows has no slot to compare them.
    """
    if idle := [share.host for share in shares if share.chunks and share.slots < 1]:
        raise ValueError(f"{', '.join(idle)} has rows, but no CPU to compare them")
    # Whoever has no rows has no work to give or to take: on the ring it would only spoil the halves.
    ring = [share for share in shares if share.chunks]
    agreed = _balanced(ring)
    transfers: dict[str, list[Transfer]] = {share.host: _at_home(share) for share in shares}
    count = len(ring)
    for at, share in enumerate(ring):
        for distance in range(1, count):
            other = (at + distance) % count
            for chunk in _coming(agreed, ring, at, other):
                transfers[share.host].append(Transfer(share.host, chunk, _partners(agreed, ring, at, other)))
    return transfers


def traffic(transfers: Mapping[str, Sequence[Transfer]]) -> Traffic:
    """Count the rows that are sent: those of every chunk, once for each instance that it comes to."""
    sent: dict[str, int] = dict.fromkeys(transfers, 0)
    received = dict.fromkeys(transfers, 0)
    for host, there in transfers.items():
        for transfer in there:
            if not transfer.at_home:
                sent[transfer.chunk.host] += transfer.chunk.rows
                received[host] += transfer.chunk.rows
    return Traffic(sent=sent, received=received)


def _at_home(share: Share) -> list[Transfer]:
    own = share.chunks
    alone = [Transfer(share.host, chunk, (chunk,)) for chunk in own]
    return alone + [Transfer(share.host, chunk, own[at + 1 :]) for at, chunk in enumerate(own) if at + 1 < len(own)]


@dataclass(slots=True)
class _Agreement:
    """How two instances share the pairs of their rows."""

    divided: int
    """The instance, by its place on the ring, whose chunks are divided: the one with more rows."""
    whole: int
    """The other."""
    away: int
    """So many of the divided one's first chunks go to the other; all of the other's come to it for the rest."""


def _pair(first: int, second: int) -> tuple[int, int]:
    return min(first, second), max(first, second)


def _coming(agreed: Mapping[tuple[int, int], _Agreement], ring: Sequence[Share], at: int, other: int) -> list[RowChunk]:
    """Return the chunks of ``other`` that come to ``at``."""
    agreement = agreed[_pair(at, other)]
    chunks = ring[other].chunks
    if agreement.divided == other:
        return list(chunks[: agreement.away])
    return list(chunks) if agreement.away < len(ring[at].chunks) else []


def _partners(
    agreed: Mapping[tuple[int, int], _Agreement], ring: Sequence[Share], at: int, other: int
) -> tuple[RowChunk, ...]:
    """Return the chunks of ``at`` that one which comes from ``other`` is compared with."""
    agreement = agreed[_pair(at, other)]
    return ring[at].chunks[agreement.away :] if agreement.divided == at else ring[at].chunks


def _balanced(ring: Sequence[Share]) -> dict[tuple[int, int], _Agreement]:
    """Agree for every two instances who compares what, first around the ring, then moving work from the busiest."""
    count = len(ring)
    agreed: dict[tuple[int, int], _Agreement] = {}
    for at in range(count):
        for distance in range(1, count // 2 + 1):
            other = (at + distance) % count
            # On an even ring, opposites meet from both sides.
            if _pair(at, other) in agreed:
                continue
            divided, whole = (other, at) if ring[other].rows >= ring[at].rows else (at, other)
            chunks = len(ring[divided].chunks)
            # ``at`` computes: the other's chunks come to it, or none of its own are away.
            away = chunks if divided == other else 0
            agreed[_pair(at, other)] = _Agreement(divided, whole, chunks // 2 if 2 * distance == count else away)
    if count < 2:
        return agreed
    loads = _loads(ring, agreed)
    slots = sum(share.slots for share in ring)
    # Weighted, since a load is that of one slot.
    mean = sum(load * share.slots for load, share in zip(loads, ring, strict=True)) / slots
    while True:
        # Whoever takes work over from the busiest may pass some of its own on in the next round. Sorted, the loads fall
        # with every step, so there is a last one.
        busy = [at for at in range(count) if loads[at] > mean * (1 + TOLERANCE)]
        if not any(_relieve(ring, agreed, loads, at) for at in sorted(busy, key=lambda at: -loads[at])):
            return agreed


def _loads(ring: Sequence[Share], agreed: Mapping[tuple[int, int], _Agreement]) -> list[float]:
    """Return pairs of rows for each slot, by instance."""
    work: dict[int, float] = defaultdict(float)
    for at, share in enumerate(ring):
        # Of its own pairs, each unordered one is compared once.
        work[at] = share.rows**2 / 2
    for agreement in agreed.values():
        away = sum(chunk.rows for chunk in ring[agreement.divided].chunks[: agreement.away])
        work[agreement.whole] += away * ring[agreement.whole].rows
        work[agreement.divided] += (ring[agreement.divided].rows - away) * ring[agreement.whole].rows
    return [work[at] / ring[at].slots for at in range(len(ring))]


def _relieve(
    ring: Sequence[Share], agreed: Mapping[tuple[int, int], _Agreement], loads: list[float], busiest: int
) -> bool:
    """Move chunks' worth of work from the busiest instance to the least busy one that can take some of it."""
    for other in sorted(range(len(ring)), key=lambda at: (loads[at], -((at - busiest) % len(ring)))):
        if other == busiest or loads[other] >= loads[busiest]:
            continue
        agreement = agreed[_pair(busiest, other)]
        chunks = ring[agreement.divided].chunks
        # ``away`` counts what leaves the divided one: more of it relieves that one, less of it the other.
        step = 1 if agreement.divided == busiest else -1
        room = len(chunks) - agreement.away if step == 1 else agreement.away
        moved = 0
        best = loads[busiest], loads[other]
        for _ in range(room):
            chunk = chunks[agreement.away + moved if step == 1 else agreement.away + moved - 1]
            work = chunk.rows * ring[agreement.whole].rows
            now = best[0] - work / ring[busiest].slots, best[1] + work / ring[other].slots
            # One more would only make the other instance the busiest.
            if max(now) >= max(best):
                break
            best, moved = now, moved + step
        if moved:
            agreement.away += moved
            loads[busiest], loads[other] = best
            return True
    return False
