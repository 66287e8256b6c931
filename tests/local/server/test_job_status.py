"""What is told of a job while it lives."""

from types import SimpleNamespace

import pytest

from raysm.local.server.definitions import Definition
from raysm.local.server.job_status import check_interruption
from raysm.local.server.validation import ApiError


def limits(max_runtime_s=10.0, **fields):
    return Definition(sources=(), outputs=(), instances=1, max_runtime_s=max_runtime_s, **fields)


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"waited_s": 9.0, "ran_s": 9.0, "pending": False}, None),
        ({"waited_s": 11.0, "ran_s": 11.0, "pending": False}, "runtime"),
        ({"waited_s": 21.0, "ran_s": 0.0, "pending": False}, "wait"),
        ({"waited_s": 6.0, "ran_s": 0.0, "pending": True}, "pending"),
        ({"waited_s": 6.0, "ran_s": 0.0, "pending": False}, None),
    ],
)
def test_the_limit_that_is_exceeded_is_the_reason(times, reason):
    assert limits(max_wait_s=20.0, max_pending_s=5.0).exceeded(**times) == reason


def record(**fields):
    return SimpleNamespace(
        **{"name": "a", "kind": "training", "status": "InProgress", "secondary": "Training", "final": False} | fields
    )


@pytest.mark.parametrize(
    ("fields", "how", "words"),
    [
        ({}, {"spot": False}, "is not on spot capacity"),
        ({"secondary": "Starting"}, {"spot": True}, "it is in status Starting, not Training"),
        ({}, {"spot": True, "is_ending": True}, "cannot be interrupted now"),
    ],
    ids=["on demand", "not yet", "ending"],
)
def test_what_has_no_capacity_to_lose_is_not_interrupted(fields, how, words):
    with pytest.raises(ApiError, match=words):
        check_interruption(record(**fields), **how)
