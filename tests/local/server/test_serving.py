"""A server in this process: one for each home, gone when it is idle, closed to others; the jobs of a killed one end."""

import signal
import threading
import time

import pytest

from raysm.contract.home import ServerRecord, lock_file, sdk_config_file
from raysm.contract.job_api import TRAINING
from raysm.errors import InvalidRequest
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.serving import LOST, Options, serve

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def handlers():
    """What a server does with signals is this process's, too."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def when_it_listens(home, act):
    """Call ``act(record)`` in a thread as soon as a server of ``home`` can be found; return the thread."""

    def watch():
        deadline = time.monotonic() + WAIT_S
        while (record := ServerRecord.read(home)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        act(record)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def job(status="InProgress", secondary="Training"):
    return JobRecord(
        kind="training",
        name="a",
        arn="arn:a",
        region="us-east-1",
        request={},
        status=status,
        secondary=secondary,
        created_s=1.0,
        modified_s=1.0,
    )


def test_an_idle_server_ends_itself_and_leaves_no_record(tmp_path):
    serve(Options(home=tmp_path, idle_s=0.0))
    assert ServerRecord.read(tmp_path) is None
    assert sdk_config_file(tmp_path).read_text().count("TelemetryOptOut: true") == 1


def test_a_second_server_of_a_home_is_refused(tmp_path):
    refused = []

    def second(record):
        with pytest.raises(InvalidRequest, match="runs already") as raised:
            serve(Options(home=tmp_path))
        refused.append(raised.value)
        signal.raise_signal(signal.SIGTERM)

    thread = when_it_listens(tmp_path, second)
    serve(Options(home=tmp_path))
    thread.join()
    assert len(refused) == 1
    assert lock_file(tmp_path).exists()


def test_what_a_home_holds_is_this_users_alone(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o777)
    (home / "jobs").mkdir(mode=0o777)
    serve(Options(home=home, idle_s=0.0))
    assert {(home / name).stat().st_mode & 0o777 for name in ("jobs", "data", "s3")} == {0o700}


def test_jobs_of_a_server_that_was_killed_are_failed_and_their_instances_files_gone(tmp_path):
    records = Records(tmp_path)
    records.add(job())
    work = records.folder(TRAINING, "a") / "work" / "1"
    work.mkdir(parents=True)
    serve(Options(home=tmp_path, idle_s=0.0))
    after = Records(tmp_path).get(TRAINING, "a")
    assert (after.status, after.failure_reason) == ("Failed", LOST)
    assert not work.exists()


def test_a_server_whose_home_is_deleted_ends(tmp_path):
    home = tmp_path / "home"
    thread = when_it_listens(home, lambda record: home.rename(tmp_path / "away"))
    serve(Options(home=home))
    thread.join()
    assert not home.exists()
