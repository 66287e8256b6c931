"""Tests of ``raysm.contract.result``."""

import pytest

from raysm.contract.events import Trial, best_of
from raysm.contract.result import MAX_REASON, Failure
from raysm.errors import BlockFailed


def test_a_reason_begins_with_the_exception_and_ends_with_the_end_of_the_traceback():
    failure = Failure(error_type="ValueError", message="no such layer", remote_traceback="x" * 5000 + "line 7, in f")
    assert failure.reason().startswith("ValueError: no such layer\n…x")
    assert failure.reason().endswith("line 7, in f")
    assert len(failure.reason()) == MAX_REASON


@pytest.mark.parametrize("length", [0, 1, 900, 934, 935, 936, 937, 938, 939, 5000])
def test_a_reason_is_never_longer_than_what_sagemaker_keeps(length):
    reason = Failure(error_type="ValueError", message="m" * length, remote_traceback="t" * 2000).reason()
    assert len(reason) <= MAX_REASON
    assert reason.startswith("ValueError")


def test_a_message_that_is_a_long_traceback_has_its_last_line_first():
    message = "ray::work() (pid=7)\n" + "  File 'work.py', line 7\n" * 200 + "ValueError: no such layer\n"
    reason = Failure(error_type="RayTaskError(ValueError)", message=message).reason()
    assert reason.startswith("RayTaskError(ValueError): ValueError: no such layer\n…")
    assert reason.endswith("line 7\nValueError: no such layer")
    assert len(reason) == MAX_REASON


def test_a_failed_block_says_which_and_how_often_and_why_in_the_first_line():
    error = BlockFailed(
        "block (0, 20)", 3, "  File 'work.py', line 7\n" * 200 + "ValueError: no such layer", "ValueError: no"
    )
    reason = Failure(error_type="BlockFailed", message=str(error), remote_traceback="t" * 2000).reason()
    first = "BlockFailed: block (0, 20) failed 3 times, the last time: ValueError: no ValueError: no such layer"
    assert reason.startswith(f"{first}\n…t")
    assert len(reason) == MAX_REASON


def trial(number, value, status="done"):
    return Trial(number=number, status=status, value=value, params={"lr": 0.1})


def test_the_best_is_the_first_of_equal_ones_and_never_a_failed_one():
    trials = [trial(0, None, "failed"), trial(1, 2.0), trial(2, 1.0, "stopped"), trial(3, 1.0), trial(4, 0.0, "failed")]
    assert best_of(trials, "min").number == 2
    assert best_of(trials, "max").number == 1
    assert best_of([trial(0, None, "failed")], "min") is None
