"""One step of a grid: look at its jobs, and send the next ones.

A step gets only the time; all state is in the store. A step may be killed at any point: the next
one, in any process, continues from the store.
"""

from collections.abc import Mapping
from types import MappingProxyType

from raysm.features.grid import sending
from raysm.features.grid.capacity import back_off_region
from raysm.features.grid.conclusion import brake
from raysm.features.grid.database import this_process
from raysm.features.grid.limiter import Limiter
from raysm.features.grid.placement import Cheapest, Forecast
from raysm.features.grid.placing import Placing
from raysm.features.grid.records import GridRecord
from raysm.features.grid.region import Guard, Region, RegionApi, RegionUnavailable
from raysm.features.grid.store import Store
from raysm.features.grid.sweep import GAUGE_S, Gauge, Sweep

SHORTEST_S = 0.25
"""Shortest pause between two steps. With 0.05, a region with 20 calls a second needed a step per
call, and 100,000 rows took twice as long."""

LONGEST_S = 10.0
"""Longest pause between two steps: the lease must be renewed, and the user's commands must be
read."""


class Controller:
    def __init__(
        self,
        store: Store,
        regions: Mapping[str, Region],
        placement: Cheapest,
        limiter: Limiter,
        *,
        owner: str | None = None,
        gauge_s: float = GAUGE_S,
        left: Mapping[str, Region] = MappingProxyType({}),
        guard: Guard | None = None,
    ) -> None:
        self.store = store
        self._owner = owner or this_process()
        self._placement = placement
        self._limiter = limiter
        self.left = tuple(left)
        self._regions = list(regions)
        every = {**regions, **left}
        self._api = RegionApi(every, limiter, store, guard)
        self._sweeps = {name: Sweep(name, store, self._api) for name in every}
        self._gauge = Gauge(store, self._api, pause_s=gauge_s)
        self._forecast = Forecast()
        self._learned = 0

    def step(self, now: float) -> float | None:
        # First, since two controllers would send every task twice.
        if self.store.database.take_lease(self._owner, now):
            with self.store.database.transaction("doubt"):
                self.store.doubt_owed()
        self._api.begin(now)
        self._look(now)
        self._gauge.step(now)
        grid = self._grid_or_pause(now)
        if grid.state == "stopping":
            sending.mark_all_to_stop(self.store, now)
        else:
            sending.mark_overdue_to_stop(self.store, self._sweeps.values(), now)
        # Intents of earlier steps come first: their slots and dollars are already taken.
        sending.send_owed(self.store, self._api, self.left, now)
        moments = [sending.take_back(self.store, self._api, self.left, now)]
        moments.append(sending.ask_to_stop(self.store, self._api, now))
        moments.append(self._place(now) if grid.state == "open" else None)
        return self._end_or_wait(grid, [moment for moment in moments if moment is not None], now)

    def _look(self, now: float) -> None:
        self._api.side_by_side(self._sweeps, str, lambda region, _: self._look_at(region, now))
        # Learn from the attempts that have ended since the last step; a new controller reads all.
        for attempt, number in self.store.ends_after(self._learned):
            task = self.store.task(attempt.task).task
            self._placement.learn(task, attempt)
            self._forecast.learn(task, attempt)
            # Remember the event's number, so that each end counts once.
            self._learned = number

    def _look_at(self, region: str, now: float) -> None:
        sweep = self._sweeps[region]
        try:
            sweep.step(now)
        except RegionUnavailable as error:
            sweep.rest(now)
            # The region's attempts keep their slots, and nothing new is sent there.
            with self.store.database.transaction("silent"):
                why = error.reason
                why = (
                    sending.unanswered_note(self.store, region, why) if region in self.left else why
                )
                back_off_region(self.store, region, why, now)

    def _grid_or_pause(self, now: float) -> GridRecord:
        """Return the grid; pause it if its first jobs have all failed for the same reason."""
        grid = self.store.grid()
        why = brake(self.store, grid) if grid.state == "open" else None
        if why is None:
            return grid
        self.store.change_grid("paused", now, why=why)
        return self.store.grid()

    def _place(self, now: float) -> float | None:
        placing = Placing(
            self.store, self._placement, self._forecast, self._limiter, self._regions, now
        )
        sending.send(self.store, self._api, placing.intend(), now)
        if placing.over_budget and not self.store.open_count() and not self.store.is_watching(now):
            self.store.change_grid("paused", now, why=placing.over_budget)
        return placing.again_s

    def _end_or_wait(self, grid: GridRecord, moments: list[float], now: float) -> float | None:
        if not self.store.open_count() and not self.store.is_watching(now):
            # If the user stopped the grid during this step, the next step stops the waiting rows.
            if self.store.close_if_over(now):
                return None
        moments = [now + LONGEST_S, *moments]
        for name, sweep in self._sweeps.items():
            due_s = sweep.due_s(now)
            if due_s is not None:
                operation = "describe" if sweep.describes else "list"
                moments.append(max(due_s, now + self._limiter.wait_s(name, operation, now)))
        # Not 0, which would be a busy loop.
        return max(SHORTEST_S, min(moments) - now)
