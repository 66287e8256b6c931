"""Grids under a clock that the test moves: stores, controllers, and the oracle that judges how they ended."""

from raysm.features.grid.controller import Controller
from raysm.features.grid.limiter import Limiter, Rate
from raysm.features.grid.market import Offer, Place
from raysm.features.grid.placement import Placement
from raysm.features.grid.row import Row, RowState
from raysm.features.grid.rules import Rules
from raysm.features.grid.stopping import removed_regions_in_use
from raysm.features.grid.store.store import Store
from tests.support.grid_world import Behaviour, Clock, FakeRegion, overlaps

FAST = {
    operation: Rate(per_s=50, burst=50)
    for operation in ("create", "list", "describe", "stop", "metrics")
}
TYPE = "ml.m5.large"


class Killed(BaseException):
    """The controller's process ended here: nothing of it runs on, not even its handlers of errors."""


class Bench:
    """One grid over fake regions, of these rows, or of so many.

    ``run`` is what a process would do, and ``kill`` says where it ends.
    """

    def __init__(
        self,
        folder,
        rows=10,
        *,
        regions=None,
        rules=None,
        rates=None,
        kill=None,
        placement=None,
        began_s=1_800_000_000.0,
    ):
        self.clock = Clock(began_s)
        behaviours = regions or {"us-east-1": Behaviour(), "eu-west-1": Behaviour()}
        self.regions = {
            name: FakeRegion(name, self.clock, behaviour) for name, behaviour in behaviours.items()
        }
        self.folder = folder
        self.rules = rules or Rules(brake=0)
        self.limiter = Limiter(":memory:", rates or FAST)
        self.kill = kill or (lambda point: None)
        self.points = []
        self.placement = placement or Placement(
            offers=[
                Offer(
                    place=Place(region=name, instance_type=TYPE),
                    usd_per_hour=region.behaviour.usd_per_hour,
                )
                for name, region in self.regions.items()
            ]
        )
        self.controller = None
        # Regions that were taken out of the request.
        self.left = ()
        self.open()
        self.store.make("g", rules=self.rules, now=self.clock.now)
        if isinstance(rows, int):
            rows = [
                Row(key=f"row-{number}", position=number, max_runtime_s=7200)
                for number in range(rows)
            ]
        self.store.add(rows)

    def open(self):
        """Start a process: what an earlier one had in memory is lost."""
        if self.controller is not None:
            self.store.database.close()
        self.store = Store(self.folder / "g.db", between=self._between)
        self.controller = Controller(
            self.store,
            {name: self.regions[name] for name in self._kept},
            self.placement,
            self.limiter,
            owner=f"[{id(self.store)}]",
            removed={
                name: self.regions[name]
                for name in removed_regions_in_use(self.store, self._kept, self.clock.now)
            },
        )

    @property
    def _kept(self):
        return [name for name in self.regions if name not in self.left]

    def leave(self, *regions):
        """Start another process, of the same grid without these regions."""
        self.left = regions
        self.placement = Placement(
            offers=[each for each in self.placement.offers if each.place.region not in regions]
        )
        self.clock.now += 31
        self.open()

    def _between(self, point):
        self.points.append(point)
        self.kill(point)

    def step(self):
        """Do one step, and let the clock run to the next; return whether there is one."""
        wait_s = self.controller.step(self.clock.now)
        self.clock.now += 0 if wait_s is None else wait_s
        return wait_s is not None

    def run(self, most_s=30 * 86_400):
        """Run to the end, a new process after each that was killed; return the seconds that it took."""
        began = self.clock.now
        while self.clock.now - began < most_s:
            try:
                if not self.step():
                    return self.clock.now - began
            except Killed:
                # Whoever comes after it comes when its lease is over.
                self.clock.now += 31
                self.open()
        raise AssertionError(f"the grid did not end within {most_s} s: {self.store.rows.states()}")

    def run_until(self, is_so, most_s=86_400):
        """Run until something is so, and not to the end of the grid."""
        began_s = self.clock.now
        while not is_so():
            assert self.step(), self.states()
            assert self.clock.now - began_s < most_s, self.states()

    def states(self):
        return self.store.rows.states()

    def judge(self, *, ended=True):
        """Check what must hold after everything: no row lost, no two live attempts, cost as the service's books say."""
        assert overlaps(self.regions.values()) == []
        states = self.store.rows.states()
        if ended:
            assert {RowState(state).is_final for state in states} <= {True}, states
        books = sum(region.usd() for region in self.regions.values())
        assert abs(self.store.costs.money(self.clock.now).spent_usd - books) < 0.005, (
            self.store.costs.money(0),
            books,
        )
