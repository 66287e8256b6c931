"""A shared grid is opened: one secret on all machines, and a copy to look at that is nobody's but the looker's."""

import stat

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rules import Rules
from raysm.grid.shared.sharing import copied, share_secret, sharing_of
from raysm.grid.store import Store
from raysm.grid.task import Task
from tests.support.grid_world import Clock
from tests.support.shared_grids import FakeObjects


@pytest.fixture
def objects():
    return FakeObjects(Clock())


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


def test_a_secret_is_drawn_where_there_is_none(objects, tmp_path):
    share_secret(tmp_path / "a.key", objects)
    share_secret(tmp_path / "b.key", objects)
    assert (tmp_path / "a.key").read_text() == (tmp_path / "b.key").read_text()
    assert len((tmp_path / "a.key").read_text()) == 64


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
