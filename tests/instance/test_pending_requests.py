"""Which pending requests of Ray are impossible, and which wait; with and without a cluster."""

import itertools
import math
import random

import pytest

from raysm.errors import InvalidRequest
from raysm.instance.pending_requests import (
    Pending,
    UnmetRequests,
    WaitingRequests,
    can_place,
    find_pending,
)

NODES = [{"CPU": 1.0, "memory": 4e9, "host:algo-1": 1.0}, {"CPU": 1.0, "GPU": 1.0, "memory": 4e9}]
OF_8_GPUS = [{"GPU": 8.0, "CPU": 96.0}] * 2


def unmet(nodes, *bundles, strategy="any"):
    return dict(find_pending(nodes, nodes, [Pending(bundles=bundles, strategy=strategy)]).unmet)


@pytest.mark.parametrize(
    "bundles",
    [[{"CPU": 1}], [{"GPU": 1, "CPU": 0.5}], [{"CPU": 1}, {"CPU": 1}], [{"host:algo-1": 1}], [{}]],
)
def test_a_request_that_fits_an_instance_is_met_sooner_or_later(bundles):
    assert unmet(NODES, *bundles) == {}


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
        (
            [{"CPU": 1}] * 3,
            "a placement group of 3 bundles of num_cpus=1 (num_cpus=3 in all)",
            "2 x (num_cpus=1)",
        ),
    ],
)
def test_a_request_that_no_instance_can_meet_is_named_with_what_they_have(
    bundles, request_text, have
):
    assert unmet(NODES, *bundles) == {request_text: have}


@pytest.mark.parametrize(
    ("gpus", "strategy", "is_possible"),
    [
        # The sum fits, but one of three bundles of 5 has no instance with 5 free GPUs.
        ([5, 5, 5], "any", False),
        ([5, 5], "any", True),
        ([4, 4, 4, 4], "any", True),
        ([5, 5, 3, 3], "any", True),
        ([6, 6, 4], "any", False),
        ([4, 4], "STRICT_PACK", True),
        ([5, 5], "STRICT_PACK", False),
        ([1, 1], "STRICT_SPREAD", True),
        ([1, 1, 1], "STRICT_SPREAD", False),
        ([8, 1], "STRICT_SPREAD", True),
    ],
)
def test_a_placement_group_is_possible_if_its_strategy_has_a_placement(gpus, strategy, is_possible):
    bundles = [{"GPU": float(count)} for count in gpus]
    assert (unmet(OF_8_GPUS, *bundles, strategy=strategy) == {}) is is_possible


def test_bundles_that_only_one_instance_can_hold_are_matched_with_it():
    nodes = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0}]
    bundles = [{"CPU": 1.0}, {"CPU": 1.0, "GPU": 1.0}]
    assert unmet(nodes, *bundles, strategy="STRICT_SPREAD") == {}
    assert unmet(nodes, bundles[1], bundles[1], strategy="STRICT_SPREAD") != {}


def test_each_answer_about_a_small_group_is_that_of_trying_every_placement():
    chance = random.Random(45)
    for _ in range(300):
        nodes = [
            {"CPU": float(chance.randint(1, 6)), "GPU": float(chance.randint(0, 2))}
            for _ in range(3)
        ]
        bundles = [
            {"CPU": float(chance.randint(1, 4)), "GPU": float(chance.randint(0, 1))}
            for _ in range(4)
        ]
        for strategy in ("any", "STRICT_PACK", "STRICT_SPREAD"):
            request = Pending(bundles=bundles, strategy=strategy)
            assert can_place(nodes, request) is can_place_by_trying(nodes, bundles, strategy), (
                nodes,
                bundles,
            )


def can_place_by_trying(nodes, bundles, strategy):
    for chosen in itertools.product(range(len(nodes)), repeat=len(bundles)):
        if strategy == "STRICT_PACK" and len(set(chosen)) > 1:
            continue
        if strategy == "STRICT_SPREAD" and len(set(chosen)) < len(bundles):
            continue
        loads = [
            {
                name: sum(
                    bundle[name] for bundle, at in zip(bundles, chosen, strict=True) if at == number
                )
            }
            for number in range(len(nodes))
            for name in ("CPU", "GPU")
        ]
        limits = [{name: node[name]} for node in nodes for name in ("CPU", "GPU")]
        pairs = zip(loads, limits, strict=True)
        if all(load[name] <= limit[name] for load, limit in pairs for name in load):
            return True
    return False


def test_sums_of_fractions_are_no_reason_to_call_a_group_impossible():
    assert unmet([{"CPU": 0.3}], *[{"CPU": 0.1}] * 3, strategy="STRICT_PACK") == {}


def test_a_task_inside_of_a_placement_group_is_not_named_beside_its_group():
    inside = {"CPU_group_3ed02e45345f52b7393c6e1dcdf901000000": 1, "CPU": 1}
    found = find_pending(NODES, NODES, [Pending(bundles=[inside])])
    assert (found.unmet, found.waiting) == ({}, {})


def test_requests_that_wait_for_what_others_hold_are_counted_with_what_is_free():
    group = {"CPU_group_3ed02e45345f52b7393c6e1dcdf901000000": 1.0}
    nodes = [{"CPU": 2.0, **group}, {"CPU": 2.0}]
    free = [{"CPU": 1.0}, {}]
    requests = [
        Pending(bundles=[{"CPU": 1.0}], count=7),
        Pending(bundles=[{"CPU": 2.0}], count=3),
        Pending(bundles=[{"CPU": 1.0}] * 2, strategy="STRICT_SPREAD"),
        Pending(bundles=[group]),
    ]
    found = find_pending(nodes, free, requests)
    assert found.unmet == {}
    assert found.waiting == {
        "num_cpus=2": 3,
        "a placement group of 2 bundles of num_cpus=1 (STRICT_SPREAD, num_cpus=2 in all)": 1,
        "num_cpus=1 inside a placement group": 1,
    }
    assert found.free == "1 x (num_cpus=0 of 2), 1 x (num_cpus=1 of 2)"


UNMET = {"num_cpus=64": "2 x (num_cpus=1)"}


def test_a_request_is_named_once_within_15_seconds_and_fails_the_job_at_the_limit():
    requests = UnmetRequests(600.0)
    assert requests.take(UNMET, 100.0) == []
    (line,) = requests.take(UNMET, 115.0)
    assert "num_cpus=64; the instances have 2 x (num_cpus=1)" in line
    assert "fails in 585 s" in line
    assert requests.take(UNMET, 120.0) == []
    with pytest.raises(InvalidRequest, match=r"num_cpus=64.* 2 x \(num_cpus=1\)"):
        requests.take(UNMET, 700.0)


def test_a_session_names_a_request_and_never_ends_by_it():
    requests = UnmetRequests(math.inf)
    requests.take(UNMET, 0.0)
    (line,) = requests.take(UNMET, 1e6)
    assert "num_cpus=64" in line
    assert "fails" not in line


def times_named(*counts_by_time):
    """Return when a request is named whose number is ``counts_by_time``, as pairs of time and count."""
    requests = WaitingRequests()
    return [
        now_s
        for now_s, count in counts_by_time
        if requests.take({"num_cpus=1": count} if count else {}, "", now_s)
    ]


def test_a_request_that_waits_is_named_after_30_seconds_and_rarely_again():
    assert times_named(*((now_s, 2) for now_s in range(0, 3600, 5))) == [30, 1830]


def test_a_queue_that_gets_shorter_is_not_named():
    assert times_named(*((now_s, 100 - now_s // 10) for now_s in range(0, 600, 5))) == []
    assert times_named((0, 1), (25, 0), (30, 1), (55, 1), (60, 2)) == [60]
