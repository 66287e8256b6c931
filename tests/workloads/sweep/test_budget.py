"""The time that a sweep may take, over all of its runs."""

import pytest

from raysm.workloads.sweep.budget import KEPT_EVERY_S, Budget
from raysm.workloads.sweep.journal import Journal


class Clock:
    """Says what it is told."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def test_what_an_earlier_run_took_counts(tmp_path):
    clock, journal = Clock(), Journal(tmp_path, "key")
    first = Budget(60.0, journal, clock)
    clock.now_s += 25.0
    first.on_step_end(1, [])
    # Killed here; the next job begins an hour later, which is not the sweep's.
    clock.now_s += 3600.0
    second = Budget(60.0, Journal(tmp_path, "key"), clock)
    assert (second.left_s, second.is_over) == (pytest.approx(35.0), False)
    clock.now_s += 36.0
    second.keep()
    assert second.is_over
    assert Budget(60.0, journal, clock).is_over


def test_it_is_written_down_from_time_to_time(tmp_path):
    clock, journal = Clock(), Journal(tmp_path, "key")
    budget = Budget(60.0, journal, clock)
    budget.on_step_end(1, [])
    assert journal.spent_s() == 0.0
    clock.now_s += KEPT_EVERY_S
    budget.on_step_end(2, [])
    clock.now_s += 1.0
    budget.on_step_end(3, [])
    assert journal.spent_s() == KEPT_EVERY_S


def test_without_one_nothing_is_written_and_nothing_ends(tmp_path):
    clock, journal = Clock(), Journal(tmp_path, "key")
    budget = Budget(None, journal, clock)
    clock.now_s += 1e6
    budget.on_step_end(1, [])
    assert (budget.left_s, budget.is_over, journal.spent_s()) == (None, False, 0.0)
