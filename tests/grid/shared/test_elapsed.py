"""A clock that never runs slow: whichever of the two stands still or goes back, the other one counts."""

from raysm.grid.shared.lease import Elapsed


class Clocks:
    def __init__(self):
        self.steady, self.wall = 100.0, 1_800_000_000.0

    def elapsed(self):
        return Elapsed(lambda: self.steady, lambda: self.wall)


def test_it_counts_what_passes():
    clocks = Clocks()
    elapsed = clocks.elapsed()
    clocks.steady += 3
    clocks.wall += 3
    assert (elapsed(), elapsed()) == (3, 3)


def test_a_machine_that_slept_has_not_stood_still():
    clocks = Clocks()
    elapsed = clocks.elapsed()
    clocks.wall += 3600
    assert elapsed() == 3600


def test_a_clock_that_is_set_back_takes_nothing_away():
    clocks = Clocks()
    elapsed = clocks.elapsed()
    clocks.steady += 5
    clocks.wall -= 3600
    assert elapsed() == 5
    clocks.steady += 1
    clocks.wall += 1
    assert elapsed() == 6
