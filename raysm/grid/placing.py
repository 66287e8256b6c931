"""Which tasks get a job now: in the order of their worth, while slots, buckets, quotas and the budget allow it.

What flows in are the tasks that wait, what flows out are intents in the store.
"""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from raysm.grid.attempt import Attempt, AttemptState, TaskState
from raysm.grid.capacity import last_refusal, read_market
from raysm.grid.endings import EndName, ending
from raysm.grid.estimates import Forecast
from raysm.grid.ledger import money
from raysm.grid.limiter import Limiter
from raysm.grid.place import Choice, Offer, Placement
from raysm.grid.records import GridRecord, TaskRecord
from raysm.grid.store import Store
from raysm.grid.task import MAX_RUNTIME_S, Task

__all__ = ["Placing", "probing"]

PROBE_S = 120.0
"""Seconds for which a first job has to run before the others are sent: a mistake in the program shows within them."""

TAKEN_OUT = (
    "which was taken out of the grid: raysm grid retry and the same raysm grid run with that region take it up there"
)

MOST = 100
"""Jobs that one step sends: more than any account's rate allows, and so few that not all rows are read each time."""


def probing(store: Store, grid: GridRecord, now: float) -> bool:
    """Whether only the first few jobs are sent yet, to see whether the program runs at all."""
    if not grid.rules.brake or grid.goes_on:
        return False
    row = store.database.connection.execute(
        "SELECT 1 FROM attempt WHERE started_s IS NOT NULL AND (state = 'ended' AND ending IN (?, ?) "
        "OR state <> 'ended' AND started_s <= ?) "
        "UNION ALL SELECT 1 FROM task WHERE state = 'done' LIMIT 1",
        (EndName.OK, EndName.TIME, now - PROBE_S),
    ).fetchone()
    return row is None


class Placing:
    """The placing of one step."""

    def __init__(
        self, store: Store, placement: Placement, pace: Forecast, limiter: Limiter, regions: list[str], now: float
    ) -> None:
        """Look at the market, once for all tasks of the step."""
        self._store = store
        self._placement = placement
        self._limiter = limiter
        self._now = now
        self._grid = store.grid()
        current = read_market(store, limiter, regions, now)
        needs_price = self._grid.rules.budget_usd is not None
        self._market = replace(current, needs_price=needs_price, outlook=pace.outlook(store, now))
        self._in_use = Counter(self._market.in_use)
        self._taken: Counter[str] = Counter()
        self._regions = regions
        self._cost = money(store, now).worst_usd
        # Moments at which a task that found no place may find one.
        self._again_s: list[float] = []
        self.too_dear = ""
        """Why the budget allows no further job; empty where it does."""

    @property
    def again_s(self) -> float | None:
        """When the next task may find a place; None where nothing says so."""
        return min(self._again_s, default=None)

    def intend(self) -> list[tuple[Task, Attempt]]:
        """Keep as many intents as there is room for, in one transaction; return each with its row."""
        room = min(MOST, self._room())
        with self._limiter.together():
            chosen = [] if room < 1 else list(self._chosen(room))
        if len(chosen) == MOST:
            self._again_s.append(self._now)
        if not chosen:
            return []
        with self._store.database.transaction("intents", durable=True):
            return [(record.task, self._keep(record, offer)) for record, offer in chosen]

    def _room(self) -> int:
        rules, started = self._grid.rules, self._store.open_count()
        most = rules.brake if probing(self._store, self._grid, self._now) else rules.parallel
        return min(most, rules.parallel) - started

    def _chosen(self, room: int) -> Iterator[tuple[TaskRecord, Offer]]:
        closed: set[str] = set()
        # One more than there are calls for: by that one it is known when the next call may be made.
        calls = sum(self._limiter.calls(region, "create", self._now) for region in self._regions)
        for shape, record in self._in_order(min(room, calls + 1)):
            if shape in closed or self.too_dear:
                continue
            choice = self._choose(record)
            if choice.offer is not None:
                yield record, choice.offer
                room -= 1
                if room < 1:
                    return
            elif choice.again_s is not None and not self._is_hopeless(choice):
                # Of one shape all wait for the same: the others need not be asked.
                closed.add(shape)
                self._again_s.append(choice.again_s)
            else:
                self._give_up(record, choice)

    def _in_order(self, room: int) -> Iterator[tuple[str, TaskRecord]]:
        """Yield the first rows that wait, of all shapes, in the order of their worth."""

        def worth(item: tuple[str, TaskRecord]) -> tuple[float, float, int]:
            task = item[1].task
            return -task.priority, -(task.expected_s or 0.0), task.position

        shapes = [
            [(shape, record) for record in self._store.waiting(shape, self._now, room)]
            for shape in self._store.shapes()
        ]
        return heapq.merge(*shapes, key=worth)

    def _choose(self, record: TaskRecord) -> Choice:
        task = record.task
        attempts = self._store.attempts(task.key) if record.attempts else []
        if attempts and ending(attempts[-1].ending).stays:
            # Its checkpoints lie in the bucket of that region.
            task = replace(task, region=attempts[-1].region)
            if task.region not in self._regions:
                return Choice(reasons={"nowhere": f"what it has saved lies in {task.region}, {TAKEN_OUT}"})
        market = self._market
        if self._taken:
            outlook = replace(market.outlook, waiting=market.outlook.waiting - self._taken.total())
            market = replace(market, in_use=self._in_use, outlook=outlook)
        choice = self._placement.choose(task, attempts, market, self._now)
        return choice if choice.offer is None else self._admitted(record, choice, choice.offer)

    def _admitted(self, record: TaskRecord, choice: Choice, offer: Offer) -> Choice:
        """Return the choice, if the region's bucket and the budget admit it."""
        task = record.task
        place, count = offer.place, task.count or offer.count
        budget, usd = self._grid.rules.budget_usd, _worst(task, offer)
        if budget is not None and usd is not None and self._cost + usd > budget:
            hours = (task.max_runtime_s or MAX_RUNTIME_S) / 3600
            self.too_dear = (
                f"the budget of ${budget:,.2f} does not allow a further job: row {task.key!r} may take "
                f"${usd:,.2f} ({hours:g} h at most in {place}), and ${max(0.0, budget - self._cost):,.2f} are left; "
                "raise it, say a smaller max_runtime_s, or stop"
            )
            return Choice(again_s=self._now + 60, reasons={str(place): "the budget does not allow it now"})
        if not self._limiter.take(place.region, "create", self._now):
            wait_s = self._limiter.wait_s(place.region, "create", self._now)
            self._market = replace(
                self._market, closed={**self._market.closed, place.region: self._now + max(wait_s, 1e-3)}
            )
            # Another region may have a call left.
            return self._choose(record)
        self._in_use[place] += count
        self._taken[place.region] += 1
        self._cost += usd or 0.0
        return choice

    def _keep(self, record: TaskRecord, offer: Offer) -> Attempt:
        task, grid, number = record.task, self._grid, record.attempts + 1
        # Two keys of one hash, in one grid of 200 that have 100,000 rows each: the second takes the next number.
        while self._store.has_attempt(grid.job_name(task, number)):
            number += 1
        attempt = Attempt(
            task=task.key,
            number=number,
            name=grid.job_name(task, number),
            region=offer.place.region,
            instance_type=offer.place.instance_type,
            count=task.count or offer.count,
            spot=offer.place.spot,
            state=AttemptState.INTENDED,
            intended_s=self._now,
            max_runtime_s=task.max_runtime_s or MAX_RUNTIME_S,
            usd_per_hour=offer.most_usd_per_hour,
            choice=offer.choice,
            price_version=offer.price_version,
        )
        self._store.insert(attempt)
        self._store.move_task(task.key, TaskState.WAITING, TaskState.PLACED, self._now, attempts=number, reason="")
        return attempt

    def _is_hopeless(self, choice: Choice) -> bool:
        """Whether all places have taken nothing for so long that the row is not waited for any more."""
        # Of the places, not of the row: of 1,000 rows one an hour is tried where a place has nothing, and each of them
        # would have a day of its own; and a row that others come before, where all goes well, is not given up.
        return bool(choice.stuck) and self._now - max(choice.stuck.values()) > self._grid.rules.give_up_s

    def _give_up(self, record: TaskRecord, choice: Choice) -> None:
        state, reasons = TaskState.IMPOSSIBLE, choice.reasons
        if choice.stuck:
            # Without the seconds that each is still left alone: reasons are counted by their words.
            state, reasons = TaskState.FAILED, {str(place): last_refusal(self._store, place) for place in choice.stuck}
        reason = "; ".join(f"{place}: {why}" for place, why in reasons.items()) or "no place is given"
        if choice.stuck:
            hours = self._grid.rules.give_up_s / 3600
            reason = f"given up: for {hours:g} h no place took a job ({reason}); give more types or regions, or wait"
        with self._store.database.transaction(state.value):
            self._store.move_task(record.task.key, TaskState.WAITING, state, self._now, reason=reason)
        # The one behind it was not read yet.
        self._again_s.append(self._now)


def _worst(task: Task, offer: Offer) -> float | None:
    if offer.most_usd_per_hour is None:
        return None
    return offer.most_usd_per_hour * (task.count or offer.count) * (task.max_runtime_s or MAX_RUNTIME_S) / 3600
