"""The life of Batch's jobs, step by step, under a clock of the test's own."""

import pytest

from tests.support.batch_queues import HandBatch
from tests.support.hand_clock import HandClock


@pytest.fixture
def batch(tmp_path):
    return HandBatch(tmp_path, HandClock())


def steps(batch, count=3, pass_s=0.0):
    for _ in range(count):
        batch.step()
        batch.clock.pass_s(pass_s)


def status(batch, name):
    return batch.job(name).status


def test_a_job_goes_its_way_to_the_end(batch):
    batch.send("a")
    steps(batch)
    assert status(batch, "a") == "RUNNING"
    batch.is_now("a", "SUCCEEDED", exit_code=0, reason="well")
    batch.clock.pass_s(5.0)
    batch.step()
    job = batch.job("a")
    assert (job.status, job.reason, job.stopped_s - job.started_s) == ("SUCCEEDED", "well", 5.0)
    assert [(one.resource, one.exit_code) for one in job.tries] == [("resource-of-a-1", 0)]


def test_no_more_run_than_the_environment_has_room_for(batch):
    for name in "abc":
        batch.send(name)
    steps(batch)
    assert batch.work.began == ["a", "b"]
    batch.is_now("a", "SUCCEEDED")
    steps(batch)
    assert batch.work.began == ["a", "b", "c"]


def test_who_does_not_fit_keeps_the_smaller_ones_behind_it_waiting(batch):
    batch.send("first")
    steps(batch)
    batch.send("large", need=2)
    batch.send("small")
    steps(batch)
    assert batch.work.began == ["first"]
    batch.is_now("first", "SUCCEEDED")
    steps(batch)
    assert batch.work.began == ["first", "large"]


def test_a_failed_attempt_is_followed_by_another_until_there_were_enough(batch):
    batch.send("a", retryStrategy={"attempts": 2})
    batch.is_now("a", "FAILED", exit_code=3, reason="broken")
    steps(batch, 6)
    job = batch.job("a")
    assert (job.status, job.reason) == ("FAILED", "broken")
    assert [one.exit_code for one in job.tries] == [3, 3]


def test_what_its_rules_give_up_is_not_tried_again(batch):
    rules = [{"action": "EXIT", "onExitCode": "3"}]
    batch.send("a", retryStrategy={"attempts": 5, "evaluateOnExit": rules})
    batch.is_now("a", "FAILED", exit_code=3)
    steps(batch, 6)
    assert (status(batch, "a"), len(batch.job("a").tries)) == ("FAILED", 1)


def test_an_attempt_that_takes_too_long_is_ended_and_not_repeated(batch):
    batch.work.limits_s["a"] = 60.0
    batch.send("a", retryStrategy={"attempts": 5})
    steps(batch)
    batch.clock.pass_s(61.0)
    steps(batch)
    job = batch.job("a")
    assert batch.work.stopped == ["a"]
    assert (job.status, job.reason, len(job.tries)) == ("FAILED", "Job attempt duration exceeded timeout", 1)


def test_what_is_refused_now_waits_and_says_why(batch):
    batch.work.full = "no room"
    batch.send("a")
    steps(batch)
    assert (status(batch, "a"), batch.job("a").reason) == ("RUNNABLE", "no room")
    batch.work.full = ""
    steps(batch)
    assert status(batch, "a") == "RUNNING"


def test_a_job_that_is_terminated_ends_and_says_so_whatever_its_attempt_made_of_it(batch):
    job = batch.send("a", retryStrategy={"attempts": 5})
    steps(batch)
    batch.run.end(job, "enough of it")
    steps(batch)
    assert (status(batch, "a"), batch.job("a").reason, batch.work.stopped) == ("FAILED", "enough of it", ["a"])


def test_cancelling_ends_what_waits_and_leaves_what_runs(batch):
    jobs = [batch.send(name) for name in "abc"]
    steps(batch)
    for job in jobs:
        batch.run.end(batch.job(job.id), "not needed", cancels=True)
    steps(batch)
    assert [status(batch, name) for name in "abc"] == ["RUNNING", "RUNNING", "FAILED"]
    assert batch.job("c").is_cancelled


def test_a_job_begins_when_the_one_before_it_has_succeeded(batch):
    batch.send("a")
    batch.send("b", dependsOn=[{"jobId": "a"}])
    steps(batch)
    assert status(batch, "b") == "PENDING"
    batch.is_now("a", "SUCCEEDED")
    steps(batch)
    assert status(batch, "b") == "RUNNING"


def test_a_job_whose_other_failed_fails_with_it(batch):
    batch.send("a")
    batch.send("b", dependsOn=[{"jobId": "a"}])
    batch.is_now("a", "FAILED")
    steps(batch, 6)
    assert (status(batch, "b"), batch.job("b").reason) == ("FAILED", "Dependent Job failed")


def test_a_server_that_ends_ends_nobodys_jobs_by_its_own_word(batch):
    batch.send("a")
    steps(batch)
    batch.run.shut_down()
    assert status(batch, "a") == "RUNNING"


def test_the_highest_priority_begins_first_and_else_who_came_first(batch):
    for name in "abc":
        batch.send(name, need=2, priority=9 if name == "c" else 0)
        batch.clock.pass_s(1.0)
    for name in "cab":
        batch.is_now(name, "SUCCEEDED")
    steps(batch, 6)
    assert batch.work.began == ["c", "a", "b"]
