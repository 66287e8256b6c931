"""What a row has left that is done, by its key."""

import pytest

from raysm.client.service import Service
from raysm.client.storage import Storage
from raysm.errors import InvalidRequest
from raysm.grid.attempt import Attempt, AttemptState, TaskState
from raysm.grid.packing import Load, together
from raysm.grid.packs import note_members
from raysm.grid.row_folders import row_uri
from raysm.grid.row_result import row_result
from raysm.grid.rules import Rules
from raysm.grid.store import Store
from raysm.grid.task import Task
from raysm.request import Local
from tests.support.homes import serving

pytestmark = pytest.mark.long


@pytest.fixture
def service(tmp_path):
    with serving(tmp_path / "home") as home:
        yield Service(Local(home=str(home)))


@pytest.fixture
def store(tmp_path, service):
    store = Store(tmp_path / "g.db")
    store.make("g", rules=Rules(pack=2), now=0.0)
    store.add([Task(key=key, position=place) for place, key in enumerate("abc")])
    attempt = Attempt(
        task="a", number=1, name="g-job-a1", region=service.region, instance_type="ml", count=1,
        pack="p", state=AttemptState.ENDED,
    )  # fmt: skip
    records = (store.task("a"), store.task("b"))
    with store.database.transaction("test", fenced=False):
        store.insert(attempt)
        note_members(store, attempt, Load(records=records, task=together([each.task for each in records])))
        store.move_task("a", TaskState.WAITING, TaskState.DONE, 1.0)
        store.move_task("b", TaskState.WAITING, TaskState.FAILED, 1.0, reason="it is broken")
    yield store
    store.database.close()


def test_of_a_row_that_shared_its_job_it_is_what_its_program_left(tmp_path, service, store):
    storage = Storage(service)
    storage.ensure_bucket(service.bucket, service.region)
    folder = row_uri(service.places.root, store.grid().prefix, "p", store.task("a").task.key_hash)
    for name in ("model/deep/weights", "data/y", "state/epoch"):
        storage.write(f"{folder}/{name}", name.encode())
    brought = row_result(store, "a", service)
    assert [path.relative_to(brought).as_posix() for path in brought.rglob("*") if path.is_file()] == ["deep/weights"]
    to = row_result(store, "a", service, tmp_path / "to")
    assert (to / "deep" / "weights").read_text() == "model/deep/weights"
    with pytest.raises(InvalidRequest, match="name an empty or new folder"):
        row_result(store, "a", service, to)


def test_a_row_that_is_not_done_has_none_and_says_why(service, store):
    with pytest.raises(InvalidRequest, match="'b' has no result: it is failed: it is broken"):
        row_result(store, "b", service)
    with pytest.raises(InvalidRequest, match="'c' has no result: it is waiting"):
        row_result(store, "c", service)
    with pytest.raises(InvalidRequest, match="no row 'd'"):
        row_result(store, "d", service)
