"""The curves of a grid: one of the rows that are done, one of what all jobs do, and neither before there is one."""

from raysm.views.grid.shown import curves
from tests.views.grid.test_screen import view


def test_one_look_is_no_curve_and_two_are_one():
    assert curves(view(done=((0.0, 1),), rates=())) == ""
    shown = curves(view(done=((0.0, 0), (60.0, 5)), rates=((0.0, 10.0), (60.0, 20.0)), rate_unit="images/s"))
    assert shown.count("<svg") == 2
    assert "images/s, all jobs together" in shown
