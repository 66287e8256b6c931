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
from raysm.grid.placement import Cheapest, Rate, Worth, refusal
from raysm.grid.task import UNKNOWN_S, Task

__all__ = ["Assigned", "assign"]

IMPROVED = 600
"""Rows times places up to which the whole is improved: a second at most."""

FEW = 12
"""Rows up to which all assignments are looked through: of 500 such cases one was 5.5 % off without."""

NODES = 20_000
"""Steps after which that ends with the best that was seen: a quarter of a second."""

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
        # In its queue, then for capacity, then at work.
        return self.start_s + self.worth.wait_s + self.worth.seconds


class _Queue:
    """The jobs of one place, begun in their order, as its quota has room."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._used = 0
        self._running: list[tuple[float, int]] = []
        self._ready: dict[int, float] = {}
        self._latest = 0.0

    def copy(self) -> "_Queue":
        """Return another one with the same jobs."""
        other = _Queue(self._limit)
        other._used, other._latest, other._running = self._used, self._latest, list(self._running)
        return other

    def ready_s(self, count: int) -> float:
        """Return when the next job of ``count`` instances would start."""
        if self._limit is None:
            return 0.0
        if count not in self._ready:
            used, moment = self._used, self._latest
            # At most ``count`` ends have to be looked at: each frees at least one instance.
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
            # What was worked out for other counts holds until somebody takes a part of the quota.
            self._ready.clear()
        return start_s


@dataclass(slots=True)
class _Shape:
    """What places are to rows that differ in their time alone."""

    counts: list[int] = field(default_factory=list)
    rates: list[Rate | None] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Table:
    """The rows in their order, and what each place costs each of them."""

    offers: Sequence[Offer]
    limits: list[int | None]
    usd_per_s: float
    tasks: list[Task] = field(default_factory=list)
    shapes: list[_Shape] = field(default_factory=list)
    seconds: list[list[float | None]] = field(default_factory=list)
    scores: list[list[tuple[int, float]]] = field(default_factory=list)

    def takes(self, row: int, place: int) -> bool:
        """Return whether a place takes a row at all."""
        return self.shapes[row].rates[place] is not None

    def worth(self, row: int, place: int) -> Worth:
        """Return what a place that takes it costs a row."""
        rate = self.shapes[row].rates[place]
        assert rate is not None, "the place takes it"
        return rate.worth(self.seconds[row][place])

    def put(self, queues: "list[_Queue]", row: int, place: int) -> float:
        """Have a row queue in a place; return when it starts there."""
        rate = self.shapes[row].rates[place]
        assert rate is not None, "the place takes it"
        # Its share of the quota is taken from Create on, not from when its instances are there.
        return queues[place].add(self.shapes[row].counts[place], (self.seconds[row][place] or 0.0) + rate.wait_s)

    def queues(self) -> list[_Queue]:
        """Return the places, with nobody in them."""
        return [_Queue(limit) for limit in self.limits]

    def total(self, places: Sequence[int | None]) -> tuple[int, float]:
        """Return the score of all rows together, each in its place."""
        queues, unknown, usd = self.queues(), 0, 0.0
        for row, place in enumerate(places):
            if place is None:
                continue
            start_s = self.put(queues, row, place)
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
    # The longest first: a long row that begins last would keep the whole grid waiting for it alone.
    ordered = sorted(tasks, key=lambda task: (-task.priority, -(task.expected_s or 0.0), task.position))
    table = _table(ordered, placement, market or Market())
    rows = range(len(ordered))
    places = _in_turn(table, rows)
    if len(ordered) * len(table.offers) <= IMPROVED:
        # From several beginnings: one alone ends, of some hundred cases, in one that no single change makes better.
        begins = (places, _in_turn(table, rows[::-1]), _without_queues(table))
        places = min((_improved(table, begin) for begin in begins), key=table.total)
    if len(ordered) <= FEW:
        places = _Search(table, places).run()
    queues, assigned = table.queues(), {}
    for row, (task, place) in enumerate(zip(ordered, places, strict=True)):
        if place is None:
            assigned[task.position] = Assigned(task=task, offer=None, reasons=table.shapes[row].reasons)
            continue
        start_s = table.put(queues, row, place)
        assigned[task.position] = Assigned(
            task=task, offer=table.offers[place], worth=table.worth(row, place), start_s=start_s
        )
    return [assigned[task.position] for task in tasks]


def _table(tasks: list[Task], placement: Cheapest, market: Market) -> _Table:
    offers, waiting = placement.offers, placement.waiting_usd_per_hour
    limits = [_limit(market, offer.place) for offer in offers]
    table = _Table(offers=offers, limits=limits, usd_per_s=waiting / 3600, tasks=tasks)
    # Rows differ in their parameters and times; where they may run, and what an hour costs, is the same for most.
    shapes: dict[tuple[object, ...], _Shape] = {}
    types = {offer.place.instance_type: offer for offer in offers}
    for task in tasks:
        key = (task.region, task.instance_types, task.spot, task.count, task.image, task.input_bytes)
        if key not in shapes:
            shapes[key] = _shape(task, placement, limits)
        by_type = {name: placement.seconds(task, offer) for name, offer in types.items()}
        seconds = [by_type[offer.place.instance_type] for offer in offers]
        pairs = zip(shapes[key].rates, seconds, strict=True)
        table.shapes.append(shapes[key])
        table.seconds.append(seconds)
        table.scores.append([_score(rate, each, table.usd_per_s) for rate, each in pairs])
    return table


def _score(rate: Rate | None, seconds: float | None, usd_per_s: float) -> tuple[int, float]:
    # What Worth.score says, without making a Worth for each of 400,000 pairs.
    if rate is None:
        return NEVER
    usd = (rate.usd_per_s or 0.0) * (UNKNOWN_S if seconds is None else seconds)
    unknown = (rate.usd_per_s is None) + (rate.transfer_usd is None)
    return unknown, usd + (rate.transfer_usd or 0.0) + rate.wait_s * usd_per_s


def _shape(task: Task, placement: Cheapest, limits: Sequence[int | None]) -> _Shape:
    shape = _Shape()
    for offer, limit in zip(placement.offers, limits, strict=True):
        count = task.count or offer.count
        why = refusal(task, offer, placement.move_data) or placement.lacks(task, offer.place.region)
        if why is None and limit is not None and limit < count:
            why = f"the quota leaves {limit} of {offer.place.instance_type}, and the job takes {count}"
        shape.counts.append(count)
        shape.rates.append(None if why else placement.rate(task, offer))
        if why:
            shape.reasons[str(offer.place)] = why
    return shape


def _limit(market: Market, place: Place) -> int | None:
    quota = market.quotas.get(place)
    return None if quota is None else quota.limit - quota.used_by_others


def _in_turn(table: _Table, rows: Sequence[int]) -> list[int | None]:
    """Return the places where each row takes the best one that is left when its turn comes.

    Args:
        table: The rows and places.
        rows: Whose turn it is, by and by.
    """
    queues = table.queues()
    places: list[int | None] = [None] * len(table.tasks)
    for row in rows:
        best: tuple[tuple[int, float], int] | None = None
        counts = table.shapes[row].counts
        for place, (unknown, usd) in enumerate(table.scores[row]):
            if unknown == NEVER[0]:
                continue
            score = (unknown, usd + queues[place].ready_s(counts[place]) * table.usd_per_s)
            if best is None or score < best[0]:
                best = score, place
        if best is not None:
            places[row] = best[1]
            table.put(queues, row, best[1])
    return places


def _without_queues(table: _Table) -> list[int | None]:
    """Return the place that each row would take if it were alone."""
    return [
        None if best == NEVER else scores.index(best)
        for scores, best in ((scores, min(scores, default=NEVER)) for scores in table.scores)
    ]


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
    for row, was in enumerate(places):
        for place in range(len(table.offers)):
            if place != was and table.takes(row, place):
                yield [*places[:row], place, *places[row + 1 :]]
    for one, other in itertools.combinations(range(len(places)), 2):
        first, second = places[one], places[other]
        if first is None or second is None or first == second:
            continue
        if table.takes(one, second) and table.takes(other, first):
            swapped = list(places)
            swapped[one], swapped[other] = second, first
            yield swapped


class _Search:
    """Looks through all assignments, the promising ones first, and leaves out what cannot be better than the best."""

    def __init__(self, table: _Table, places: list[int | None]) -> None:
        self.places = places
        self._table = table
        self._best = table.total(places)
        self._left = NODES
        # Of the rows from here on: what they cost at least, if none of them had to queue.
        least = [min(scores, default=NEVER) for scores in table.scores]
        self._rest = [(0, 0.0)]
        for unknown, usd in reversed(least):
            more = (0, 0.0) if unknown == NEVER[0] else (unknown, usd)
            self._rest.append((self._rest[-1][0] + more[0], self._rest[-1][1] + more[1]))
        self._rest.reverse()

    def run(self) -> list[int | None]:
        """Return the best assignment that was seen."""
        self._visit([], self._table.queues(), (0, 0.0))
        return self.places

    def _visit(self, chosen: list[int | None], queues: list[_Queue], score: tuple[int, float]) -> None:
        row = len(chosen)
        if row == len(self._table.tasks):
            # It was below the best where it was begun.
            self._best, self.places = score, chosen
            return
        ways = sorted(self._ways(row, queues, score)) or [(score, None)]
        for after, place in ways:
            self._left -= 1
            bound = (after[0] + self._rest[row + 1][0], after[1] + self._rest[row + 1][1])
            if bound >= self._best or self._left < 0:
                return
            moved = list(queues)
            if place is not None:
                moved[place] = queues[place].copy()
                self._table.put(moved, row, place)
            self._visit([*chosen, place], moved, after)

    def _ways(
        self, row: int, queues: list[_Queue], score: tuple[int, float]
    ) -> Iterator[tuple[tuple[int, float], int | None]]:
        table = self._table
        for place, (unknown, usd) in enumerate(table.scores[row]):
            if unknown != NEVER[0]:
                wait = queues[place].ready_s(table.shapes[row].counts[place]) * table.usd_per_s
                yield (score[0] + unknown, score[1] + usd + wait), place
