"""The copies of a grid's store: what was pushed is what is restored, and what nobody needs is removed."""

import contextlib
import sqlite3

import pytest

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.attempt import Attempt
from raysm.grid.rules import Rules
from raysm.grid.shared.lease import SharedLease
from raysm.grid.shared.sharing import Copies, read_copy
from raysm.grid.store import Store
from raysm.grid.task import Task
from tests.support.grid_world import Clock
from tests.support.shared_grids import FakeObjects


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
        if changes:
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
    assert here.copies.push(here.lease.head) == {}
    assert not here.copies.is_changed
    here.store.hold("a", 5.0)
    assert here.copies.is_changed
    here.push()
    assert here.lease.head.number == number + 1


def test_another_process_s_change_is_one(sides):
    here, _ = sides
    here.take()
    here.add("a")
    here.push()
    with contextlib.closing(Store(here.store.database.path)) as other:
        other.change_rules(Rules(retries=9))
    assert here.copies.is_changed


def test_a_machine_whose_file_is_the_copy_or_newer_keeps_it(sides):
    here, _ = sides
    here.take()
    here.add("a")
    here.push()
    here.add("a", "b")
    here.lease.release()
    here.take()
    assert here.keys() == ["a", "b"]


def test_a_machine_that_comes_back_has_what_another_one_did_meanwhile(sides):
    here, there = sides
    here.take()
    here.add("a")
    here.push()
    here.lease.release()
    there.take()
    there.add("a", "b")
    there.push()
    there.lease.release()
    here.take()
    assert here.keys() == ["a", "b"]


def test_only_the_current_copy_stays(sides, objects):
    here, _ = sides
    here.take()
    here.add("a")
    for number in range(3):
        here.store.hold("a", float(number))
        here.push()
        assert objects.names("copies/") == [here.lease.head.copy]


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


def test_a_file_that_is_replaced_has_another_fence(sides, objects):
    here, there = sides
    here.take()
    here.add("a")
    here.push()
    here.lease.release()
    for _ in range(3):
        there.store.database.take_lease("[1]", 10.0)
        there.store.database.release_lease()
    there.store.database.take_lease("[1]", 10.0)
    fence = there.store.database.fence
    there.take()
    assert there.store.database.connection.execute("SELECT fence FROM lease").fetchone()[0] > fence


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


def test_a_note_that_cannot_be_read_has_the_copy_brought_anew(sides, tmp_path):
    here, _ = sides
    here.take()
    here.add("a")
    here.push()
    here.lease.release()
    (tmp_path / "here" / "g.shared").write_text("{")
    here.take()
    assert here.keys() == ["a"]
    with contextlib.closing(sqlite3.connect(tmp_path / "here" / "g.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
