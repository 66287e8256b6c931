"""What is told of a job while it lives."""

import threading
import time

import pytest

from raysm.contract.job_api import TRAINING
from raysm.local.server.job_status import Changes, HasStatus, JobStatus
from raysm.local.server.records import JobRecord, Records


@pytest.fixture
def status(tmp_path):
    records = Records(tmp_path)
    now = time.time()
    records.add(
        JobRecord(kind="training", name="j", arn="arn:j", region="us-east-1", request={}, created_s=now, modified_s=now)
    )
    return JobStatus(records, records.get(TRAINING, "j"))


def test_a_job_that_is_being_stopped_shows_that_until_it_uploads(status):
    status.enter("Downloading", "brings")
    status.enter_stopping()
    status.enter("Training", "trains", attempts=1)
    assert (status.record.status, status.record.secondary, status.record.attempts) == ("Stopping", "Stopping", 1)
    status.enter("Uploading", "uploads")
    assert status.record.secondary == "Uploading"


def test_the_start_is_that_of_the_first_attempt(status):
    status.enter_training()
    first_s = status.record.started_s
    status.enter_training()
    assert status.record.started_s == first_s


def test_whoever_waits_for_the_end_hears_it_and_the_reason_is_cut(status):
    assert not status.final.is_set()
    status.finish("Failed", "Failed", "failed", "x" * 2000)
    assert status.final.is_set()
    assert status.record.final
    assert len(status.record.failure_reason) == 1024
    # What has ended is not stopped any more.
    status.enter_stopping()
    assert status.record.status == "Failed"


def test_each_status_and_the_end_are_changes(status):
    status.enter("Downloading", "brings")
    status.enter_training()
    assert status.changes.wait(1, 0) == 2
    status.finish("Completed", "Completed", "done")
    assert status.changes.wait(2, 0) == 3
    told = HasStatus()
    told._status = status
    assert (told.await_change(0, 0), told.await_end(0), told.record.status) == (3, True, "Completed")


WAIT_S = 60.0


def test_who_waits_hears_of_the_next_change_and_of_one_that_he_missed_at_once():
    changes, heard = Changes(), []
    waiting = threading.Thread(target=lambda: heard.append(changes.wait(0, WAIT_S)))
    waiting.start()
    changes.add()
    waiting.join(WAIT_S)
    assert heard == [1]
    assert changes.wait(0, WAIT_S) == 1


def test_nothing_new_is_said_as_such_after_the_time():
    assert Changes().wait(0, 0.01) == 0


def test_who_counts_by_another_server_is_answered_at_once():
    changes = Changes()
    changes.add()
    assert changes.wait(7, WAIT_S) == 1
