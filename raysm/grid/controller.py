"""One step of a grid: what has become of its jobs, and which are sent next.

The same step runs in the foreground, in the background, as a job of its own or from cron, and in tests under a clock of
their own. What flows in is the moment; all else is in the store. A step may be ended at any point, by anything: the
next one, of this process or another, goes on from what the store says.
"""

from collections.abc import Mapping
from types import MappingProxyType

from raysm.grid.concluding import brake
from raysm.grid.database import this_process
from raysm.grid.gauge import GAUGE_S, Gauge
from raysm.grid.leaving import silent_there, take_back
from raysm.grid.limiter import Limiter
from raysm.grid.outside import Outside, Silence
from raysm.grid.pace import Pace
from raysm.grid.place import Placement
from raysm.grid.placing import Placing
from raysm.grid.records import GridRecord
from raysm.grid.region import Region
from raysm.grid.sending import send, send_owed
from raysm.grid.standing import close
from raysm.grid.stopping import ask_to_stop, wish_all, wish_impatient
from raysm.grid.store import Store
from raysm.grid.sweep import Sweep

__all__ = ["SHORTEST_S", "Controller"]

SHORTEST_S = 0.25
"""Seconds between two steps. At 0.05 a region of 20 calls a second got a step for each, and 100,000 rows took twice as
long. Nothing is lost by it: buckets go on filling, and nobody sees a quarter of a second where jobs take minutes."""

LONGEST_S = 10.0
"""Seconds after which there is a next step in any case: the lease has to be renewed, and wishes be seen."""


class Controller:
    """The one that runs a grid.

    Attributes:
        store: All that is known.
        left: Regions that were taken out of the grid, and are followed to the ends of what is there.
    """

    def __init__(
        self,
        store: Store,
        regions: Mapping[str, Region],
        placement: Placement,
        limiter: Limiter,
        *,
        owner: str | None = None,
        gauge_s: float = GAUGE_S,
        left: Mapping[str, Region] = MappingProxyType({}),
    ) -> None:
        """Take the grid's store, and all that is outside of it; nothing is called yet.

        Args:
            store: The grid's.
            regions: Those that jobs may be sent to, by name.
            placement: Says where tasks go.
            limiter: The buckets of the account.
            owner: Whose lease it is; None is this process.
            gauge_s: Seconds from one look at the rates of all jobs to the next.
            left: Regions that were taken out of the grid while it had jobs there: they are followed to their ends, and
                none begins.
        """
        self.store = store
        self._owner = owner or this_process()
        self._placement = placement
        self._limiter = limiter
        self.left = tuple(left)
        self._regions = list(regions)
        every = {**regions, **left}
        self._outside = Outside(every, limiter, store.database.between, store.database.turns)
        self._sweeps = {name: Sweep(name, store, self._outside) for name in every}
        self._gauge = Gauge(store, self._outside, pause_s=gauge_s)
        self._pace = Pace()
        self._learned = 0

    def step(self, now: float) -> float | None:
        """Do all that can be done at ``now``; return the seconds until the next step, None where the grid is over.

        Args:
            now: Seconds since the epoch.

        Raises:
            LeaseLost: Another controller runs the grid.
        """
        # First of all: two controllers would send every task twice.
        self.store.database.take_lease(self._owner, now)
        self._outside.begin(now)
        self._look(now)
        self._gauge.step(now)
        grid = self._governed(now)
        if grid.state == "stopping":
            wish_all(self.store, now)
        else:
            wish_impatient(self.store, self._sweeps.values(), now)
        # What an earlier step intended comes before anything new: its slot and its dollars are taken already.
        send_owed(self.store, self._outside, self.left, now)
        moments = [
            take_back(self.store, self._outside, self.left, now),
            ask_to_stop(self.store, self._outside, now),
            self._place(now) if grid.state == "open" else None,
        ]
        return self._end_or_wait(grid, [moment for moment in moments if moment is not None], now)

    def _look(self, now: float) -> None:
        self._outside.side_by_side(self._sweeps, str, lambda region, _: self._look_at(region, now))
        self._learn()

    def _look_at(self, region: str, now: float) -> None:
        sweep = self._sweeps[region]
        try:
            sweep.step(now)
        except Silence as silence:
            sweep.rest(now)
            # Not heard of is not ended: its attempts keep their slots, and nothing new is sent there.
            with self.store.database.transaction("silent"):
                why = silence.reason if region not in self.left else silent_there(self.store, region, silence.reason)
                close(self.store, region, why, now)

    def _learn(self) -> None:
        """Tell the placement what has ended since it was last told; a new one hears all of it."""
        for attempt, number in self.store.ends_after(self._learned):
            task = self.store.task(attempt.task).task
            self._placement.learn(task, attempt)
            self._pace.learn(task, attempt)
            # By the number of the event, so that a controller that begins anew learns everything once.
            self._learned = number

    def _governed(self, now: float) -> GridRecord:
        """Return the grid, paused if its first jobs have all failed for one reason."""
        grid = self.store.grid()
        why = brake(self.store, grid) if grid.state == "open" else None
        if why is not None:
            self.store.change_grid("paused", now, why=why)
            return self.store.grid()
        return grid

    def _place(self, now: float) -> float | None:
        placing = Placing(self.store, self._placement, self._pace, self._limiter, self._regions, now)
        send(self.store, self._outside, placing.intend(), now)
        if placing.too_dear and not self.store.open_count() and not self.store.is_watching(now):
            self.store.change_grid("paused", now, why=placing.too_dear)
        return placing.again_s

    def _end_or_wait(self, grid: GridRecord, moments: list[float], now: float) -> float | None:
        if not self.store.open_count() and not self.store.is_watching(now):
            state = self.store.grid().state
            # Of a wish to stop that has come within this step the next one stops the rows that wait.
            if state == grid.state == "stopping" or (state == "open" and self.store.is_over()):
                self.store.change_grid("closed", now)
            if self.store.grid().state in ("closed", "paused"):
                self.store.database.release_lease()
                return None
        moments = [now + LONGEST_S, *moments]
        for name, sweep in self._sweeps.items():
            due_s = sweep.due_s(now)
            if due_s is not None:
                operation = "describe" if sweep.describes else "list"
                moments.append(max(due_s, now + self._limiter.wait_s(name, operation, now)))
        # Never 0: a step that has nothing to wait for would turn into a loop that only spins.
        return max(SHORTEST_S, min(moments) - now)
