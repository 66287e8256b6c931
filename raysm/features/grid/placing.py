"""Choose the rows that get a job now: by priority, within slots, token buckets, quotas and the budget."""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from raysm.core.request.durations import duration
from raysm.features.grid.capacity import last_refusal, read_market
from raysm.features.grid.endings import region_of_checkpoints
from raysm.features.grid.limiter import Limiter
from raysm.features.grid.place import Choice, Offer
from raysm.features.grid.placement import Cheapest, Forecast
from raysm.features.grid.records import GridRecord, TaskRecord
from raysm.features.grid.store import Store
from raysm.features.grid.task import (
    MAX_RUNTIME_S,
    Attempt,
    AttemptState,
    Task,
    TaskState,
    most_billed_s,
)

PROBE_S = 120.0
"""Seconds that a first job must run before more are sent: most errors of a program show within
them."""

MAX_SENT = 100
"""Most jobs of one step: more than an account's rate allows, and few enough that a step does not
read all rows."""


def probing(store: Store, grid: GridRecord, now: float) -> bool:
    """Whether only a few jobs are sent yet, to see whether the program runs at all."""
    if not grid.rules.brake or grid.goes_on:
        return False
    return not store.has_run(("OK", "TIME"), now - PROBE_S)


class Placing:
    """Places the rows of one step.

    Attributes:
        over_budget: Why the budget allows no further job; empty if it does.
    """

    def __init__(
        self,
        store: Store,
        placement: Cheapest,
        forecast: Forecast,
        limiter: Limiter,
        regions: list[str],
        now: float,
    ) -> None:
        self._store, self._placement, self._limiter, self._now = store, placement, limiter, now
        self._grid = store.grid()
        current = read_market(store, limiter, regions, now)
        needs_price = self._grid.rules.budget_usd is not None
        self._market = replace(
            current, needs_price=needs_price, outlook=forecast.outlook(store, now)
        )
        self._in_use = Counter(self._market.in_use)
        self._taken = 0
        self._regions = regions
        self._cost = store.money(now).worst_usd
        # Times when rows that found no place may find one.
        self._again_s: list[float] = []
        self.over_budget = ""

    @property
    def again_s(self) -> float | None:
        return min(self._again_s, default=None)

    def intend(self) -> list[tuple[Task, Attempt]]:
        """Store an intent for each row that has room, in one transaction; return rows and attempts."""
        rules = self._grid.rules
        limit = rules.brake if probing(self._store, self._grid, self._now) else rules.parallel
        room = min(MAX_SENT, min(limit, rules.parallel) - self._store.open_count())
        with self._limiter.together():
            chosen = [] if room < 1 else list(self._chosen(room))
        if len(chosen) == MAX_SENT:
            self._again_s.append(self._now)
        if not chosen:
            return []
        with self._store.database.transaction("intents", durable=True):
            # A user may have corrected a row since it was read: it is placed in the next step.
            unchanged = (
                (record, offer)
                for record, offer in chosen
                if self._store.task(record.task.key) == record
            )
            return [(record.task, self._keep(record, offer)) for record, offer in unchanged]

    def _chosen(self, room: int) -> Iterator[tuple[TaskRecord, Offer]]:
        closed: set[str] = set()
        # One row more than there are calls: it finds out when the next call may be made.
        calls = sum(self._limiter.calls(region, "create", self._now) for region in self._regions)
        for shape, record in self._in_order(min(room, calls + 1)):
            if shape in closed or self.over_budget:
                continue
            choice = self._choose(record)
            if choice.offer is not None:
                yield record, choice.offer
                room -= 1
                if room < 1:
                    return
            elif choice.again_s is not None and not self._is_hopeless(choice):
                # All rows of a shape wait for the same places.
                closed.add(shape)
                self._again_s.append(choice.again_s)
            else:
                self._give_up(record, choice)

    def _in_order(self, room: int) -> Iterator[tuple[str, TaskRecord]]:
        """Yield the first waiting rows of all shapes by priority."""

        def worth(item: tuple[str, TaskRecord]) -> tuple[float, float, int]:
            task = item[1].task
            return -task.priority, -(task.expected_s or 0.0), task.position

        shapes, store = self._store.shapes(), self._store
        rows = [
            [(shape, record) for record in store.waiting(shape, self._now, room)]
            for shape in shapes
        ]
        return heapq.merge(*rows, key=worth)

    def _choose(self, record: TaskRecord) -> Choice:
        task = record.task
        attempts = self._store.attempts(task.key) if record.attempts else []
        region = region_of_checkpoints(attempts)
        if region is not None:
            task = replace(task, region=region)
            if region not in self._regions:
                retry = f"to continue there, raysm grid retry {self._grid.name}, and raysm grid run with that region"
                removed = f"its checkpoints are in {task.region}, which was removed from the grid; {retry}"
                return Choice(reasons={"nowhere": removed})
        market = self._market
        if self._taken:
            outlook = replace(market.outlook, waiting=market.outlook.waiting - self._taken)
            market = replace(market, in_use=self._in_use, outlook=outlook)
        choice = self._placement.choose(task, attempts, market, self._now)
        return choice if choice.offer is None else self._admitted(record, choice, choice.offer)

    def _admitted(self, record: TaskRecord, choice: Choice, offer: Offer) -> Choice:
        """Return the choice, if the region's token bucket and the budget admit it."""
        task, place, now = record.task, offer.place, self._now
        count, max_runtime_s = task.count or offer.count, task.max_runtime_s or MAX_RUNTIME_S
        budget, price = self._grid.rules.budget_usd, offer.most_usd_per_hour
        usd = 0.0 if price is None else price * count * most_billed_s(max_runtime_s) / 3600
        if budget is not None and price is not None and self._cost + usd > budget:
            self.over_budget = (
                f"the budget of ${budget:,.2f} does not allow a further job: row {task.key!r} may take "
                f"${usd:,.2f} ({duration(max_runtime_s)} at most in {place}), and "
                f"${max(0.0, budget - self._cost):,.2f} are left; raise --budget, lower --max-runtime, or stop"
            )
            return Choice(
                again_s=now + 60, reasons={str(place): "the budget does not allow a job now"}
            )
        if not self._limiter.take(place.region, "create", now):
            until_s = now + max(self._limiter.wait_s(place.region, "create", now), 1e-3)
            self._market = replace(
                self._market, closed={**self._market.closed, place.region: until_s}
            )
            # Another region may have a call left.
            return self._choose(record)
        self._in_use[place] += count
        self._taken += 1
        self._cost += usd
        return choice

    def _keep(self, record: TaskRecord, offer: Offer) -> Attempt:
        task, grid, number = record.task, self._grid, record.attempts + 1
        # In 1 of 200 grids of 100,000 rows two keys share a hash: the second one takes the next
        # number.
        while self._store.attempt(grid.job_name(task, number)) is not None:
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
        self._store.move_task(
            task.key, TaskState.WAITING, TaskState.PLACED, self._now, attempts=number, reason=""
        )
        return attempt

    def _is_hopeless(self, choice: Choice) -> bool:
        """Whether no place has taken a job for ``Rules.give_up_s``."""
        # Not the row's own wait, which is long if other rows come first.
        return (
            bool(choice.stuck)
            and self._now - max(choice.stuck.values()) > self._grid.rules.give_up_s
        )

    def _give_up(self, record: TaskRecord, choice: Choice) -> None:
        state, reasons = TaskState.IMPOSSIBLE, choice.reasons
        if choice.stuck:
            # Reasons are counted by their text, so they leave out how long each backoff lasts.
            state, reasons = (
                TaskState.FAILED,
                {str(place): last_refusal(self._store, place) for place in choice.stuck},
            )
        reason = (
            "; ".join(f"{place}: {why}" for place, why in reasons.items())
            or "the grid has no places"
        )
        if choice.stuck:
            hours = self._grid.rules.give_up_s / 3600
            reason = f"given up: for {hours:g} h no place took a job ({reason}); give more types or regions, or wait"
        with self._store.database.transaction(state.value):
            self._store.move_task(
                record.task.key, TaskState.WAITING, state, self._now, reason=reason
            )
        # The next waiting row was not read yet.
        self._again_s.append(self._now)
