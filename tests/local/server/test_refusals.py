"""What a job cannot be asked for, in AWS's words."""

from types import SimpleNamespace

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.refusals import check_interruption, check_stop


def record(**fields):
    return SimpleNamespace(
        **{"name": "a", "kind": "training", "status": "InProgress", "secondary": "Training", "final": False} | fields
    )


def test_a_job_that_runs_may_be_stopped_and_on_spot_capacity_interrupted():
    check_stop(record())
    check_interruption(record(), spot=True)


def test_one_that_has_ended_is_not_stopped():
    with pytest.raises(ApiError, match="the training job is in status Completed"):
        check_stop(record(status="Completed", final=True))


@pytest.mark.parametrize(
    ("fields", "how", "words"),
    [
        ({}, {"spot": False}, "does not run on spot capacity"),
        ({"secondary": "Starting"}, {"spot": True}, "it is in status Starting, not Training"),
        ({}, {"spot": True, "is_ending": True}, "cannot be interrupted now"),
    ],
    ids=["on demand", "not yet", "ending"],
)
def test_what_has_no_capacity_to_lose_is_not_interrupted(fields, how, words):
    with pytest.raises(ApiError, match=words):
        check_interruption(record(**fields), **how)
