"""A grid is drawn until it is over."""

import io

import pytest
from rich.console import Console

from raysm.views.grid.watching import DRAWN_S, PIPED_S, watch
from tests.views.grid.test_screen import view


class Scripted:
    """A handle whose looks are written down."""

    def __init__(self, *views):
        self.views = list(views)

    def status(self):
        return self.views.pop(0)


def drawn(grid, terminal):
    out, pauses = io.StringIO(), []
    watch(grid.status, Console(file=out, force_terminal=terminal, width=200, height=60), sleep=pauses.append)
    return out.getvalue(), pauses


def test_a_pipe_gets_a_block_for_each_look_that_has_news():
    later = view(states={"done": 20}, state="closed", at_s=9.0)
    text, pauses = drawn(Scripted(view(), view(at_s=2.0), later), terminal=False)
    assert text.count("grid drives:") == 2
    assert "\x1b" not in text
    assert pauses == [PIPED_S, PIPED_S]


def test_a_terminal_is_drawn_over_at_most_twice_a_second():
    text, pauses = drawn(Scripted(view(), view(state="closed")), terminal=True)
    assert "grid drives: closed" in text
    assert pauses == [DRAWN_S]
    assert DRAWN_S >= 0.5


def test_a_grid_that_is_paused_and_has_no_job_is_watched_no_longer():
    text, pauses = drawn(Scripted(view(state="paused", why="first rows failed", regions=())), terminal=False)
    assert "first rows failed" in text
    assert pauses == []


def test_each_look_may_be_taken_instead_of_drawn():
    seen = []
    watch(
        Scripted(view(), view(state="closed")).status,
        Console(file=io.StringIO()),
        show=seen.append,
        sleep=lambda s: None,
    )
    assert [each.state for each in seen] == ["open", "closed"]


def test_an_interrupt_ends_the_watching():
    def interrupted(seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(Scripted(view()).status, Console(file=io.StringIO()), sleep=interrupted)
