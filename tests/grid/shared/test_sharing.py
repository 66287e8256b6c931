"""Two machines and one grid, under a clock of the test's: whatever happens to one, the other goes on, none twice."""

import stat

import pytest

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.database import LeaseLost
from raysm.grid.shared.lease import LEASE_S, SharedLease
from raysm.grid.shared.sharing import (
    Copies,
    FencedRegion,
    copied,
    leave_command,
    read_copy,
    run_commands,
    share_secret,
    sharing_of,
)
from raysm.grid.store import Store
from raysm.grid.task import Attempt, Rules, Task, TaskState
from tests.support.grid_world import Behaviour, Clock, FakeRegion, overlaps
from tests.support.grids import Bench, Killed
from tests.support.shared_grids import FakeObjects, Machine

__all__: list[str] = []


REGIONS = ("us-east-1", "eu-west-1")


class World:
    """Regions, one folder of S3, and two machines."""

    def __init__(self, folder, regions=None, tasks=None):
        (folder / "bench").mkdir(parents=True)
        # For its clock, its regions and its placement; its own store and controller stay as they are.
        self.bench = Bench(
            folder / "bench", regions=regions or {name: Behaviour(run_s=120, start_s=60) for name in REGIONS}
        )
        self.bench.tasks = tasks or [Task(key=key, position=number) for number, key in enumerate("abcd")]
        self.objects = FakeObjects(self.bench.clock)
        self.here, self.there = (
            Machine(name=name, folder=folder / name, bench=self.bench, objects=self.objects)
            for name in ("here", "there")
        )

    @property
    def lives(self):
        return [life for region in self.bench.regions.values() for life in region.lives.values()]

    def run(self, machine, most=2_000):
        for _ in range(most):
            if not machine.step():
                return
        raise AssertionError(f"the grid did not end: {machine.store.states()}")

    def judge(self, machine):
        """No row lost, no two live jobs of one, and the cost as the service's own books say."""
        assert overlaps(self.bench.regions.values()) == []
        states = machine.store.states()
        assert all(TaskState(state).final for state in states), states
        assert sum(states.values()) == len(self.bench.tasks)
        books = sum(region.usd() for region in self.bench.regions.values())
        assert machine.store.money(self.bench.clock.now).spent_usd == pytest.approx(books, abs=0.005)

    def close(self):
        for store in (self.bench.store, self.here.store, self.there.store):
            if store is not None:
                store.database.close()


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


def test_another_machine_takes_up_what_a_dead_one_has_sent(world):
    here, there = world.here.open(), world.there
    here.step()
    here.step()
    sent = {life.name for life in world.lives}
    assert len(sent) == 4
    here.die()
    with pytest.raises(LeaseLost, match="is run by here"):
        there.open()
    there.store.database.close()
    world.bench.clock.now += LEASE_S
    there.open()
    world.run(there)
    world.judge(there)
    assert {life.name for life in world.lives} == sent


def test_an_intent_is_where_another_machine_finds_it_before_create_is_called(world):
    """Whatever S3 does not hold was not sent: at each Create the head names a copy with the attempt in it."""
    seen = []
    for region in world.bench.regions.values():
        create = region.create

        def watched(task, attempt, create=create):
            store = copied(world.objects, "g")
            seen.append(store.attempt(attempt.name) is not None)
            store.database.close()
            create(task, attempt)

        region.create = watched
    world.run(world.here.open())
    assert seen == [True] * 4


def test_who_ends_as_it_should_lets_another_machine_go_on_at_once(world):
    here = world.here.open()
    here.step()
    here.close()
    there = world.there.open()
    world.run(there)
    world.judge(there)
    there.close()
    # And back: what was done there is known here, and nothing is done again.
    here.open()
    assert here.store.states() == {"done": 4}
    assert here.step() is False


def scenario(folder):
    bad = {"b": "AlgorithmError: exit code: 1"}
    regions = {
        "us-east-1": Behaviour(fails=bad, lost=0.5, quota=2, run_s=120, start_s=60),
        "eu-west-1": Behaviour(fails=bad, run_s=200, start_s=60, late=0.5),
    }
    return World(folder, regions)


def points_of(folder):
    """Return how many points between two effects a controller passes after it has opened the grid."""
    world = scenario(folder)
    world.here.open()
    first = len(world.here.points)
    world.run(world.here)
    world.judge(world.here)
    points = world.here.points
    world.close()
    return first, points


def a_few(first, points):
    return range(first, len(points), 97)


def three_of_each(first, points):
    """Of each kind of point, such as ``after create``, the first and two more on the way to the last."""
    kinds = {}
    for number in range(first, len(points)):
        kinds.setdefault(points[number], []).append(number)
    return sorted(number for numbers in kinds.values() for number in numbers[:: -(-len(numbers) // 3)])


# All 900 points take ten minutes.
SOME_POINTS = pytest.mark.parametrize(
    "some", [a_few, pytest.param(three_of_each, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)


@SOME_POINTS
def test_killed_at_a_point_it_is_taken_up_by_another_machine_as_if_nothing_had_been(tmp_path, some):
    first, points = points_of(tmp_path / "whole")
    assert {"before copy", "after copy", "after head", "after push", "before create"} <= set(points)
    for number in some(first, points):
        world = scenario(tmp_path / str(number))
        world.here.between = _At(number)
        world.here.open()
        with pytest.raises(Killed):
            world.run(world.here)
        world.here.die()
        world.bench.clock.now += LEASE_S
        world.there.open()
        world.run(world.there)
        world.judge(world.there)
        assert world.there.store.states() == {"done": 3, "failed": 1}, points[number]
        world.close()


@SOME_POINTS
def test_asleep_at_a_point_it_wakes_to_find_its_lease_lost_and_sends_nothing(tmp_path, some):
    """A laptop that is closed in the midst of a step, and opened when another machine has long gone on."""
    first, points = points_of(tmp_path / "whole")
    lost = 0
    for number in some(first, points):
        world = scenario(tmp_path / str(number))
        calls = {}

        def sleep(world=world, calls=calls):
            world.bench.clock.now += LEASE_S
            world.there.open()
            for _ in range(3):
                world.there.step()
            # Some jobs go on by the other machine's hand.
            calls.update({name: dict(region.calls) for name, region in world.bench.regions.items()})

        world.here.between = _At(number, sleep)
        world.here.open()
        try:
            world.run(world.here)
        except LeaseLost:
            lost += 1
        else:
            # It slept when all that was left to do was to say that the grid is over.
            assert world.here.store.is_over(), points[number]
        for name, region in world.bench.regions.items():
            for operation in ("create", "stop"):
                assert region.calls[operation] == calls[name][operation], (points[number], operation)
        world.run(world.there)
        world.judge(world.there)
        assert world.there.store.states() == {"done": 3, "failed": 1}, points[number]
        world.close()
    assert lost > 0


class _At:
    """Ends the process at one point, counted from the first; or has something happen meanwhile."""

    def __init__(self, number, meanwhile=None):
        self._left = number
        self._meanwhile = meanwhile

    def __call__(self, point):
        self._left -= 1
        if self._left == -1:
            if self._meanwhile is None:
                raise Killed(point)
            self._meanwhile()


def test_without_s3_nothing_is_sent_and_with_it_again_it_goes_on(world):
    here = world.here.open()
    world.objects.is_silent = True
    for _ in range(30):
        here.step()
    assert world.lives == []
    world.objects.is_silent = False
    world.run(here)
    world.judge(here)
    assert len(world.lives) == 4


def test_writes_whose_answers_are_lost_change_nothing(world):
    here = world.here.open()
    for _ in range(200):
        world.objects.lost = 1
        if not here.step():
            break
    world.objects.lost = 0
    world.run(here)
    world.judge(here)
    assert len(world.lives) == 4


def test_what_a_user_of_another_machine_wishes_is_done_by_who_runs_it(world):
    here = world.here.open()
    here.step()
    leave_command(world.objects, "stop", world.bench.clock.now)
    world.run(here)
    assert here.store.states() == {"stopped": 4}
    assert world.objects.names("commands/") == []


def test_two_grids_of_one_name_are_told_apart_before_anything_is_lost(world):
    here = world.here.open()
    world.run(here)
    here.close()
    there = world.there
    there.folder.mkdir()
    own = Store(there.folder / "g.db")
    own.make("g", rules=world.bench.rules, now=1.0)
    own.add([Task(key="other")])
    own.close()
    with pytest.raises(InvalidRequest, match="there are two grids 'g'"):
        there.open()
    assert [record.task.key for record in there.store.tasks()] == ["other"]
    # The lease is let go of: the owner of the other one need not wait.
    there.store.database.close()
    here.open()


class Side:
    """One machine's store and its copies."""

    def __init__(self, folder, objects):
        folder.mkdir()
        self.objects = objects
        self.store = Store(folder / "g.db")
        self.copies = Copies(self.store.database, objects, folder / "g.shared")
        self.lease = SharedLease(objects, folder.name, lambda: objects.clock.now)

    def take(self):
        self.lease.take()
        if self.lease.head.number and not self.copies.holds(self.lease.head):
            self.copies.restore(self.lease.head)

    def push(self):
        changes = self.copies.push(self.lease.head)
        self.lease.write(**changes)
        self.copies.pushed(self.lease.head)

    def add(self, *keys):
        self.store.make("g", rules=Rules(), now=1.0)
        self.store.add([Task(key=key, position=number) for number, key in enumerate(keys)])

    def keys(self):
        return [record.task.key for record in self.store.tasks()]


@pytest.fixture
def objects():
    return FakeObjects(Clock())


@pytest.fixture
def sides(tmp_path, objects):
    sides = [Side(tmp_path / name, objects) for name in ("here", "there")]
    yield sides
    for side in sides:
        side.store.database.close()


def test_what_was_pushed_here_is_there(sides):
    here, there = sides
    here.take()
    here.add("a", "b")
    here.push()
    here.add("a", "b", "c")
    here.push()
    here.lease.release()
    there.take()
    assert there.keys() == ["a", "b", "c"]
    assert there.store.grid() == here.store.grid()


def test_a_renewed_lease_alone_is_no_change(sides, objects):
    here, _ = sides
    here.take()
    here.add("a")
    here.push()
    number = here.lease.head.number
    here.store.database.take_lease("[1]", 10.0)
    assert not here.copies.is_changed
    here.store.change_rules(Rules(retries=9))
    assert here.copies.is_changed
    here.push()
    assert here.lease.head.number == number + 1


def test_a_machine_whose_file_is_the_copy_or_newer_keeps_it(sides):
    here, _ = sides
    here.take()
    here.add("a")
    here.push()
    here.add("a", "b")
    here.lease.release()
    here.take()
    assert here.keys() == ["a", "b"]


def test_a_push_that_no_head_names_changes_nothing(sides, objects):
    here, there = sides
    here.take()
    here.add("a")
    here.push()
    here.add("a", "b")
    # Killed between the copy and the head.
    here.copies.push(here.lease.head)
    objects.clock.now += 60
    there.take()
    assert there.keys() == ["a"]


def test_jobs_whose_create_may_be_on_its_way_are_in_doubt_there(sides, objects):
    here, there = sides
    here.take()
    here.add("a")
    with here.store.database.transaction("intents", fenced=False):
        here.store.insert(
            Attempt(task="a", number=1, name="a1", region="r", instance_type="ml", count=1, usd_per_hour=1.0)
        )
    here.push()
    here.lease.release()
    there.take()
    assert [attempt.is_doubtful for attempt in there.store.open_attempts()] == [True]


def test_a_copy_that_is_damaged_or_missing_is_refused(sides, objects):
    here, there = sides
    here.take()
    here.add("a")
    here.push()
    content, written_s = objects.objects[here.lease.head.copy]
    objects.objects[here.lease.head.copy] = content[:-5] + b"xxxxx", written_s
    with pytest.raises(ServiceError, match="is damaged"):
        read_copy(objects, here.lease.head)
    objects.remove(here.lease.head.copy)
    with pytest.raises(ServiceError, match="is missing"):
        read_copy(objects, here.lease.head)


def test_tables_of_another_raysm_are_refused(sides, objects):
    here, there = sides
    here.take()
    here.add("a")
    here.store.database.connection.execute("PRAGMA user_version = 99")
    here.push()
    here.lease.release()
    with pytest.raises(InvalidRequest, match="its tables are of version 99"):
        there.take()


@pytest.fixture
def store():
    store = Store(":memory:")
    store.make("g", rules=Rules(), now=1.0)
    store.add([Task(key="a"), Task(key="b")])
    yield store
    store.database.close()


def test_a_stop_is_a_state_of_the_grid_and_its_object_is_gone(store, objects):
    leave_command(objects, "stop", 5.0)
    run_commands(objects, store, 6.0)
    assert store.grid().state == "stopping"
    assert objects.names("") == []


def test_a_grid_that_is_over_is_not_stopped(store, objects):
    store.change_grid("closed", 4.0, fenced=False)
    leave_command(objects, "stop", 5.0)
    run_commands(objects, store, 6.0)
    assert store.grid().state == "closed"


def test_a_retry_after_a_stop_is_done_after_it(store, objects):
    leave_command(objects, "retry", 7.0)
    leave_command(objects, "stop", 5.0)
    run_commands(objects, store, 8.0)
    assert store.grid().state == "open"


def test_what_failed_waits_again(store, objects):
    store.database.connection.execute("UPDATE task SET state = 'failed' WHERE key = 'a'")
    leave_command(objects, "retry", 5.0)
    run_commands(objects, store, 6.0)
    assert store.states() == {"waiting": 2}


def test_what_nobody_knows_is_refused_and_what_a_newer_one_left_stays(store, objects):
    with pytest.raises(InvalidRequest, match="takes stop, retry, got 'explode'"):
        leave_command(objects, "explode", 5.0)
    objects.put("commands/000000000005000-abcd-explode", b"")
    run_commands(objects, store, 6.0)
    assert objects.names("") == ["commands/000000000005000-abcd-explode"]


def shared(folder, objects, *keys):
    store = Store(folder / "g.db")
    sharing = sharing_of(store, objects, folder / "g.db", lambda: objects.clock.now)
    sharing.take()
    store.make("g", rules=Rules(), now=1.0)
    store.add([Task(key=key, position=number) for number, key in enumerate(keys)])
    return store, sharing


def test_the_secret_of_whoever_was_first_is_everybodys(objects, tmp_path):
    here, there = tmp_path / "here.key", tmp_path / "there.key"
    here.write_text("drawn here before it was shared")
    share_secret(here, objects)
    there.write_text("drawn there")
    share_secret(there, objects)
    assert here.read_text() == there.read_text() == "drawn here before it was shared"
    assert stat.S_IMODE(there.stat().st_mode) == 0o600


def test_a_copy_is_looked_at_while_its_owner_goes_on(objects, tmp_path):
    store, sharing = shared(tmp_path, objects, "a", "b")
    sharing.cover("")
    copy = copied(objects, "g")
    store.add([Task(key="c", position=2)])
    assert copy.states() == {"waiting": 2}
    copy.database.close()
    sharing.cover("")
    copy = copied(objects, "g")
    assert copy.states() == {"waiting": 3}
    copy.database.close()
    store.database.close()


def test_a_copy_whose_parts_are_removed_as_it_is_read_is_read_anew(objects, tmp_path):
    store, sharing = shared(tmp_path, objects, "a")
    sharing.cover("")
    read, parts = objects.read, objects.names("copies/")

    def late(name):
        # A newer whole one has taken its place since the head was read.
        if name in parts:
            objects.read = read
            return None
        return read(name)

    objects.read = late
    copy = copied(objects, "g")
    assert copy.states() == {"waiting": 1}
    copy.database.close()
    store.database.close()


def test_a_grid_that_nobody_shared_is_not_there(objects, tmp_path):
    with pytest.raises(InvalidRequest, match="there is no grid 'g' in s3://"):
        copied(objects, "g")
    store, _ = shared(tmp_path, objects)
    with pytest.raises(InvalidRequest, match="there is no grid 'g' in s3://"):
        copied(objects, "g")
    store.database.close()


ONE_TASK = Task(key="a")
ONE_ATTEMPT = Attempt(task="a", number=1, name="g-a1", region="r", instance_type="ml", count=1)


class FakeSharing:
    """The lease, as a test wishes."""

    def __init__(self, error=None):
        self.asked = []
        self._error = error

    def cover(self, name):
        self._ask(f"cover {name}")

    def _ask(self, what):
        self.asked.append(what)
        if self._error is not None:
            raise self._error


def test_with_the_lease_all_is_the_regions_own():
    region, sharing = FakeRegion("r", Clock()), FakeSharing()
    fenced = FencedRegion(region, sharing)
    fenced.create(ONE_TASK, ONE_ATTEMPT)
    assert fenced.describe("g-a1").name == "g-a1"
    assert [job.name for job in fenced.page("g-", None).jobs] == ["g-a1"]
    assert fenced.rates(["g-a1"], "rows") == {}
    fenced.stop("g-a1")
    assert sharing.asked == ["cover g-a1", "cover "]
    assert region.lives["g-a1"].asked_s is not None


def test_without_it_nothing_is_sent_or_stopped():
    region = FakeRegion("r", Clock())
    region.create(ONE_TASK, ONE_ATTEMPT)
    fenced = FencedRegion(region, FakeSharing(LeaseLost("another one runs it")))
    with pytest.raises(LeaseLost):
        fenced.create(ONE_TASK, ONE_ATTEMPT)
    with pytest.raises(LeaseLost):
        fenced.stop("g-a1")
    assert (region.calls["create"], region.calls["stop"]) == (1, 0)
    assert fenced.describe("g-a1").name == "g-a1"
