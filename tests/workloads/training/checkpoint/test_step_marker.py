"""How far a training was, as the next one finds it, and how seldom that is written where the service takes it over."""

from raysm.workloads.training.checkpoint.step_marker import REACHED, Reached, StepMarker, read_reached


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def test_the_last_step_is_read_back(tmp_path):
    marker = StepMarker(tmp_path, 7)
    assert read_reached(tmp_path) == Reached(7)
    marker.write(123_456)
    marker.write(99)  # a shorter number leaves nothing of a longer one
    assert read_reached(tmp_path) == Reached(99)
    marker.close()
    assert read_reached(tmp_path) == Reached(99)


def test_where_nothing_was_written_or_something_else_no_step_is_known(tmp_path):
    assert read_reached(tmp_path, None) == Reached(0)
    (tmp_path / REACHED).write_text("not a number")
    assert read_reached(tmp_path) == Reached(0)


def test_among_the_checkpoints_it_is_written_every_ten_seconds_and_says_that_it_may_be_late(tmp_path):
    clock = Clock()
    synchronised, own = tmp_path / "checkpoints", tmp_path / "own"
    marker = StepMarker(synchronised, 3, own, clock)
    for step in range(4, 1000):
        clock.now_s += 0.01
        marker.write(step)
        assert read_reached(synchronised) == Reached(3, is_exact=False)
        assert read_reached(own) == Reached(step)
    clock.now_s = 110.0
    marker.write(1000)
    assert read_reached(synchronised) == Reached(1000, is_exact=False)
    marker.write(1001)
    # Whoever comes after it on this instance knows; whoever comes elsewhere knows what was taken over.
    assert read_reached(synchronised, own) == Reached(1001)
    assert read_reached(synchronised) == Reached(1000, is_exact=False)


def test_at_the_end_the_last_step_stands_everywhere(tmp_path):
    marker = StepMarker(tmp_path / "checkpoints", 3, tmp_path / "own", Clock())
    marker.write(8)
    marker.close()
    assert read_reached(tmp_path / "checkpoints") == read_reached(tmp_path / "own") == Reached(8)


def test_of_what_several_instances_know_the_latest_step_counts_and_of_one_step_what_is_exact():
    assert max([Reached(3), Reached(5, is_exact=False), Reached(4)]) == Reached(5, is_exact=False)
    assert max([Reached(5, is_exact=False), Reached(5)]) == Reached(5)
