"""``raysm://NAME`` as an address of Ray's own commands."""

import pytest

import raysm
from raysm.client.ray_address import ClientBuilder, find_job, get_job_submission_client_cluster_info
from raysm.errors import InvalidRequest, JobNotFound


def test_ray_finds_by_dir_what_it_asks_for():
    assert {"get_job_submission_client_cluster_info", "ClientBuilder"} <= set(dir(raysm))
    assert raysm.get_job_submission_client_cluster_info is get_job_submission_client_cluster_info
    assert raysm.ClientBuilder is ClientBuilder


def test_a_job_is_found_by_its_name(remote, job):
    assert find_job(job.name, remote.service) == job


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
