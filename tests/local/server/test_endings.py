"""Which limit of time ends a job, and when it is to be looked at again."""

import pytest

from raysm.local.server.definitions import Definition
from raysm.local.server.endings import ENDS, FAILURES, TimeLimits


def limits(max_runtime_s=10.0, **fields):
    return TimeLimits.of(Definition(sources=(), outputs=(), instances=1, max_runtime_s=max_runtime_s, **fields))


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


def test_without_limits_of_waiting_a_job_may_wait_for_ever():
    assert limits().exceeded(waited_s=1e9, ran_s=0.0, pending=True) is None


def test_the_next_limit_is_the_nearer_one():
    assert limits().left_s(waited_s=100.0, ran_s=4.0) == 6.0
    assert limits(max_wait_s=20.0).left_s(waited_s=18.0, ran_s=4.0) == 2.0


def test_every_reason_but_an_interruption_has_a_status():
    assert {"stop", "runtime", "wait", "shutdown", "pending"} == ENDS.keys() | FAILURES.keys()
