"""Batch's jobs, kept in files."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.records import LOST, BatchJob, BatchJobs, Try
from tests.support.hand_clock import HandClock


def job(name="j", **fields):
    values = {"kind": "job", "name": name, "region": "us-east-1", "queue": "q", "request": {}, "created_s": 1.0}
    return BatchJob(id=name, **{**values, **fields})


@pytest.fixture
def jobs(tmp_path):
    return BatchJobs(tmp_path, HandClock())


def test_a_job_is_found_by_its_id_and_by_its_arn_in_its_region(jobs):
    jobs.add([job()])
    assert jobs.get("j", "us-east-1") == jobs.get("arn:aws:batch:us-east-1:123456789012:job/j", "us-east-1")
    with pytest.raises(ApiError, match="Job j does not exist in eu-west-1"):
        jobs.get("j", "eu-west-1")


def test_those_that_have_ended_are_no_longer_open(jobs):
    jobs.add([job("a"), job("b")])
    jobs.update("a", status="SUCCEEDED")
    assert [one.id for one in jobs.open()] == ["b"]
    assert {one.id for one in jobs.all()} == {"a", "b"}


def test_the_children_of_an_array_come_by_their_indices(jobs):
    children = [job(f"a:{index}", parent="a", index=index, size=11) for index in range(11)]
    jobs.add([job("a", size=11), *reversed(children)])
    assert [child.index for child in jobs.children("a")] == list(range(11))


def test_a_server_that_starts_anew_knows_all_and_fails_those_that_were_under_way(jobs, tmp_path):
    jobs.add([job("done"), job("open", tries=(Try(resource="r", begun_s=2.0),))])
    jobs.update("done", status="SUCCEEDED")
    clock = HandClock()
    again = BatchJobs(tmp_path, clock)
    assert again.find("done").status == "SUCCEEDED"
    lost = again.find("open")
    assert (lost.status, lost.reason, lost.stopped_s) == ("FAILED", LOST, clock.now())
    assert lost.tries == (Try(resource="r", begun_s=2.0),)
    assert again.open() == []


def test_a_file_that_cannot_be_read_is_passed_over(jobs, tmp_path):
    jobs.add([job()])
    (tmp_path / "batch" / "jobs" / "broken.json").write_text("{")
    assert [one.id for one in BatchJobs(tmp_path, HandClock()).all()] == ["j"]


def test_nobody_else_reads_a_job(jobs, tmp_path):
    jobs.add([job()])
    assert (tmp_path / "batch" / "jobs" / "j.json").stat().st_mode & 0o077 == 0


def test_jobs_that_were_deleted_do_not_come_back_with_a_change(jobs, tmp_path):
    jobs.add([job()])
    (tmp_path / "batch").rename(tmp_path / "elsewhere")
    assert jobs.update("j", status="FAILED").final
    with pytest.raises(FileNotFoundError):
        jobs.add([job("another")])
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
