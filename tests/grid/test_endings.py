"""The classes of ends answer for themselves."""

import pytest

from raysm.grid.attempt import TaskState
from raysm.grid.endings import ENDINGS, ending


def test_a_class_that_a_newer_raysm_wrote_is_unknown():
    assert ending("NEW").name == "UNKNOWN"
    assert ending("OK") is ENDINGS["OK"]


@pytest.mark.parametrize("name", ["CAPACITY", "QUOTA", "SERVICE", "DENIED", "CLASH"])
def test_what_is_not_the_tasks_fault_uses_up_no_retry(name):
    assert (ENDINGS[name].then, ENDINGS[name].uses_retry, ENDINGS[name].pauses_grid) == (
        TaskState.WAITING,
        False,
        False,
    )


@pytest.mark.parametrize("name", [name for name in ENDINGS if name != "OK"])
def test_each_class_says_what_a_person_can_do(name):
    assert ENDINGS[name].advice


def test_only_what_is_in_doubt_or_throttled_is_no_end():
    assert {name for name, each in ENDINGS.items() if not each.is_end} == {"THROTTLED", "MAYBE"}
