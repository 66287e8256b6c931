"""How far a training was, as the next one finds it."""

from raysm.workloads.training.checkpoint.resume import REACHED, StepMarker


def test_the_last_step_is_read_back(tmp_path):
    marker = StepMarker(tmp_path, 7)
    assert StepMarker.read(tmp_path) == 7
    marker.write(123_456)
    marker.write(99)  # a shorter number leaves nothing of a longer one
    marker.close()
    assert StepMarker.read(tmp_path) == 99


def test_where_nothing_was_written_or_something_else_no_step_is_known(tmp_path):
    assert StepMarker.read(tmp_path) == 0
    (tmp_path / REACHED).write_text("not a number")
    assert StepMarker.read(tmp_path) == 0
