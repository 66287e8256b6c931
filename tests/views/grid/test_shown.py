"""Plans and snapshots show themselves, to print and in a notebook."""

from raysm.views.grid.plan_text import plan_lines
from raysm.views.grid.screen import screen_lines
from raysm.views.grid.shown import shown_plan, shown_snapshot
from tests.views.grid.test_plan_text import place, plan
from tests.views.grid.test_screen import view


def test_a_snapshot_prints_as_the_command_does_and_equals_itself():
    shown = shown_snapshot(view())
    assert str(shown).splitlines() == [line.rstrip() if not line else line for line in screen_lines(view())]
    assert shown.regions == view().regions
    assert shown.as_dict() == view().as_dict()


def test_a_notebook_shows_it_in_columns_and_escaped():
    assert "<b>&lt;</b>" not in shown_snapshot(view(name="<i>"))._repr_html_()
    assert "&lt;i&gt;" in shown_snapshot(view(name="<i>"))._repr_html_()


def test_a_plan_prints_as_the_command_does():
    assert str(shown_plan(plan([place()]))).split("\n") == plan_lines(plan([place()]))
