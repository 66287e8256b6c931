"""The job that is read, by its short name."""

from datetime import UTC, datetime, timedelta

import pytest

from raysm.cli.reading import find_to_read
from raysm.client.submit import submit
from raysm.errors import JobNotFound
from raysm.request import Script
from tests.support.client_jobs import M5

SENT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def jobs(remote, tmp_path):
    """Two of one name, of which the second was sent a second later."""
    script = tmp_path / "digits.py"
    script.write_text("pass")
    both = [submit(Script(str(script)), name="digits", cluster=M5, on=remote.service) for _ in range(2)]
    for seconds, job in enumerate(both):
        remote.sagemaker.jobs[job.name]["answer"]["CreationTime"] = SENT + timedelta(seconds=seconds)
    return both


def test_where_all_of_a_name_have_ended_the_last_one_is_read_and_that_is_said(remote, jobs, capsys):
    for job in jobs:
        remote.sagemaker.end(job.name, "Completed")
    assert find_to_read("digits", remote.service) == jobs[1]
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"raysm: digits is {jobs[1].name}, the last job of that name; it has ended\n")


def test_one_that_runs_goes_before_one_that_was_sent_later_and_has_ended(remote, jobs, capsys):
    remote.sagemaker.end(jobs[1].name, "Completed")
    assert find_to_read("digits", remote.service) == jobs[0]
    assert capsys.readouterr().err == ""


def test_of_a_name_that_no_job_has_the_nearest_is_named_as_before(remote, jobs):
    with pytest.raises(JobNotFound, match=r"there is no job 'digit' .*; did you mean "):
        find_to_read("digit", remote.service)
