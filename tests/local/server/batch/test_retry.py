"""Which attempt of a Batch job is followed by another one."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.retry import check_strategy, is_again

ENDING = {"onExitCode": "137", "onReason": "OutOfMemory: killed", "onStatusReason": "Host EC2 gone"}


def rule(action, **conditions):
    return {"action": action, **conditions}


@pytest.mark.parametrize(("tries", "again"), [(1, True), (2, True), (3, False)])
def test_as_many_attempts_as_were_asked_for(tries, again):
    assert is_again({"attempts": 3}, tries, ENDING) is again


@pytest.mark.parametrize("strategy", [None, {}, {"attempts": 1}])
def test_one_attempt_where_nobody_asks_for_more(strategy):
    assert not is_again(strategy, 1, ENDING)


@pytest.mark.parametrize(
    ("rules", "again"),
    [
        ([rule("EXIT", onExitCode="137")], False),
        ([rule("EXIT", onExitCode="1")], True),
        ([rule("RETRY", onStatusReason="Host EC2*"), rule("EXIT", onReason="*")], True),
        ([rule("RETRY", onStatusReason="Host", onReason="*"), rule("EXIT", onReason="*")], False),
        ([rule("EXIT", onReason="OutOfMemory*", onExitCode="1")], True),
        ([rule("EXIT", onReason="*", onStatusReason=None)], False),
    ],
)
def test_the_first_rule_of_which_all_conditions_hold_decides(rules, again):
    assert is_again({"attempts": 2, "evaluateOnExit": rules}, 1, ENDING) is again


def test_an_asterisk_alone_matches_also_what_was_never_said():
    assert not is_again({"attempts": 2, "evaluateOnExit": [rule("EXIT", onReason="*")]}, 1, {})


@pytest.mark.parametrize("strategy", [{"attempts": 0}, {"attempts": 11}, {"evaluateOnExit": [rule("EXIT")] * 6}])
def test_what_there_may_not_be_is_refused_by_its_number(strategy):
    with pytest.raises(ApiError, match=r"got (0|11|6)"):
        check_strategy(strategy)
    check_strategy(None)
