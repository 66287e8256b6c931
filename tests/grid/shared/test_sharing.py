"""Two machines and one grid, under a clock of the test's: whatever happens to one, the other goes on, none twice."""

import pytest

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.attempt import Attempt, TaskState
from raysm.grid.database import LeaseLost
from raysm.grid.ledger import money
from raysm.grid.shared.lease import LEASE_S, SharedLease
from raysm.grid.shared.sharing import Copies, Sharing, copied, leave_command
from raysm.grid.store import Store
from raysm.grid.task import Task
from tests.support.grid_world import Behaviour, overlaps
from tests.support.grids import Bench, Killed
from tests.support.shared_grids import FakeObjects, Machine

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
        assert money(machine.store, self.bench.clock.now).spent_usd == pytest.approx(books, abs=0.005)

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


def test_a_moment_without_s3_stops_nothing_that_is_covered(world):
    here = world.here.open()
    here.step()
    world.bench.clock.now += 11
    world.objects.is_silent = True
    here.sharing.hold(world.bench.clock.now)
    world.objects.is_silent = False
    world.run(here)
    world.judge(here)


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


def test_an_end_without_s3_is_said_and_no_error(world, caplog):
    here = world.here.open()
    world.objects.is_silent = True
    here.close()
    assert "expires by itself" in caplog.text


def test_a_first_copy_that_cannot_be_written_ends_the_opening(world):
    world.objects.is_silent = True
    with pytest.raises(ServiceError):
        world.here.open()


def test_what_is_covered_is_not_written_again_and_a_stop_is_asked_about_each_time(world, tmp_path):
    objects, store = world.objects, Store(tmp_path / "g.db")
    lease = SharedLease(objects, "here", lambda: world.bench.clock.now)
    sharing = Sharing(store, lease, Copies(store.database, objects, tmp_path / "g.shared"), objects)
    sharing.take()
    store.make("g", rules=world.bench.rules, now=1.0)
    store.add([Task(key="a")])
    with store.database.transaction("intents", fenced=False):
        store.insert(Attempt(task="a", number=1, name="a1", region="r", instance_type="ml", count=1))
    sharing.cover("a1")
    written = len(objects.writes)
    sharing.cover("a1")
    assert len(objects.writes) == written
    sharing.cover("")
    sharing.cover("")
    assert [name for name, _ in objects.writes[written:]] == ["head.json", "head.json"]
    store.database.close()
