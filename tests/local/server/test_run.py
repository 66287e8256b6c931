"""The life of a job that never comes to its instances, and its record; test_life_cycle has those that do."""

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from raysm.core.protocol.home import Clock
from raysm.core.protocol.job_api import TRAINING
from raysm.local.scenario import Scenario
from raysm.local.server.definitions import Definition
from raysm.local.server.job_status import check_interruption
from raysm.local.server.market import Stock
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.run import JobRun
from raysm.local.server.services import Cores, Services
from raysm.local.server.validation import ApiError
from tests.support.api_requests import training_parameters
from tests.support.waiting import until

WAIT_S = 300.0


class Watched(Cores):
    """Cores of which a test knows that somebody looked whether they are free."""

    def __init__(self, cores):
        super().__init__(cores)
        self.looked = threading.Semaphore(0)

    def wait(self, ticket, timeout_s):
        self.looked.release()
        return super().wait(ticket, timeout_s)


class SetForward(Clock):
    """The machine's clock, which somebody has set a day forward since the job was made."""

    def now(self):
        return super().now() + 86_400.0


class Jobs:
    """Jobs that wait for the one core of a machine, which somebody else has."""

    def __init__(self, folder, clock=None):
        self.records, self.cores = Records(folder, clock), Watched(1)
        self.ticket = self.cores.ask(1, "somebody-else")
        assert self.cores.wait(self.ticket, WAIT_S)
        # Neither S3 nor metrics: nothing is brought before a job's turn comes.
        self.services = Services(
            records=self.records,
            moto=SimpleNamespace(),
            objects=SimpleNamespace(),
            cores=self.cores,
            stock=Stock(Scenario(), self.records),
        )

    def start(self, **fields):
        request = training_parameters(**fields)
        record = JobRecord(
            kind="training",
            name="a-job",
            arn="arn",
            region="us-east-1",
            request=request,
            created_s=time.time(),
            modified_s=time.time(),
        )
        self.records.add(record)
        run = JobRun(self.services, record)
        run.start()
        self.await_secondary("Pending")
        return run

    def record(self):
        return self.records.get(TRAINING, "a-job")

    def await_secondary(self, secondary):
        until(lambda: self.record().secondary == secondary, WAIT_S, self.record)


@pytest.fixture
def jobs(tmp_path):
    return Jobs(tmp_path)


def test_a_job_that_is_stopped_while_it_waits_never_starts(jobs):
    run = jobs.start()
    run.stop()
    assert run.await_end(WAIT_S)
    assert (jobs.record().status, jobs.record().secondary) == ("Stopped", "Stopped")
    assert jobs.record().started_s is None
    with pytest.raises(ApiError, match="in status Stopped"):
        run.stop()
    # Its place in the queue is free for the next one.
    assert jobs.cores.waiting() == 0


def test_a_job_that_waits_says_behind_whom_as_the_queue_moves(jobs):
    def message():
        return jobs.record().transitions[-1].message

    ahead = jobs.cores.ask(1, "ahead")
    run = jobs.start()
    assert "behind ahead" in message()
    jobs.cores.give_back(ahead)
    until(lambda: "while somebody-else runs" in message(), WAIT_S, jobs.record)
    run.shut_down()


def test_a_clock_that_is_set_forward_ends_no_job_that_waits(tmp_path):
    jobs = Jobs(tmp_path, SetForward())
    run = jobs.start(
        EnableManagedSpotTraining=True,
        StoppingCondition={
            "MaxRuntimeInSeconds": 600,
            "MaxWaitTimeInSeconds": 600,
            "MaxPendingTimeInSeconds": 7200,
        },
    )
    for _ in range(5):
        assert jobs.cores.looked.acquire(timeout=WAIT_S), jobs.record()
    assert jobs.record().secondary == "Pending"
    run.shut_down()


def record():
    return JobRecord(
        kind="training",
        name="a",
        arn="arn:a",
        region="us-east-1",
        request={},
        created_s=1.0,
        modified_s=1.0,
    )


def test_a_job_that_cannot_be_written_is_not_there(tmp_path):
    records = Records(tmp_path)
    (tmp_path / "jobs" / "training").write_text("in the way")
    with pytest.raises(OSError, match="training"):
        records.add(record())
    with pytest.raises(ApiError):
        records.get(TRAINING, "a")
    (tmp_path / "jobs" / "training").unlink()
    records.add(record())
    assert Records(tmp_path).get(TRAINING, "a") == record()


def test_a_job_whose_folder_is_gone_does_not_make_it_anew(tmp_path):
    records = Records(tmp_path)
    records.add(record())
    (tmp_path / "jobs" / "training" / "a").rename(tmp_path / "elsewhere")
    records.advance(records.get(TRAINING, "a"), "Failed", "", status="Failed")
    assert records.get(TRAINING, "a").final
    assert list((tmp_path / "jobs").rglob("*")) == [tmp_path / "jobs" / "training"]


def test_a_new_job_is_not_written_into_another_home_of_the_same_name(tmp_path):
    records = Records(tmp_path / "home")
    (tmp_path / "home").rename(tmp_path / "elsewhere")
    (tmp_path / "home" / "jobs").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="another folder now"):
        records.add(record())
    assert list((tmp_path / "home" / "jobs").iterdir()) == []


@pytest.mark.parametrize("does", ["adds", "changes"])
def test_a_job_of_another_home_at_the_same_path_is_left_as_it_is(tmp_path, does):
    records = Records(tmp_path / "home")
    if does == "changes":
        records.add(record())
    (tmp_path / "home").rename(tmp_path / "elsewhere")
    other = replace(record(), status="Completed")
    Records(tmp_path / "home").add(other)
    if does == "changes":
        records.update(TRAINING, "a", status="Failed")
    else:
        with pytest.raises(FileNotFoundError):
            records.add(record())
    assert Records(tmp_path / "home").get(TRAINING, "a") == other


def test_records_are_read_again_but_those_that_cannot_be_read(tmp_path):
    Records(tmp_path).add(record())
    for name, content in {
        "cut": '{"kind": "training", "na',
        "list": "[]",
        "no-name": '{"kind": "training"}',
        "no-kind": '{"kind": "tuning", "name": "a", "arn": "a", "region": "r", "request": {}, '
        '"created_s": 1, "modified_s": 1}',
    }.items():
        (tmp_path / "jobs" / "training" / name).mkdir()
        (tmp_path / "jobs" / "training" / name / "record.json").write_text(content)
    assert Records(tmp_path).all() == [record()]


def test_a_record_of_a_later_version_is_read_without_its_new_fields(tmp_path):
    Records(tmp_path).add(record())
    path = tmp_path / "jobs" / "training" / "a" / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"new": 1}))
    assert Records(tmp_path).all() == [record()]


def test_changes_of_a_record_that_two_threads_make_at_the_same_time_are_both_kept(tmp_path):
    met = threading.Barrier(2)

    class Slow(Clock):
        """Lets two changes meet between reading and writing; one alone goes on after the timeout."""

        def now(self):
            with contextlib.suppress(threading.BrokenBarrierError):
                met.wait(0.5)
            return super().now()

    records = Records(tmp_path, Slow())
    records.add(record())
    with ThreadPoolExecutor(2) as pool:
        changes = [{"attempts": 1}, {"training_s": 9.0}]
        list(pool.map(lambda change: records.update(TRAINING, "a", **change), changes))
    changed = records.get(TRAINING, "a")
    assert (changed.attempts, changed.training_s) == (1, 9.0)


def block(tmp_path):
    """Make records that cannot be written, as if the disk were full; return the path in the way."""
    folder = tmp_path / "jobs" / "training" / "a"
    folder.rename(tmp_path / "aside")
    folder.write_text("a file where the folder belongs")
    return folder


def unblock(tmp_path, folder):
    folder.unlink()
    (tmp_path / "aside").rename(folder)


def test_a_record_that_could_not_be_written_is_written_by_the_next_retry_that_can(tmp_path, caplog):
    records = Records(tmp_path)
    records.add(record())
    folder = block(tmp_path)
    records.update(TRAINING, "a", status="Failed")
    records.retry()
    assert records.unwritten() == ["training job a"]
    unblock(tmp_path, folder)
    assert Records(tmp_path).get(TRAINING, "a").status == "InProgress"
    records.retry()
    assert records.unwritten() == []
    assert Records(tmp_path).get(TRAINING, "a").status == "Failed"
    first, last = (record.message for record in caplog.records)
    assert "training job a was not written" in first
    assert last.endswith("is written now")


def test_the_record_of_a_job_that_was_deleted_is_not_written_again(tmp_path):
    records = Records(tmp_path)
    records.add(record())
    folder = block(tmp_path)
    records.update(TRAINING, "a", status="Failed")
    records.delete(TRAINING, "a")
    folder.unlink()
    records.retry()
    assert not folder.exists()


def limits(max_runtime_s=10.0, **fields):
    return Definition(sources=(), outputs=(), instances=1, max_runtime_s=max_runtime_s, **fields)


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"waited_s": 9.0, "ran_s": 9.0, "pending": False}, None),
        ({"waited_s": 11.0, "ran_s": 11.0, "pending": False}, "runtime"),
        ({"waited_s": 21.0, "ran_s": 0.0, "pending": False}, "wait"),
        ({"waited_s": 6.0, "ran_s": 0.0, "pending": True}, "pending"),
        ({"waited_s": 6.0, "ran_s": 0.0, "pending": False}, None),
    ],
)
def test_the_limit_that_is_exceeded_is_the_reason(times, reason):
    assert limits(max_wait_s=20.0, max_pending_s=5.0).find_exceeded(**times) == reason


def status_record(**fields):
    return SimpleNamespace(
        **{
            "name": "a",
            "kind": "training",
            "status": "InProgress",
            "secondary": "Training",
            "final": False,
        }
        | fields
    )


@pytest.mark.parametrize(
    ("fields", "how", "words"),
    [
        ({}, {"spot": False, "is_ending": False}, "is not on spot capacity"),
        (
            {"secondary": "Starting"},
            {"spot": True, "is_ending": False},
            "it is in status Starting, not Training",
        ),
        ({}, {"spot": True, "is_ending": True}, "cannot be interrupted now"),
    ],
    ids=["on demand", "not yet", "ending"],
)
def test_what_has_no_capacity_to_lose_is_not_interrupted(fields, how, words):
    with pytest.raises(ApiError, match=words):
        check_interruption(status_record(**fields), **how)
