"""``raysm://NAME`` as an address of Ray's own commands."""

import pytest

import raysm
from raysm.client.ray_address import ClientBuilder, get_job_submission_client_cluster_info
from raysm.errors import InvalidRequest


def test_ray_finds_by_dir_what_it_asks_for():
    assert {"get_job_submission_client_cluster_info", "ClientBuilder"} <= set(dir(raysm))
    assert raysm.get_job_submission_client_cluster_info is get_job_submission_client_cluster_info
    assert raysm.ClientBuilder is ClientBuilder


def test_ray_init_is_refused_with_the_way_out():
    with pytest.raises(InvalidRequest, match=r"ray job submit --address raysm://digits .*raysm.Session"):
        ClientBuilder("digits")
