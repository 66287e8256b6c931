"""Attempts of a Batch job run a grid one after the other, under the test's clock: nothing is lost or sent twice."""

import stat
import tracemalloc
import zlib

import pytest

from raysm.core.client.storage.s3 import Outdated, TooLarge
from raysm.errors import InvalidPayload, InvalidRequest
from raysm.features.grid.batch_job.grid_secret import Seal, agree_on_secret
from raysm.features.grid.batch_job.state import (
    REMOTE_LEASE_S,
    RENEW_S,
    SURE_S,
    RemoteState,
    Unreachable,
    folder_of,
    leave_command,
    read_copy,
    recall,
    run_commands,
)
from raysm.features.grid.row import Row
from raysm.features.grid.store.database import GridDatabase, LeaseLost
from raysm.features.grid.template import secret_path
from tests.support.away_grids import NO_ANSWER, SECRET, FakeFolder, FakeParameter, JobAttempt
from tests.support.grid_world import Behaviour, Clock, overlaps
from tests.support.grids import Bench, Killed
from tests.support.sagemaker import fake_aws

REGIONS = ("us-east-1", "eu-west-1")


class World:
    """A grid of four rows that a user's machine has handed over, and its regions."""

    def __init__(self, path, regions=None):
        path.mkdir(parents=True, exist_ok=True)
        regions = regions or {name: Behaviour(run_s=120, start_s=60) for name in REGIONS}
        rows = [Row(key=key, position=number) for number, key in enumerate("abcd")]
        # Its store is the one of the user's machine; its controller does not run.
        self.bench = Bench(path, regions=regions, rows=rows)
        self.home = self.bench.store
        self.path = path
        self.folder = FakeFolder(self.bench.clock)
        secret_path(path / "g.db").write_text(SECRET)
        RemoteState(
            self.folder, self.home, self.folder.seal, lambda: self.bench.clock.now
        ).hand_over()
        self.attempts = []

    def attempt(self, between=lambda point: None):
        number = len(self.attempts)
        self.attempts.append(
            JobAttempt(self.path / f"{number}.db", self.bench, self.folder, between)
        )
        return self.attempts[-1]

    @property
    def lives(self):
        return [life for region in self.bench.regions.values() for life in region.lives.values()]

    def judge(self, store, states):
        """No row lost, no two live jobs of one, and the cost as the service's own books say."""
        assert overlaps(self.bench.regions.values()) == []
        assert store.rows.states() == states
        books = sum(region.usd() for region in self.bench.regions.values())
        assert store.costs.money(self.bench.clock.now).spent_usd == pytest.approx(books, abs=0.005)

    def close(self):
        for store in (self.home, *(attempt.store for attempt in self.attempts)):
            store.database.close()


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


def test_the_next_attempt_finds_the_jobs_of_a_dead_one_when_its_lease_has_expired(world):
    first = world.attempt().open()
    first.step()
    first.step()
    sent = {life.name for life in world.lives}
    assert len(sent) == 4
    first.die()
    began = world.bench.clock.now
    second = world.attempt().open()
    assert began + REMOTE_LEASE_S - 2 * RENEW_S <= world.bench.clock.now <= began + REMOTE_LEASE_S
    second.run()
    world.judge(second.store, {"done": 4})
    assert {life.name for life in world.lives} == sent


def test_while_an_attempt_is_alive_another_one_and_the_users_machine_are_refused(world, tmp_path):
    first = world.attempt().open()

    def sleep(seconds):
        world.bench.clock.now += seconds
        first.state.renew(world.bench.clock.now)

    with pytest.raises(LeaseLost, match="is run by"):
        world.attempt().open(sleep)
    with pytest.raises(LeaseLost, match="is run by"):
        recall(world.home, tmp_path / "g.db", world.folder, sleep)
    first.run()
    world.judge(first.store, {"done": 4})


@pytest.mark.parametrize("lost", [0, 1])
def test_an_intent_is_in_s3_before_create_is_called(world, lost):
    seen = []
    for region in world.bench.regions.values():
        create = region.create

        def watched(row, attempt, create=create):
            store = read_copy(world.folder, world.folder.seal)
            seen.append(store.attempts.find(attempt.name) is not None)
            store.database.close()
            create(row, attempt)

        region.create = watched
    attempt = world.attempt().open()
    # Also after a write that was carried out although its answer was lost.
    while len(world.lives) < 4:
        world.bench.clock.now += RENEW_S
        world.folder.lost = lost
        attempt.step()
    assert seen == [True] * 4


def test_the_users_machine_takes_the_grid_back_and_later_attempts_find_nothing(world, tmp_path):
    first = world.attempt().open()
    first.step()
    sent = len(world.lives)
    first.close()
    world.folder.parameter.write(SECRET)
    leave_command(world.folder, world.folder.seal, "stop", 1.0)
    recall(world.home, tmp_path / "g.db", world.folder, pytest.fail)
    assert read_copy(world.folder, world.folder.seal) is None
    assert world.folder.parameter.read() is None
    assert not world.attempt().state.take(pytest.fail)
    assert world.home.attempts.open_count() == sent
    # A command that no attempt read counts here.
    assert world.home.grid().state == "stopping"
    assert world.folder.names("commands/") == []
    # An earlier call that ended too early is repeated.
    recall(world.home, tmp_path / "g.db", world.folder, pytest.fail)


def test_a_grid_whose_handover_was_cut_short_runs_on_the_users_machine_again(world, tmp_path):
    world.home.database.take_lease("here", world.bench.clock.now)
    world.home.database.lend_lease("a job of AWS Batch")
    world.folder.remove("state")
    recall(world.home, tmp_path / "g.db", world.folder, pytest.fail)
    world.home.database.take_lease("here", world.bench.clock.now)
    assert world.home.database.has_lease()


def test_a_process_that_slept_through_a_handover_does_not_take_the_lease_for_its_own(
    world, tmp_path
):
    now = world.bench.clock.now
    sleepers = [GridDatabase(tmp_path / "g.db"), GridDatabase(tmp_path / "g.db")]
    for number, sleeper in enumerate(sleepers):
        sleeper.take_lease(f"sleeper {number}", now + 60 * number)
    world.attempt().open().close()
    recall(world.home, tmp_path / "g.db", world.folder, pytest.fail)
    world.home.database.take_lease("next", now)
    for sleeper in sleepers:
        with pytest.raises(LeaseLost):
            sleeper.take_lease("sleeper", now)
        sleeper.close()


def test_an_attempt_that_slept_while_the_grid_was_taken_back_sends_nothing(world, tmp_path):
    attempt = world.attempt().open()

    def sleep(seconds):
        world.bench.clock.now += seconds

    recall(world.home, tmp_path / "g.db", world.folder, sleep)
    with pytest.raises(LeaseLost):
        attempt.step()
    assert world.lives == []


def test_an_attempt_that_waits_while_the_grid_is_taken_back_is_refused(world):
    world.attempt().open().die()
    with pytest.raises(LeaseLost):
        world.attempt().open(lambda seconds: world.folder.remove("state"))


def scenario(path):
    bad = {"b": "AlgorithmError: exit code: 1"}
    regions = {
        "us-east-1": Behaviour(fails=bad, lost=0.5, quota=2, run_s=120, start_s=60),
        "eu-west-1": Behaviour(fails=bad, run_s=200, start_s=60, late=0.5),
    }
    return World(path, regions)


ENDS = {"done": 3, "failed": 1}


def points_of(path):
    """Return the points between two effects that an attempt passes."""
    world = scenario(path)
    attempt = world.attempt().open()
    attempt.run()
    world.judge(attempt.store, ENDS)
    world.close()
    return attempt.points


def a_few(points):
    return range(0, len(points), 271)


def three_of_each(points):
    """Of each kind of point, such as ``after create``, the first and two more on the way to the last."""
    kinds = {}
    for number, point in enumerate(points):
        kinds.setdefault(point, []).append(number)
    return sorted(
        number for numbers in kinds.values() for number in numbers[:: -(-len(numbers) // 3)]
    )


# All points take ten minutes.
SOME_POINTS = pytest.mark.parametrize(
    "some", [a_few, pytest.param(three_of_each, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)


@SOME_POINTS
def test_an_attempt_that_is_killed_at_a_point_is_followed_as_if_nothing_had_been(tmp_path, some):
    points = points_of(tmp_path / "whole")
    assert {"after take", "after restore", "before push", "after push", "before create"} <= set(
        points
    )
    for number in some(points):
        world = scenario(tmp_path / str(number))
        first = world.attempt(_At(number))
        with pytest.raises(Killed):
            first.open().run()
        first.die()
        second = world.attempt().open()
        second.run()
        world.judge(second.store, ENDS)
        world.close()


@SOME_POINTS
def test_an_attempt_that_was_frozen_at_a_point_finds_its_lease_lost_and_sends_nothing(
    tmp_path, some
):
    points = points_of(tmp_path / "whole")
    lost = 0
    for number in some(points):
        world = scenario(tmp_path / str(number))
        calls = {}

        def sleep(world=world, calls=calls):
            second = world.attempt().open()
            for _ in range(3):
                second.step()
            calls.update({name: dict(region.calls) for name, region in world.bench.regions.items()})

        first = world.attempt(_At(number, sleep))
        try:
            first.open().run()
        except LeaseLost:
            lost += 1
        else:
            # It was frozen when only the end of the grid was left to record.
            assert first.store.rows.are_final(), points[number]
        for name, region in world.bench.regions.items():
            for operation in ("create", "stop"):
                assert region.calls[operation] == calls[name][operation], (
                    points[number],
                    operation,
                )
        second = world.attempts[1]
        second.run()
        world.judge(second.store, ENDS)
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
    attempt = world.attempt().open()
    world.folder.is_silent = True
    for _ in range(30):
        attempt.step()
    assert world.lives == []
    world.folder.is_silent = False
    attempt.run()
    world.judge(attempt.store, {"done": 4})


def test_an_attempt_that_slept_after_its_write_sends_nothing_before_it_has_written_again(world):
    naps = []

    def sleep(point):
        if point == "after push" and naps:
            world.bench.clock.now += naps.pop()

    attempt = world.attempt(sleep).open()
    naps.append(SURE_S)
    with pytest.raises(Unreachable):
        attempt.state.cover("a job whose intent is not in the object")
    attempt.state.cover("a job whose intent is not in the object")


def test_an_attempt_does_not_end_while_it_cannot_write_how_the_grid_ended(world):
    attempt = world.attempt().open()
    while len(world.lives) < 4:
        attempt.step()
    world.folder.is_silent = True
    for _ in range(100):
        assert attempt.step()
    assert world.bench.clock.now > max(life.ended_s for life in world.lives)
    world.folder.is_silent = False
    attempt.run()
    attempt.close()
    copy = read_copy(world.folder, world.folder.seal)
    assert copy.grid().state == "closed"
    copy.close()


def test_jobs_are_stopped_although_each_look_at_them_takes_longer_than_the_lease_is_sure(world):
    attempt = world.attempt().open()
    while len(world.lives) < 4:
        attempt.step()
    for region in world.bench.regions.values():

        def page(contains, token, page=region.page):
            world.bench.clock.now += SURE_S
            return page(contains, token)

        region.page = page
    leave_command(world.folder, world.folder.seal, "stop", 1.0)
    attempt.run()
    assert set(attempt.store.rows.states()) == {"stopped"}


def test_writes_whose_answers_are_lost_change_nothing(world):
    attempt = world.attempt().open()
    for _ in range(200):
        world.folder.lost = 1
        if not attempt.step():
            break
    world.folder.lost = 0
    attempt.run()
    world.judge(attempt.store, {"done": 4})


def test_a_write_that_botocore_repeats_after_a_lost_answer_is_known_by_its_content(world):
    attempt = world.attempt()
    replace = world.folder.replace

    def repeated(name, content, version):
        replace(name, content, version)
        return replace(name, content, version)

    world.folder.replace = repeated
    attempt.open().run()
    world.judge(attempt.store, {"done": 4})


def test_a_grid_is_handed_over_although_botocore_repeats_the_write(world):
    replace = world.folder.replace

    def repeated(name, content, version):
        replace(name, content, version)
        return replace(name, content, version)

    world.folder.remove("state")
    world.folder.replace = repeated
    RemoteState(world.folder, world.home, world.folder.seal).hand_over()
    world.folder.replace = replace
    attempt = world.attempt().open()
    attempt.run()
    world.judge(attempt.store, {"done": 4})


def test_of_two_attempts_that_take_the_grid_at_one_moment_one_does(world):
    first = world.attempt()
    second = world.attempt()
    replace = world.folder.replace

    def outrun(*write):
        world.folder.replace = replace
        second.open()
        return replace(*write)

    world.folder.replace = outrun
    with pytest.raises(LeaseLost, match="is run by"):
        first.open()
    second.run()


def test_commands_are_run_once_in_the_order_in_which_they_were_left(world):
    attempt = world.attempt().open()
    attempt.step()
    leave_command(world.folder, world.folder.seal, "retry", 7.0)
    leave_command(world.folder, world.folder.seal, "stop", 5.0)
    run_commands(world.folder, attempt.store, world.folder.seal, 8.0)
    assert attempt.store.grid().state == "open"
    leave_command(world.folder, world.folder.seal, "stop", 9.0)
    attempt.run()
    assert attempt.store.rows.states() == {"stopped": 4}
    assert world.folder.names("commands/") == []
    # A closed grid is not stopped: nothing would close it again.
    leave_command(world.folder, world.folder.seal, "stop", 10.0)
    run_commands(world.folder, attempt.store, world.folder.seal, 11.0)
    assert attempt.store.grid().state == "closed"


@pytest.mark.parametrize("content", [b"", b"0" * 64, bytes(2000)])
def test_a_command_without_the_grids_seal_is_not_run_and_removed(world, content, caplog):
    attempt = world.attempt().open()
    world.folder.put("commands/000000000001000-00000000-stop", content)
    world.bench.clock.now += RENEW_S
    attempt.step()
    assert attempt.store.grid().state == "open"
    assert world.folder.names("commands/") == []
    assert "is not the user's, and was not run" in caplog.text
    attempt.run()


def test_a_command_that_someone_puts_back_is_not_run_again(world):
    attempt = world.attempt().open()
    leave_command(world.folder, world.folder.seal, "stop", 1.0)
    ((name, (content, _)),) = [
        item for item in world.folder.objects.items() if item[0].startswith("commands/")
    ]
    world.bench.clock.now += RENEW_S
    attempt.state.renew(2.0)
    assert attempt.store.grid().state == "stopping"
    attempt.store.requeue(["stopped"], 3.0)
    attempt.store.change_state("open", 3.0, fenced=False)
    # Nor under another name: its seal is for this one.
    for put_back in (name, name.replace("stop", "retry")):
        world.folder.put(put_back, content)
        world.bench.clock.now += RENEW_S
        attempt.state.renew(4.0)
        assert attempt.store.grid().state == "open"
    assert world.folder.names("commands/") == []


def test_a_command_that_another_process_has_just_removed_is_not_run(world):
    leave_command(world.folder, world.folder.seal, "stop", 1.0)
    names = world.folder.names("commands/")
    world.folder.remove(names[0])
    world.folder.names = lambda prefix: names
    run_commands(world.folder, world.home, world.folder.seal, 2.0)
    assert world.home.grid().state == "open"


def test_a_command_outlives_an_attempt_that_ends_before_it_has_written_what_the_command_did(world):
    first = world.attempt().open()
    leave_command(world.folder, world.folder.seal, "stop", 1.0)
    world.bench.clock.now += RENEW_S
    world.folder.replace, replace = unavailable, world.folder.replace
    first.state.renew(2.0)
    world.folder.replace = replace
    first.die()
    second = world.attempt().open()
    second.run()
    assert second.store.grid().state == "closed"
    assert second.store.rows.states() == {"stopped": 4}


def unavailable(name, content, version):
    raise NO_ANSWER


def test_jobs_whose_create_may_be_on_its_way_are_doubtful_after_a_takeover(world):
    def end(point):
        if point == "after create":
            raise Killed(point)

    first = world.attempt(end)
    with pytest.raises(Killed):
        first.open().step()
    owed = {attempt.name for attempt in first.store.attempts.unanswered()}
    first.die()
    second = world.attempt().open()
    second.step()
    assert (
        {attempt.name for attempt in second.store.attempts.all() if attempt.is_doubtful}
        == owed
        != set()
    )


def test_a_copy_of_another_raysm_is_refused(world):
    world.home.database.connection.execute("PRAGMA user_version = 99")
    folder = FakeFolder(world.bench.clock)
    RemoteState(folder, world.home, folder.seal).hand_over()
    with pytest.raises(InvalidRequest, match="version 99"):
        read_copy(folder, folder.seal)
    before = folder.objects["state"]
    with pytest.raises(InvalidRequest, match="version 99"):
        RemoteState(folder, world.attempt().store, folder.seal).take(pytest.fail)
    assert folder.objects["state"] == before


@pytest.fixture(params=["ssm", "fake"])
def parameter(request):
    if request.param == "fake":
        yield FakeParameter()
        return
    with fake_aws() as fake:
        yield folder_of("drives-abc-", fake.service).parameter


def test_the_secret_that_was_first_is_everybodys(tmp_path, parameter):
    stores = [tmp_path / "here.db", tmp_path / "there.db"]
    for store in stores:
        secret_path(store).write_text(f"drawn for {store}")
        assert agree_on_secret(store, parameter) == f"drawn for {stores[0]}"
    assert secret_path(stores[1]).read_text() == f"drawn for {stores[0]}"
    assert stat.S_IMODE(secret_path(stores[1]).stat().st_mode) == 0o600
    assert agree_on_secret(tmp_path / "fresh.db", parameter) == f"drawn for {stores[0]}"
    assert parameter.write("another") == f"drawn for {stores[0]}"
    parameter.remove()
    parameter.remove()
    assert parameter.read() is None


def test_the_secret_is_encrypted_and_not_in_the_bucket():
    with fake_aws() as fake:
        folder = folder_of("drives-abc-", fake.service)
        folder.parameter.write(SECRET)
        stored = fake.clients["ssm"].get_parameter(Name="/raysm/grids/drives-abc")["Parameter"]
        assert stored["Type"] == "SecureString"
        assert folder.names("") == []


def changed(world, content):
    """Write the state as someone does who may write to the bucket, and does not know the secret."""
    world.folder.objects["state"] = (content, world.bench.clock.now)


def with_other_rows(stored):
    """Return a stored state with other rows, sealed as it was."""
    seal, head, copy = stored.split(b"\n", 2)
    return b"\n".join(
        [seal, head, zlib.compress(zlib.decompress(copy).replace(b"us-east-1", b"us-west-2"))]
    )


def of_another_writer(stored):
    head, copy = stored.split(b"\n", 2)[1:]
    return Seal("another secret", FakeFolder.place).sealed("state", head + b"\n" + copy)


def of_another_grid(stored):
    head, copy = stored.split(b"\n", 2)[1:]
    return Seal(SECRET, "s3://bucket/raysm/grid-stores/another").sealed(
        "state", head + b"\n" + copy
    )


def of_an_earlier_raysm(stored):
    return stored.partition(b"\n")[2]


@pytest.mark.parametrize(
    "change",
    [
        with_other_rows,
        of_another_writer,
        of_another_grid,
        of_an_earlier_raysm,
        lambda stored: b"",
        lambda stored: b"x",
    ],
)
def test_a_state_without_the_grids_seal_is_used_by_nobody(world, tmp_path, change):
    attempt = world.attempt().open()
    changed(world, change(world.folder.objects["state"][0]))
    with pytest.raises(InvalidPayload, match="not sealed"):
        world.attempt().open()
    with pytest.raises(InvalidPayload):
        read_copy(world.folder, world.folder.seal)
    with pytest.raises(InvalidPayload):
        recall(world.home, tmp_path / "g.db", world.folder, pytest.fail)
    world.bench.clock.now += RENEW_S
    with pytest.raises(InvalidPayload):
        attempt.run()
    assert world.lives == []


def test_an_earlier_state_that_someone_puts_back_makes_no_second_job_of_a_row(world):
    first = world.attempt().open()
    earlier = world.folder.objects["state"][0]
    first.step()
    first.step()
    assert len(world.lives) == 4
    first.die()
    changed(world, earlier)
    second = world.attempt().open()
    second.run()
    # Those that the earlier state does not know are found by their names, or stopped as orphaned.
    assert set(second.store.rows.states()) == {"done", "stopped"}
    assert sorted(life.row_key for life in world.lives) == list("abcd")


def test_a_state_that_unpacks_to_much_is_refused_before_it_is_in_memory(world):
    bomb = b"{}\n" + zlib.compress(bytes(64 << 20), level=9)
    tracemalloc.start()
    try:
        changed(world, b"0" * 64 + b"\n" + bomb)
        with pytest.raises(InvalidPayload):
            read_copy(world.folder, world.folder.seal)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_of_an_object_in_s3_that_is_too_large_nothing_is_read():
    with fake_aws() as fake:
        folder = folder_of("drives-abc-", fake.service)
        folder.put("state", bytes(1001))
        with pytest.raises(TooLarge, match="1,001 bytes"):
            folder.read("state", 1000)
        assert folder.read("state", 1001).content == bytes(1001)


@pytest.fixture(params=["s3", "fake"])
def folder(request):
    if request.param == "fake":
        yield FakeFolder(Clock())
        return
    with fake_aws() as fake:
        yield folder_of("drives-abc-", fake.service)


def test_s3_keeps_the_promises_of_the_fake_folder(folder):
    version = folder.replace("state", b"1", None)
    for wrong in (None, '"other"'):
        with pytest.raises(Outdated):
            folder.replace("state", b"2", wrong)
    folder.replace("state", b"3", version)
    with pytest.raises(Outdated):
        folder.replace("state", b"4", version)
    assert folder.read("state").content == b"3"
    assert folder.read("state").age_s >= 0
    for name in ("commands/2", "commands/1"):
        folder.put(name, b"")
    assert folder.names("commands/") == ["commands/1", "commands/2"]
    folder.remove("state")
    folder.remove("state")
    assert folder.read("state") is None
    # An object that is gone was taken back: no earlier holder writes it again.
    with pytest.raises(Outdated):
        folder.replace("state", b"5", version)
