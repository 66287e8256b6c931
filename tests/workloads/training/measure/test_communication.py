"""What communication costs a step."""

import os

import pytest
import torch
from torch import nn

from raysm.workloads.training.measure.communication import (
    StepProfile,
    StepProfiler,
    _hushed,
    is_due,
    length,
    merge,
    subtract,
)


def test_the_steps_that_are_looked_at_grow_rarer():
    assert [step for step in range(1, 2000) if is_due(step)] == [8, 24, 72, 216, 648, 1944]


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([], []),
        ([(3, 4), (1, 2)], [(1, 2), (3, 4)]),
        ([(1, 3), (2, 5), (5, 6)], [(1, 6)]),
        ([(1, 9), (2, 3)], [(1, 9)]),
    ],
)
def test_intervals_that_overlap_are_one(intervals, expected):
    assert merge(intervals) == expected


@pytest.mark.parametrize(
    ("these", "those", "expected"),
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(2, 3), (5, 6)], [(0, 2), (3, 5), (6, 10)]),
        ([(0, 10)], [(-5, 1), (9, 20)], [(1, 9)]),
        ([(2, 4), (6, 8)], [(0, 10)], []),
        ([(0, 2), (4, 6)], [(1, 5)], [(0, 1), (5, 6)]),
        ([(0, 3), (5, 9)], [(1, 2), (6, 7)], [(0, 1), (2, 3), (5, 6), (7, 9)]),
    ],
)
def test_what_computing_hides_is_cut_out(these, those, expected):
    assert subtract(these, those) == expected
    assert length(subtract(these, those)) == sum(end - begin for begin, end in expected)


def test_the_share_is_that_of_the_step():
    assert StepProfile(wall_s=2.0, communication_s=0.5, hidden_s=1.0).share == 0.25
    assert StepProfile(wall_s=0.0, communication_s=0.0, hidden_s=0.0).share == 0


def test_the_profilers_own_lines_are_kept_from_the_log_but_no_others(capfd):
    with _hushed():
        os.write(2, b"USDT:2026 profiler_start\nan error of the user's\n")
    assert capfd.readouterr().err == "an error of the user's\n"


def test_a_step_of_one_process_waits_for_nobody():
    model = nn.Linear(64, 64)
    assert StepProfiler.is_possible()
    look = StepProfiler(torch.device("cpu"))
    assert not StepProfiler.is_possible()
    model(torch.randn(8, 64)).sum().backward()
    found = look.end()
    assert found.wall_s > 0
    assert found.communication_s == 0
    assert StepProfiler.is_possible()
