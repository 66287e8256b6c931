"""Grids that attempts of a Batch job run under a clock that the test moves: one folder of S3, a store for each."""

import hashlib

from raysm.core.client.storage.s3 import Outdated, TooLarge, Versioned
from raysm.errors import ServiceError
from raysm.features.grid.batch_job.grid_secret import Seal
from raysm.features.grid.batch_job.state import MAX_STATE_BYTES, RemoteState, Unreachable
from raysm.features.grid.controller import Controller
from raysm.features.grid.limiter import Limiter
from raysm.features.grid.store.store import Store
from tests.support.grids import FAST

NO_ANSWER = ServiceError(
    "put_object: Connection was closed before we received a valid response", is_transient=True
)


SECRET = "5" * 64


class FakeParameter:
    """A parameter of Systems Manager; see ``raysm.features.grid.batch_job.grid_secret.Parameter``."""

    def __init__(self):
        self.secret = None

    def read(self):
        return self.secret

    def write(self, secret):
        self.secret = self.secret or secret
        return self.secret

    def remove(self):
        self.secret = None


class FakeFolder:
    """A folder of S3 that keeps S3's promises; see ``raysm.features.grid.batch_job.state.Folder``."""

    place = "s3://bucket/raysm/grid-stores/g"

    def __init__(self, clock):
        self.clock = clock
        self.objects = {}
        self.parameter = FakeParameter()
        self.is_silent = False
        self.lost = 0
        """Number of next conditional writes that are carried out and whose answers are lost."""

    @property
    def seal(self):
        return Seal(SECRET, self.place)

    def read(self, name, max_bytes=MAX_STATE_BYTES):
        self._enter()
        if name not in self.objects:
            return None
        content, written_s = self.objects[name]
        if len(content) > max_bytes:
            raise TooLarge(f"{name} has {len(content):,} bytes")
        return Versioned(content=content, version=_etag(content), age_s=self.clock.now - written_s)

    def replace(self, name, content, version):
        self._enter()
        there = self.objects.get(name)
        if (None if there is None else _etag(there[0])) != version:
            raise Outdated(f"{name} was written by another process")
        self.objects[name] = (content, self.clock.now)
        if self.lost:
            self.lost -= 1
            raise NO_ANSWER
        return _etag(content)

    def put(self, name, content):
        self._enter()
        self.objects[name] = (content, self.clock.now)

    def names(self, prefix):
        self._enter()
        return sorted(name for name in self.objects if name.startswith(prefix))

    def remove(self, name):
        self._enter()
        self.objects.pop(name, None)

    def _enter(self):
        if self.is_silent:
            raise NO_ANSWER


def _etag(content):
    return hashlib.md5(content).hexdigest()


class JobAttempt:
    """An attempt of the Batch job: a controller on a machine of its own, which knows nothing but the folder."""

    def __init__(self, path, bench, folder, between=lambda point: None):
        self.bench, self.points, self._folder, self._between = bench, [], folder, between
        self.store = Store(path, between=self._pass)
        self.state = RemoteState(folder, self.store, folder.seal, lambda: bench.clock.now)

    def _pass(self, point):
        self.points.append(point)
        self._between(point)

    def open(self, sleep=None):
        """Take the grid; by default the clock runs while the attempt waits."""
        assert self.state.take(sleep or self._sleep)
        owner = f"[{id(self.store)}]"
        self.controller = Controller(
            self.store,
            self.bench.regions,
            self.bench.placement,
            Limiter(":memory:", FAST),
            owner=owner,
            guard=self.state.cover,
        )
        return self

    def _sleep(self, seconds):
        self.bench.clock.now += seconds

    def step(self):
        """Do one step, as ``Running`` does it, and let the clock run; return whether there is a next one."""
        try:
            self.state.renew(self.bench.clock.now)
            wait_s = self.controller.step(self.bench.clock.now)
        except Unreachable:
            wait_s = 5.0
        self.bench.clock.now += 0 if wait_s is None else wait_s
        return wait_s is not None

    def run(self):
        for _ in range(2_000):
            if not self.step():
                return
        raise AssertionError(f"the grid did not end: {self.store.rows.states()}")

    def die(self):
        self.store.database.close()

    def close(self):
        self.state.close()
        self.store.close()
