"""The median rule: who is worse than the half of those that have ended is stopped."""

from raysm.local.server.tuning.median_rule import falls_behind
from raysm.local.server.tuning.trial import Trial


def ended(*losses):
    return Trial(number=0, assignment={}, losses=losses, ended=True, loss=losses[-1])


def running(*losses):
    return Trial(number=9, assignment={}, losses=losses)


DONE = [ended(4.0, 2.0, 0.0), ended(6.0, 4.0, 2.0), ended(8.0, 6.0, 4.0)]


def test_it_is_compared_with_the_running_averages_up_to_the_same_report():
    # The averages of the first two reports are 3, 5 and 7.
    assert falls_behind(running(9.0, 5.1), DONE)
    assert not falls_behind(running(9.0, 4.9), DONE)


def test_as_long_as_few_have_ended_nobody_falls_behind():
    assert not falls_behind(running(99.0), DONE[:2])


def test_who_has_said_nothing_yet_is_left_alone():
    assert not falls_behind(running(), DONE)


def test_past_the_end_of_the_others_there_is_nobody_to_compare_with():
    assert not falls_behind(running(9, 9, 9, 9), DONE)
