"""Grids of several machines under a clock that the test moves: one folder of S3, and a home for each machine."""

import hashlib
from dataclasses import dataclass, field

from raysm.client.storage.s3 import Outdated, Versioned
from raysm.errors import ServiceError
from raysm.grid.controller import Controller
from raysm.grid.limiter import Limiter
from raysm.grid.shared.lease import SharedLease, Unreachable
from raysm.grid.shared.sharing import Copies, FencedRegion, Sharing
from raysm.grid.store import Store
from tests.support.grids import FAST

NO_ANSWER = ServiceError("put_object: Connection was closed before we received a valid response", is_transient=True)


class FakeObjects:
    """A folder of S3 that keeps S3's promises; see ``raysm.grid.shared.lease.Objects``."""

    place = "s3://bucket/raysm/grid-stores/g"

    def __init__(self, clock):
        self.clock = clock
        self.objects = {}
        self.writes = []
        self.is_silent = False
        self.lost = 0
        """So many of the next conditional writes are carried out, and their answers lost."""
        self.refused = 0
        """So many of the next conditional writes are not carried out, as S3 had no answer."""

    def _enter(self):
        if self.is_silent:
            raise NO_ANSWER

    def read(self, name):
        self._enter()
        if name not in self.objects:
            return None
        content, written_s = self.objects[name]
        return Versioned(content=content, version=_etag(content), age_s=self.clock.now - written_s)

    def replace(self, name, content, version):
        self._enter()
        if self.refused:
            self.refused -= 1
            raise NO_ANSWER
        there = self.objects.get(name)
        if (None if there is None else _etag(there[0])) != version:
            raise Outdated(f"{name} was written by another process")
        self._write(name, content)
        if self.lost:
            self.lost -= 1
            raise NO_ANSWER
        return _etag(content)

    def put(self, name, content):
        self._enter()
        self._write(name, content)

    def _write(self, name, content):
        self.objects[name] = (content, self.clock.now)
        self.writes.append((name, len(content)))

    def names(self, prefix):
        self._enter()
        return sorted(name for name in self.objects if name.startswith(prefix))

    def remove(self, name):
        self._enter()
        self.objects.pop(name, None)


def _etag(content):
    return hashlib.md5(content).hexdigest()


@dataclass(kw_only=True)
class Machine:
    """One machine, and the controller that runs on it; where it is opened again, in another process."""

    name: str
    folder: object
    bench: object
    objects: FakeObjects
    between: object = field(default=lambda point: None)
    points: list = field(default_factory=list)
    store: object = None
    sharing: object = None
    controller: object = None

    def open(self, sleep=None):
        """Start a controller; raises where another machine has the grid."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = Store(self.folder / "g.db", between=self._between)
        database, clock = self.store.database, self.bench.clock
        lease = SharedLease(self.objects, self.name, lambda: clock.now)
        copies = Copies(database, self.objects, self.folder / "g.shared")
        self.sharing = Sharing(self.store, lease, copies, self.objects)
        self.sharing.take(sleep)
        self.store.make("g", rules=self.bench.rules, now=clock.now)
        self.store.add(self.bench.tasks)
        regions = {name: FencedRegion(region, self.sharing) for name, region in self.bench.regions.items()}
        owner = f"[{id(self.store)}]"
        self.controller = Controller(self.store, regions, self.bench.placement, Limiter(":memory:", FAST), owner=owner)
        return self

    def _between(self, point):
        self.points.append(point)
        self.between(point)

    def step(self):
        """Do one step, as ``Running`` does it, and let the clock run; return whether there is a next one."""
        try:
            self.sharing.hold(self.bench.clock.now)
            wait_s = self.controller.step(self.bench.clock.now)
        except Unreachable:
            wait_s = 5.0
        self.bench.clock.now += 0 if wait_s is None else wait_s
        return wait_s is not None

    def die(self):
        """End it as a kill does."""
        self.store.database.close()

    def close(self):
        """End it as it should."""
        self.sharing.close()
        self.store.close()
