"""What communication costs a step."""

import os

import pytest
import torch
from raysm.workloads.training.measure.profiling import StepProfile, StepProfiler, _hushed, is_due, union_length
from torch import nn


def test_the_steps_that_are_looked_at_grow_rarer():
    assert [step for step in range(1, 2000) if is_due(step)] == [8, 24, 72, 216, 648, 1944]


@pytest.mark.parametrize(
    ("intervals", "length"),
    [([], 0), ([(3, 4), (1, 2)], 2), ([(1, 3), (2, 5), (5, 6)], 5), ([(1, 9), (2, 3), (4, 5)], 8)],
)
def test_intervals_that_overlap_count_once(intervals, length):
    assert union_length(intervals) == length


def test_the_share_is_that_of_the_step():
    assert StepProfile(wall_s=2.0, communication_s=0.5).share == 0.25
    assert StepProfile(wall_s=0.0, communication_s=0.0).share == 0


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
