"""The job that a user means by a name."""

import pytest

from raysm.client.job.listing import find_all, find_job, find_running, jobs
from raysm.client.submit import submit
from raysm.errors import InvalidRequest, JobNotFound
from raysm.request import Script
from raysm.request.session import SessionWorkload
from tests.support.client_jobs import M5


def test_why_a_job_waits_is_asked_for_of_those_that_wait_alone(remote, job):
    assert [listed.message for listed in jobs(remote.service)] == [""]
    assert remote.sagemaker.described == 0


def test_the_latest_job_that_runs_is_found_by_the_name_that_its_user_gave_it(remote, script):
    first, second = (submit(Script(str(script)), name="digits", cluster=M5, on=remote.service) for _ in range(2))
    assert first.name != second.name
    found = find_job("digits", remote.service)
    assert found in (first, second)
    remote.sagemaker.end(found.name, "Completed")
    assert find_job("digits", remote.service) in {first, second} - {found}


def test_a_job_is_found_by_a_name_that_is_longer_than_the_part_that_its_own_has(remote, script):
    names = [f"{'digits' * 9}-{letter}" for letter in "ab"]
    jobs = [submit(Script(str(script)), name=name, cluster=M5, on=remote.service) for name in names]
    assert [find_running(name, remote.service, sole=True) for name in names] == jobs


def test_a_pattern_means_all_jobs_that_match_it_and_a_short_name_one_job_alone(remote, script):
    digits = [submit(Script(str(script)), name="digits", cluster=M5, on=remote.service) for _ in range(2)]
    other = submit(Script(str(script)), name="other", cluster=M5, on=remote.service)
    assert set(find_all("digits-*", remote.service)) == set(digits)
    assert find_all("other", remote.service) == [other]
    with pytest.raises(InvalidRequest, match=r"2 jobs are named 'digits': .*give one or 'digits-\*'"):
        find_all("digits", remote.service)
    with pytest.raises(JobNotFound, match=r"no job matches 'none-\*'"):
        find_all("none-*", remote.service)


def test_a_session_goes_before_a_job_of_the_same_name_that_was_sent_behind_it(remote, script):
    session = submit(SessionWorkload(), name="digits", cluster=M5, on=remote.service)
    submit(Script(str(script)), name="digits", cluster=M5, on=remote.service)
    assert find_job("digits", remote.service) == session


def test_an_unknown_name_is_refused_with_the_nearest_ones(remote, job):
    with pytest.raises(JobNotFound, match=rf"there is no job '{job.name}x' .*; did you mean {job.name}\?"):
        find_job(f"{job.name}x", remote.service)
