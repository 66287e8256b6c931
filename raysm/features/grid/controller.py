"""One step of a grid: look at its jobs, choose the rows that get a job now, and send them.

A step gets only the time; all state is in the store. A step may be killed at any point: the next
one, in any process, continues from the store.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from raysm.core.request.durations import duration
from raysm.features.grid import sending, stopping
from raysm.features.grid.attempt import MAX_RUNTIME_S, Attempt, AttemptState, most_billed_s
from raysm.features.grid.capacity import back_off_region, last_refusal, read_market
from raysm.features.grid.endings import EndingName, region_of_checkpoints
from raysm.features.grid.limiter import Limiter
from raysm.features.grid.market import ASK_AGAIN_S, Decision, Market, Offer
from raysm.features.grid.placement import Forecast, Placement
from raysm.features.grid.rates import GAUGE_S, Gauge
from raysm.features.grid.region import Guard, Region, RegionApi, RegionUnavailable
from raysm.features.grid.region_poll import RegionPoll
from raysm.features.grid.retry_policy import (
    ENDS_READ_PER_LIMIT,
    hopeless_reason,
    impossible_reason,
    is_hopeless,
    reason_to_pause,
)
from raysm.features.grid.row import Row, RowState
from raysm.features.grid.store.database import this_process
from raysm.features.grid.store.rows import RowRecord
from raysm.features.grid.store.store import GridRecord, GridState, Store

SHORTEST_S = 0.25
"""Shortest pause between two steps. With 0.05, a region with 20 calls a second needed a step per
call, and 100,000 rows took twice as long."""

LONGEST_S = 10.0
"""Longest pause between two steps: the lease must be renewed, and the user's commands must be
read."""

TRIAL_S = 120.0
"""Seconds that a first job must run before more are sent: most errors of a program show within
them."""

MAX_SENT = 100
"""Most jobs of one step: more than an account's rate allows, and few enough that a step does not
read all rows."""


class Controller:
    def __init__(
        self,
        store: Store,
        regions: Mapping[str, Region],
        placement: Placement,
        limiter: Limiter,
        *,
        owner: str | None = None,
        gauge_s: float = GAUGE_S,
        removed: Mapping[str, Region] = MappingProxyType({}),
        guard: Guard | None = None,
    ) -> None:
        self.store = store
        self._owner = owner or this_process()
        self._placement = placement
        self._limiter = limiter
        self.removed = tuple(removed)
        self._regions = list(regions)
        every = {**regions, **removed}
        self._api = RegionApi(every, limiter, store, guard)
        self._polls = {name: RegionPoll(name, store, self._api) for name in every}
        self._gauge = Gauge(store, self._api, pause_s=gauge_s)
        self._forecast = Forecast()
        self._learned = 0

    def step(self, now: float) -> float | None:
        # First, since two controllers would send every row twice.
        if self.store.database.take_lease(self._owner, now):
            with self.store.database.transaction("doubt"):
                self.store.attempts.mark_unanswered_doubtful()
        self._api.begin(now)
        self._look(now)
        self._gauge.step(now)
        grid = self._grid_or_pause(now)
        if grid.state is GridState.STOPPING:
            stopping.mark_all_to_stop(self.store, now)
        else:
            patience_s = grid.rules.patience_s
            stopping.mark_overdue_to_stop(self.store, self._polls.values(), patience_s, now)
        # Intents of earlier steps come first: their slots and dollars are already taken.
        sending.send_owed(self.store, self._api, self.removed, now)
        moments = [stopping.take_back(self.store, self._api, self.removed, now)]
        moments.append(stopping.ask_to_stop(self.store, self._api, now))
        moments.append(self._place(now) if grid.state is GridState.OPEN else None)
        return self._end_or_wait(grid, [moment for moment in moments if moment is not None], now)

    def _look(self, now: float) -> None:
        self._api.for_each_region(self._polls, str, lambda region, _: self._look_at(region, now))
        # Learn from the attempts that have ended since the last step; a new controller reads all.
        for attempt, number in self.store.attempts.ends_after(self._learned):
            row = self.store.rows.get(attempt.row_key).row
            self._placement.learn(row, attempt)
            self._forecast.learn(row, attempt)
            # Remember the event's number, so that each end counts once.
            self._learned = number

    def _look_at(self, region: str, now: float) -> None:
        poll = self._polls[region]
        try:
            poll.step(now)
        except RegionUnavailable as error:
            poll.rest(now)
            # The region's attempts keep their slots, and nothing new is sent there.
            with self.store.database.transaction("silent"):
                why = error.reason
                if region in self.removed:
                    why = stopping.unanswered_note(self.store, region, why)
                back_off_region(self.store, region, why, now)

    def _grid_or_pause(self, now: float) -> GridRecord:
        """Return the grid; pause it if its first jobs have all failed for the same reason."""
        grid = self.store.grid()
        brake = grid.rules.brake
        if grid.state is not GridState.OPEN or grid.goes_on or not brake:
            return grid
        first_ends = self.store.attempts.first_ends(brake * ENDS_READ_PER_LIMIT)
        why = reason_to_pause(grid.name, brake, first_ends)
        if why is None:
            return grid
        self.store.change_state(GridState.PAUSED, now, why=why)
        return self.store.grid()

    def _place(self, now: float) -> float | None:
        placer = Placer(
            self.store, self._placement, self._forecast, self._limiter, self._regions, now
        )
        sending.send(self.store, self._api, placer.intend(), now)
        if (
            placer.over_budget
            and not self.store.attempts.open_count()
            and not self.store.orphans.may_exist(now)
        ):
            self.store.change_state(GridState.PAUSED, now, why=placer.over_budget)
        return placer.ask_at_s

    def _end_or_wait(self, grid: GridRecord, moments: list[float], now: float) -> float | None:
        if not self.store.attempts.open_count() and not self.store.orphans.may_exist(now):
            # If the user stopped the grid during this step, the next step stops the waiting rows.
            if self.store.close_if_over(now):
                return None
        moments = [now + LONGEST_S, *moments]
        for name, poll in self._polls.items():
            due_s = poll.due_s(now)
            if due_s is not None:
                operation = "describe" if poll.describes else "list"
                moments.append(max(due_s, now + self._limiter.wait_s(name, operation, now)))
        # Not 0, which would be a busy loop.
        return max(SHORTEST_S, min(moments) - now)


class Placer:
    """Choose the rows that get a job in one step, and their places.

    Rows come by priority, within slots, token buckets, quotas and the budget.

    Attributes:
        over_budget: Why the budget allows no further job; empty if it does.
    """

    def __init__(
        self,
        store: Store,
        placement: Placement,
        forecast: Forecast,
        limiter: Limiter,
        regions: list[str],
        now: float,
    ) -> None:
        self._store = store
        self._placement = placement
        self._limiter = limiter
        self._now = now
        self._grid = store.grid()
        self._forecast = forecast
        self._taken = 0
        self._regions = regions
        # Times when rows that found no place may find one.
        self._ask_at_s: list[float] = []
        self.over_budget = ""

    @property
    def ask_at_s(self) -> float | None:
        return min(self._ask_at_s, default=None)

    def intend(self) -> list[tuple[Row, Attempt]]:
        """Store an intent for each row that has room, in one transaction.

        Returns:
            The rows with their attempts, which are to be sent.
        """
        rules = self._grid.rules
        limit = rules.brake if self._is_on_trial() else rules.parallel
        room = min(MAX_SENT, min(limit, rules.parallel) - self._store.attempts.open_count())
        # Read also without room: a bucket that is read notices that the clock was set back.
        calls = sum(self._limiter.calls(region, "create", self._now) for region in self._regions)
        with self._limiter.together():
            chosen = [] if room < 1 else list(self._choose_rows(room, calls))
        if len(chosen) == MAX_SENT:
            self._ask_at_s.append(self._now)
        if not chosen:
            return []
        with self._store.database.transaction("intents", durable=True):
            # A user may have corrected a row since it was read: it is placed in the next step.
            unchanged = (
                (record, offer)
                for record, offer in chosen
                if self._store.rows.get(record.row.key) == record
            )
            return [(record.row, self._store_intent(record, offer)) for record, offer in unchanged]

    def _read_market(self) -> None:
        """Read what the choice of places depends on; most steps have no row to place."""
        needs_price = self._grid.rules.max_cost is not None
        self._market = replace(
            read_market(self._store, self._limiter, self._regions, self._now),
            needs_price=needs_price,
            outlook=self._forecast.outlook(self._store, self._now),
        )
        self._in_use = Counter(self._market.in_use)
        self._cost = self._store.costs.money(self._now).worst_usd

    def _is_on_trial(self) -> bool:
        """Whether only a few jobs are sent yet, to see whether the program runs at all."""
        if not self._grid.rules.brake or self._grid.goes_on:
            return False
        endings = (EndingName.OK, EndingName.TIME)
        return not self._store.attempts.has_run(endings, self._now - TRIAL_S)

    def _choose_rows(self, room: int, calls: int) -> Iterator[tuple[RowRecord, Offer]]:
        closed: set[str] = set()
        # One row more than there are calls: it finds out when the next call may be made.
        rows = list(self._merge_by_priority(min(room, calls + 1)))
        if rows:
            self._read_market()
        for shape, record in rows:
            if shape in closed or self.over_budget:
                continue
            choice = self._choose_place(record)
            if choice.offer is not None:
                yield record, choice.offer
                room -= 1
                if room < 1:
                    return
            elif choice.ask_at_s is not None and not self._is_hopeless(choice):
                # All rows of a shape wait for the same places.
                closed.add(shape)
                self._ask_at_s.append(choice.ask_at_s)
            else:
                self._give_up(record, choice)

    def _merge_by_priority(self, room: int) -> Iterator[tuple[str, RowRecord]]:
        """Yield the first waiting rows of all shapes, in the order in which they are sent."""
        rows = [
            [(shape, record) for record in self._store.rows.waiting(shape, self._now, room)]
            for shape in self._store.rows.shapes()
        ]
        return heapq.merge(*rows, key=lambda item: item[1].row.sending_order)

    def _choose_place(self, record: RowRecord) -> Decision:
        row = record.row
        attempts = self._store.attempts.of_row(row.key) if record.attempts else []
        region = region_of_checkpoints(attempts)
        if region is not None:
            row = replace(row, region=region)
            if region not in self._regions:
                removed = (
                    f"its checkpoints are in {row.region}, which was removed from the grid; "
                    f"to continue there, raysm grid retry {self._grid.name}, "
                    "and raysm grid run with that region"
                )
                return Decision(reasons={"nowhere": removed})
        while True:
            decision = self._placement.choose(row, attempts, self._current_market(), self._now)
            offer = decision.offer
            if offer is None:
                return decision
            usd = self._most_usd(row, offer)
            if self._exceeds_budget(row, offer, usd):
                why = "the budget does not allow a job now"
                ask_at_s = self._now + ASK_AGAIN_S
                return Decision(ask_at_s=ask_at_s, reasons={str(offer.place): why})
            region = offer.place.region
            if self._limiter.take(region, "create", self._now):
                self._in_use[offer.place] += row.count or offer.count
                self._taken += 1
                self._cost += usd
                return decision
            # Another region may have a call left.
            until_s = self._now + max(self._limiter.wait_s(region, "create", self._now), 1e-3)
            closed = {**self._market.closed, region: until_s}
            self._market = replace(self._market, closed=closed)

    def _current_market(self) -> Market:
        """Return the market with the rows that this step has placed."""
        if not self._taken:
            return self._market
        outlook = self._market.outlook
        left = replace(outlook, waiting=outlook.waiting - self._taken)
        return replace(self._market, in_use=self._in_use, outlook=left)

    def _most_usd(self, row: Row, offer: Offer) -> float:
        """Return the most that a job of the row can cost; 0 if its price is unknown."""
        seconds = most_billed_s(row.max_runtime_s or MAX_RUNTIME_S)
        return (offer.most_usd_per_hour or 0.0) * (row.count or offer.count) * seconds / 3600

    def _exceeds_budget(self, row: Row, offer: Offer, usd: float) -> bool:
        budget_usd = self._grid.rules.max_cost
        # Without a price, placement has refused the place if there is a budget.
        if budget_usd is None or self._cost + usd <= budget_usd:
            return False
        self.over_budget = (
            f"the budget of ${budget_usd:,.2f} does not allow a further job: "
            f"row {row.key!r} may take ${usd:,.2f} "
            f"({duration(row.max_runtime_s or MAX_RUNTIME_S)} at most in {offer.place}), and "
            f"${max(0.0, budget_usd - self._cost):,.2f} are left; "
            "raise --max-cost, lower --max-runtime, or stop"
        )
        return True

    def _store_intent(self, record: RowRecord, offer: Offer) -> Attempt:
        row = record.row
        grid = self._grid
        number = record.attempts + 1
        # In 1 of 200 grids of 100,000 rows two keys share a hash: the second one takes the next
        # number.
        while self._store.attempts.find(grid.job_name(row, number)) is not None:
            number += 1
        attempt = Attempt(
            row_key=row.key,
            number=number,
            name=grid.job_name(row, number),
            region=offer.place.region,
            instance_type=offer.place.instance_type,
            count=row.count or offer.count,
            spot=offer.place.spot,
            state=AttemptState.INTENDED,
            intended_s=self._now,
            max_runtime_s=row.max_runtime_s or MAX_RUNTIME_S,
            usd_per_hour=offer.most_usd_per_hour,
            choice=offer.choice,
            price_version=offer.price_version,
        )
        self._store.attempts.insert(attempt)
        self._store.rows.move(
            row.key, RowState.WAITING, RowState.PLACED, self._now, attempts=number, reason=""
        )
        return attempt

    def _is_hopeless(self, choice: Decision) -> bool:
        return is_hopeless(choice.stuck.values(), self._grid.rules.give_up_s, self._now)

    def _give_up(self, record: RowRecord, choice: Decision) -> None:
        if choice.stuck:
            state = RowState.FAILED
            refusals = {str(place): last_refusal(self._store, place) for place in choice.stuck}
            reason = hopeless_reason(refusals, self._grid.rules.give_up_s)
        else:
            state = RowState.IMPOSSIBLE
            reason = impossible_reason(choice.reasons)
        with self._store.database.transaction(state.value):
            self._store.rows.move(record.row.key, RowState.WAITING, state, self._now, reason=reason)
        # The next waiting row was not read yet.
        self._ask_at_s.append(self._now)
