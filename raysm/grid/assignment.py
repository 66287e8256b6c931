"""All rows of a grid at once, each in the place where it would run: what the plan shows before anything is sent.

Pure. Tasks, a placement and quotas flow in, what flows out is for each task its place, when it would start there, and
what it would cost. Rows queue for the quota of their place in the order in which the controller sends them: by
priority, the longest first. So few rows that it takes no time are then moved and swapped while that makes all of them
together cheaper; of many, that each took its best place in its turn is near enough.
"""

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from raysm.grid.place import Market, Offer, Place
from raysm.grid.placement import Cheapest, Worth, refusal
from raysm.grid.task import Task

__all__ = ["Assigned", "assign"]

IMPROVED = 600
"""Rows times places up to which the whole is improved: a second at most."""

ROUNDS = 6
"""Of improvement; few cases take more than three."""

NEVER = (99, 0.0)
"""The score of a place that takes no row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assigned:
    """One row."""

    task: Task
    """The row."""
    offer: Offer | None
    """Where it would run; None is nowhere."""
    worth: Worth | None = None
    """What that would cost."""
    start_s: float = 0.0
    """Seconds from now until it would be sent there, for the quota of its place."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Of a row without a place: why not, by place."""

    @property
    def count(self) -> int:
        """Instances of its cluster; 0 without a place."""
        return 0 if self.offer is None else self.task.count or self.offer.count

    @property
    def end_s(self) -> float | None:
        """Seconds from now until it would have ended; None where nobody knows how long it takes."""
        if self.worth is None or self.worth.seconds is None:
            return None
        return self.start_s + self.worth.wait_s + self.worth.seconds


class _Queue:
    """The jobs of one place, begun in their order, as its quota has room."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._used = 0
        self._running: list[tuple[float, int]] = []
        self._ready: dict[int, float] = {}
        self._latest = 0.0

    def ready_s(self, count: int) -> float:
        """Return when the next job of ``count`` instances would start."""
        if self._limit is None:
            return 0.0
        if count not in self._ready:
            used, moment = self._used, self._latest
            for end_s, freed in heapq.nsmallest(count, self._running):
                if used + count <= self._limit:
                    break
                used, moment = used - freed, max(moment, end_s)
            self._ready[count] = moment
        return self._ready[count]

    def add(self, count: int, seconds: float) -> float:
        """Add a job; return when it starts."""
        start_s = self.ready_s(count)
        if self._limit is not None:
            while self._running and self._used + count > self._limit:
                self._used -= heapq.heappop(self._running)[1]
            heapq.heappush(self._running, (start_s + seconds, count))
            self._used += count
            self._latest = start_s
            self._ready.clear()
        return start_s


@dataclass(slots=True)
class _Table:
    """The rows in their order, and what each place costs each of them."""

    tasks: list[Task]
    offers: Sequence[Offer]
    counts: list[list[int]]
    worths: list[list[Worth | None]]
    scores: list[list[tuple[int, float]]]
    reasons: list[dict[str, str]]
    limits: list[int | None]
    usd_per_s: float

    def held_s(self, row: int, place: int) -> float:
        """Return for how long a row holds its share of a place's quota."""
        worth = self.worths[row][place]
        assert worth is not None, "the place takes it"
        return (worth.seconds or 0.0) + worth.wait_s

    def queues(self) -> list[_Queue]:
        """Return the places, with nobody in them."""
        return [_Queue(limit) for limit in self.limits]

    def total(self, places: Sequence[int | None]) -> tuple[int, float]:
        """Return the score of all rows together, each in its place."""
        queues, unknown, usd = self.queues(), 0, 0.0
        for row, place in enumerate(places):
            if place is None:
                continue
            start_s = queues[place].add(self.counts[row][place], self.held_s(row, place))
            score = self.scores[row][place]
            unknown, usd = unknown + score[0], usd + score[1] + start_s * self.usd_per_s
        return unknown, usd


def assign(tasks: Sequence[Task], placement: Cheapest, market: Market | None = None) -> list[Assigned]:
    """Return every task in its place, in the order of ``tasks``.

    Args:
        tasks: The rows.
        placement: What a place is worth to a row.
        market: The quotas, and what is in use; None is without any.
    """
    ordered = sorted(tasks, key=lambda task: (-task.priority, -(task.expected_s or 0.0), task.position))
    table = _table(ordered, placement, market or Market())
    places = _in_turn(table)
    if len(ordered) * len(table.offers) <= IMPROVED:
        places = _improved(table, places)
    queues, made = table.queues(), {}
    for row, (task, place) in enumerate(zip(ordered, places, strict=True)):
        if place is None:
            made[task.position] = Assigned(task=task, offer=None, reasons=table.reasons[row])
            continue
        start_s = queues[place].add(table.counts[row][place], table.held_s(row, place))
        made[task.position] = Assigned(
            task=task, offer=table.offers[place], worth=table.worths[row][place], start_s=start_s
        )
    return [made[task.position] for task in tasks]


def _table(tasks: list[Task], placement: Cheapest, market: Market) -> _Table:
    offers = placement.offers
    table = _Table(
        tasks=tasks,
        offers=offers,
        counts=[],
        worths=[],
        scores=[],
        reasons=[],
        limits=[_limit(market, offer.place) for offer in offers],
        usd_per_s=placement.waiting_usd_per_hour / 3600,
    )
    # Rows differ in their parameters; where they may run, and what that costs, is the same for most of them.
    rows: dict[tuple[object, ...], _Row] = {}
    for task in tasks:
        shape = (task.region, task.instance_types, task.spot, task.count, task.image, task.expected_s, task.input_bytes)
        if shape not in rows:
            rows[shape] = _row(task, placement, table.limits)
        row = rows[shape]
        table.counts.append(row.counts)
        table.worths.append(row.worths)
        table.scores.append(row.scores)
        table.reasons.append(row.reasons)
    return table


@dataclass(slots=True)
class _Row:
    """What places are to rows of one shape."""

    counts: list[int] = field(default_factory=list)
    worths: list[Worth | None] = field(default_factory=list)
    scores: list[tuple[int, float]] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


def _row(task: Task, placement: Cheapest, limits: Sequence[int | None]) -> _Row:
    row = _Row()
    for offer, limit in zip(placement.offers, limits, strict=True):
        count = task.count or offer.count
        why = refusal(task, offer, placement.move_data) or placement.lacks(task, offer.place.region)
        if why is None and limit is not None and limit < count:
            why = f"the quota leaves {limit} of {offer.place.instance_type}, and the job takes {count}"
        worth = None if why else placement.worth(task, offer)
        row.counts.append(count)
        row.worths.append(worth)
        row.scores.append(NEVER if worth is None else worth.score(placement.waiting_usd_per_hour))
        if why:
            row.reasons[str(offer.place)] = why
    return row


def _limit(market: Market, place: Place) -> int | None:
    quota = market.quotas.get(place)
    return None if quota is None else quota.limit - quota.used_by_others


def _in_turn(table: _Table) -> list[int | None]:
    """Return the places where each row takes the best one that is left when its turn comes."""
    queues = table.queues()
    places: list[int | None] = []
    for row in range(len(table.tasks)):
        best: tuple[tuple[int, float], int] | None = None
        counts, worths = table.counts[row], table.worths[row]
        for place, (unknown, usd) in enumerate(table.scores[row]):
            if worths[place] is None:
                continue
            score = (unknown, usd + queues[place].ready_s(counts[place]) * table.usd_per_s)
            if best is None or score < best[0]:
                best = score, place
        places.append(None if best is None else best[1])
        if best is not None:
            queues[best[1]].add(counts[best[1]], table.held_s(row, best[1]))
    return places


def _improved(table: _Table, places: list[int | None]) -> list[int | None]:
    """Return places that make all rows together cheaper: one moves, or two swap, while that helps."""
    best = table.total(places)
    for _ in range(ROUNDS):
        before = best
        for changed in _neighbors(table, places):
            score = table.total(changed)
            if score < best:
                best, places = score, changed
        if best == before:
            break
    return places


def _neighbors(table: _Table, places: list[int | None]) -> Iterator[list[int | None]]:
    """Yield what differs from ``places`` by one row, or by two that have changed their places."""
    current = list(places)
    for row, was in enumerate(places):
        for place, worth in enumerate(table.worths[row]):
            if worth is not None and place != was:
                yield [*current[:row], place, *current[row + 1 :]]
    for one, other in itertools.combinations(range(len(places)), 2):
        first, second = places[one], places[other]
        if first is None or second is None or first == second:
            continue
        if table.worths[one][second] is not None and table.worths[other][first] is not None:
            swapped = list(current)
            swapped[one], swapped[other] = second, first
            yield swapped
