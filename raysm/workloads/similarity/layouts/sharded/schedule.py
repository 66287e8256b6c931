"""Which rows travel where, and in what order: pure functions of the instances' shares.

A share is cut into *parcels* of consecutive rows. Every unordered pair of parcels, and each with itself, is compared
once, on an instance that owns at least one of the two; a foreign parcel that comes to an instance is a *visit*, and
meets there all the own parcels that it has to at once. So it is sent to each instance at most once.

**Half ring.** Of n instances, i is visited by the parcels of i + 1, i + 2, … i + (n - 1) // 2 around the circle. For
even n, the instances i and i + n/2 share their work: half of the one's parcels visit the other, which sends all of its
own back to meet the other half. With equal shares of equal instances this is balanced, and of N rows of ``row_bytes``

- n odd: each instance sends and receives (n - 1) / 2 * N / n rows, together N * (n - 1) / 2;
- n even: (n - 2) / 2 * N / n, and of each pair of opposites one receives N / n and the other half of that: together
  N * (n - 2) / 2 + 3/4 * N.

That is below ``N * row_bytes / 2`` for each instance, whatever n. Where shares or CPUs differ, the busiest instances
give parcels' visits away to the least busy ones that they share work with, until they are within ``TOLERANCE`` of the
mean or a parcel would be too much. ``traffic`` counts what any schedule sends, exactly.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.similarity.layouts.sharded.index import Run, Shard

__all__ = ["Parcel", "Share", "Traffic", "Visit", "cut", "deal", "traffic"]

TOLERANCE = 0.02
"""How far the busiest instance may be above the mean before another arrangement, which sends more, is looked for."""

FEWEST = 4
"""Parcels of a share, unless they would be too small: what is given away to balance the work is a parcel."""

LEAST_ROWS = 256
"""Smaller parcels are not chosen: what a task costs by itself would show."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Consecutive rows of one instance: what is sent at once, and one side of a task."""

    host: str
    """The instance that has them."""
    start: int
    """The first, among the instance's own rows."""
    stop: int
    """The one after the last."""
    runs: tuple[Run, ...]
    """Where they are in the matrix, rising; offsets count from the parcel's first row."""

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

    def __str__(self) -> str:
        """Name it by its rows in the matrix alone: wherever they lie, they are the same."""
        last = self.runs[-1].start + self.runs[-1].rows - 1
        if len(self.runs) == 1:
            return f"rows {self.first} to {last}"
        text = ",".join(f"{run.start}+{run.rows}" for run in self.runs)
        return f"{self.rows} of rows {self.first} to {last} ({hashlib.sha256(text.encode()).hexdigest()[:16]})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one instance has, and what it can do."""

    host: str
    """Its name."""
    slots: int
    """Tasks that it runs at once."""
    parcels: tuple[Parcel, ...]
    """Its rows."""

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(parcel.rows for parcel in self.parcels)


@dataclass(frozen=True, slots=True)
class Visit:
    """A parcel, and the parcels of one instance that it meets there."""

    host: str
    """Where."""
    parcel: Parcel
    """Who comes; one of the instance's own is at home already."""
    meets: tuple[Parcel, ...]
    """Whom; itself among them where it is compared with itself."""

    @property
    def at_home(self) -> bool:
        """Whether nothing has to be sent."""
        return self.parcel.host == self.host


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """What a schedule sends, in rows."""

    sent: Mapping[str, int]
    """By each instance."""
    received: Mapping[str, int]
    """By each instance."""


def cut(shard: Shard, *, slots: int, most_rows: int, exact: bool = False) -> tuple[Parcel, ...]:
    """Cut an instance's rows into parcels of nearly equal size.

    Args:
        shard: The rows.
        slots: Tasks that the instance runs at once; there are as many parcels for each where that is possible.
        most_rows: No parcel has more.
        exact: ``most_rows`` is what is wanted, also where it is small.
    """
    rows = shard.rows
    count = math.ceil(rows / most_rows)
    if not exact:
        wanted = slots * math.ceil(max(count, FEWEST) / slots)
        count = max(count, min(wanted, rows // LEAST_ROWS))
    edges = [rows * at // count for at in range(count + 1)] if count else [0]
    return tuple(
        Parcel(shard.host, start, stop, shard.portion(start, stop))
        for start, stop in zip(edges, edges[1:], strict=False)
        if start < stop
    )


def deal(shares: Sequence[Share]) -> dict[str, list[Visit]]:
    """Return the visits of each instance, in the order in which they are to be computed.

    First come the instance's own parcels, each with itself: that gives every row its first bound. Then they meet each
    other, then the neighbours' parcels come, those of the next one on the circle first, so that at any moment each
    instance sends to one and receives from one.

    Raises:
        ValueError: An instance that has rows has no slot to compare them.
    """
    if idle := [share.host for share in shares if share.parcels and share.slots < 1]:
        raise ValueError(f"{', '.join(idle)} has rows, but no CPU to compare them")
    ring = [share for share in shares if share.parcels]
    agreed = _balanced(ring)
    visits: dict[str, list[Visit]] = {share.host: _at_home(share) for share in shares}
    count = len(ring)
    for at, share in enumerate(ring):
        for distance in range(1, count):
            other = (at + distance) % count
            for parcel in _visitors(agreed, ring, at, other):
                visits[share.host].append(Visit(share.host, parcel, _met(agreed, ring, at, other)))
    return visits


def traffic(visits: Mapping[str, Sequence[Visit]]) -> Traffic:
    """Count the rows that are sent: those of every parcel, once for each instance that it visits."""
    sent: dict[str, int] = dict.fromkeys(visits, 0)
    received = dict.fromkeys(visits, 0)
    for host, there in visits.items():
        for visit in there:
            if not visit.at_home:
                sent[visit.parcel.host] += visit.parcel.rows
                received[host] += visit.parcel.rows
    return Traffic(sent=sent, received=received)


def _at_home(share: Share) -> list[Visit]:
    own = share.parcels
    alone = [Visit(share.host, parcel, (parcel,)) for parcel in own]
    return alone + [Visit(share.host, parcel, own[at + 1 :]) for at, parcel in enumerate(own) if at + 1 < len(own)]


@dataclass(slots=True)
class _Agreement:
    """How two instances share the pairs of their rows."""

    divided: int
    """The instance, by its place on the ring, whose parcels are divided: the one with more rows."""
    whole: int
    """The other."""
    away: int
    """So many of the divided one's first parcels visit the other; all of the other's visit it for the rest."""


def _pair(first: int, second: int) -> tuple[int, int]:
    return min(first, second), max(first, second)


def _visitors(agreed: Mapping[tuple[int, int], _Agreement], ring: Sequence[Share], at: int, other: int) -> list[Parcel]:
    """Return the parcels of ``other`` that visit ``at``."""
    agreement = agreed[_pair(at, other)]
    parcels = ring[other].parcels
    if agreement.divided == other:
        return list(parcels[: agreement.away])
    return list(parcels) if agreement.away < len(ring[at].parcels) else []


def _met(
    agreed: Mapping[tuple[int, int], _Agreement], ring: Sequence[Share], at: int, other: int
) -> tuple[Parcel, ...]:
    """Return the parcels of ``at`` that a visitor from ``other`` meets."""
    agreement = agreed[_pair(at, other)]
    return ring[at].parcels[agreement.away :] if agreement.divided == at else ring[at].parcels


def _balanced(ring: Sequence[Share]) -> dict[tuple[int, int], _Agreement]:
    """Agree for every two instances who compares what, first around the ring, then moving work from the busiest."""
    count = len(ring)
    agreed: dict[tuple[int, int], _Agreement] = {}
    for at in range(count):
        for distance in range(1, count // 2 + 1):
            other = (at + distance) % count
            if _pair(at, other) in agreed:
                continue
            divided, whole = (other, at) if ring[other].rows >= ring[at].rows else (at, other)
            parcels = len(ring[divided].parcels)
            # ``at`` computes: the other's parcels visit it, or none of its own are away.
            away = parcels if divided == other else 0
            agreed[_pair(at, other)] = _Agreement(divided, whole, parcels // 2 if 2 * distance == count else away)
    if count < 2:
        return agreed
    loads = _loads(ring, agreed)
    slots = sum(share.slots for share in ring)
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
        work[at] = share.rows**2 / 2
    for agreement in agreed.values():
        away = sum(parcel.rows for parcel in ring[agreement.divided].parcels[: agreement.away])
        work[agreement.whole] += away * ring[agreement.whole].rows
        work[agreement.divided] += (ring[agreement.divided].rows - away) * ring[agreement.whole].rows
    return [work[at] / ring[at].slots for at in range(len(ring))]


def _relieve(
    ring: Sequence[Share], agreed: Mapping[tuple[int, int], _Agreement], loads: list[float], busiest: int
) -> bool:
    """Move parcels' worth of work from the busiest instance to the least busy one that can take some of it."""
    for other in sorted(range(len(ring)), key=lambda at: (loads[at], -((at - busiest) % len(ring)))):
        if other == busiest or loads[other] >= loads[busiest]:
            continue
        agreement = agreed[_pair(busiest, other)]
        parcels = ring[agreement.divided].parcels
        step = 1 if agreement.divided == busiest else -1
        room = len(parcels) - agreement.away if step == 1 else agreement.away
        moved = 0
        best = loads[busiest], loads[other]
        for _ in range(room):
            parcel = parcels[agreement.away + moved if step == 1 else agreement.away + moved - 1]
            work = parcel.rows * ring[agreement.whole].rows
            now = best[0] - work / ring[busiest].slots, best[1] + work / ring[other].slots
            if max(now) >= max(best):
                break
            best, moved = now, moved + step
        if moved:
            agreement.away += moved
            loads[busiest], loads[other] = best
            return True
    return False
