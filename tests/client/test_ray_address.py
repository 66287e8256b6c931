"""``raysm://NAME`` as an address of Ray's own commands."""

import pytest

import raysm
from raysm.client.ray_address import ClientBuilder, find_job, get_job_submission_client_cluster_info
from raysm.client.submit import submit
from raysm.errors import InvalidRequest, JobNotFound
from raysm.request import Script
from tests.support.client_jobs import M5


def test_ray_finds_by_dir_what_it_asks_for():
    assert {"get_job_submission_client_cluster_info", "ClientBuilder"} <= set(dir(raysm))
    assert raysm.get_job_submission_client_cluster_info is get_job_submission_client_cluster_info
    assert raysm.ClientBuilder is ClientBuilder


def test_a_job_is_found_by_its_name(remote, job):
    assert find_job(job.name, remote.service) == job


def test_the_latest_job_that_runs_is_found_by_the_name_that_its_user_gave_it(remote, script):
    first, second = (submit(Script(str(script)), name="digits", cluster=M5, on=remote.service) for _ in range(2))
    assert first.name != second.name
    found = find_job("digits", remote.service)
    assert found in (first, second)
    remote.sagemaker.end(found.name, "Completed")
    assert find_job("digits", remote.service) in {first, second} - {found}


def test_an_unknown_name_is_refused_with_the_nearest_ones(remote, job):
    with pytest.raises(JobNotFound, match=rf"there is no job '{job.name}x' .*; did you mean {job.name}\?"):
        find_job(f"{job.name}x", remote.service)


def test_a_part_of_a_name_finds_those_that_have_it(remote, job):
    with pytest.raises(JobNotFound, match=rf"did you mean {job.name}\?"):
        find_job(job.name[-4:], remote.service)


def test_a_name_like_no_other_is_refused_without_a_guess(remote, job):
    with pytest.raises(JobNotFound) as refused:
        find_job("zzzzzz", remote.service)
    assert "did you mean" not in str(refused.value)


def test_ray_init_is_refused_with_the_way_out():
    with pytest.raises(InvalidRequest, match=r"ray job submit --address raysm://digits .*raysm.Session"):
        ClientBuilder("digits")
