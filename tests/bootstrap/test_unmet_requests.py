"""Ray requests that no instance can ever meet are named, and end the job in time."""

import math

import pytest

from raysm.bootstrap.unmet_requests import UnmetRequests, find_unmet
from raysm.errors import InvalidRequest

NODES = [{"CPU": 1.0, "memory": 4e9, "host:algo-1": 1.0}, {"CPU": 1.0, "GPU": 1.0, "memory": 4e9}]


@pytest.mark.parametrize(
    "bundles",
    [[{"CPU": 1}], [{"GPU": 1, "CPU": 0.5}], [{"CPU": 1}, {"CPU": 1}], [{"host:algo-1": 1}], [{}]],
)
def test_a_request_that_fits_an_instance_is_met_sooner_or_later(bundles):
    assert find_unmet(NODES, [bundles]) == {}


@pytest.mark.parametrize(
    ("bundles", "request_text", "have"),
    [
        ([{"CPU": 64}], "num_cpus=64", "2 x (num_cpus=1)"),
        (
            [{"CPU": 1, "GPU": 2}],
            "num_cpus=1, num_gpus=2",
            "1 x (num_cpus=1, num_gpus=0), 1 x (num_cpus=1, num_gpus=1)",
        ),
        ([{"host:algo-3": 1}], "host:algo-3=1", "2 x (host:algo-3=0)"),
        ([{"CPU": 1}] * 3, "a placement group of 3 bundles, num_cpus=3 in all", "2 x (num_cpus=1)"),
    ],
)
def test_a_request_that_no_instance_can_meet_is_told_with_what_they_have(bundles, request_text, have):
    assert find_unmet(NODES, [bundles]) == {request_text: have}


def test_a_task_inside_of_a_placement_group_is_not_told_beside_its_group():
    inside = {"CPU_group_3ed02e45345f52b7393c6e1dcdf901000000": 1, "CPU": 1}
    assert find_unmet(NODES, [[inside]]) == {}


UNMET = {"num_cpus=64": "2 x (num_cpus=1)"}


def test_a_request_is_named_once_after_a_minute_and_fails_the_job_at_the_limit():
    requests = UnmetRequests(600.0)
    assert requests.take(UNMET, 100.0) == []
    assert requests.take(UNMET, 159.0) == []
    (line,) = requests.take(UNMET, 160.0)
    assert "no instance can ever run the Ray request num_cpus=64; the instances have 2 x (num_cpus=1)" in line
    assert "fails in 540 s" in line
    assert requests.take(UNMET, 165.0) == []
    with pytest.raises(InvalidRequest, match=r"num_cpus=64; the instances have 2 x \(num_cpus=1\).*ask for less"):
        requests.take(UNMET, 700.0)


def test_a_request_that_is_gone_begins_anew_when_it_comes_back():
    requests = UnmetRequests(600.0)
    requests.take(UNMET, 0.0)
    requests.take({}, 500.0)
    assert requests.take(UNMET, 700.0) == []


def test_a_session_names_a_request_and_never_ends_by_it():
    requests = UnmetRequests(math.inf)
    requests.take(UNMET, 0.0)
    (line,) = requests.take(UNMET, 1e6)
    assert "num_cpus=64" in line
    assert "fails" not in line
