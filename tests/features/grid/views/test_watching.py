"""A grid is drawn until it is over."""

import io

import pytest
from rich.console import Console

import raysm
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.grid.views.text import shown_snapshot
from raysm.features.grid.views.watching import PIPED_S, GridWatch, watch
from tests.features.grid.views.test_text import view
from tests.support.homes import in_home
from tests.support.screens import WITHIN_S, Screen


class Looks:
    """What is seen of a grid: what the test says, or what it raises."""

    def __init__(self, first):
        self.now = first

    def __call__(self):
        if isinstance(self.now, Exception):
            raise self.now
        return shown_snapshot(self.now)


def test_it_is_drawn_with_its_curve_as_the_grid_goes_on_and_no_more_once_it_is_over():
    looks = Looks(view(state="open", states={"done": 1, "waiting": 2}))
    screen = Screen()
    card = GridWatch("drives", looks, screen)
    assert "1 done" in screen.cards[0]
    assert "live" in repr(card)
    looks.now = view(state="open", states={"done": 2, "waiting": 1}, done=((0.0, 0), (9.0, 2)))
    screen.wait_for("2 done")
    screen.wait_for("rows that are done")
    assert "<svg" in screen.cards[-1]
    looks.now = view(state="closed", states={"done": 3})
    assert card.wait(WITHIN_S)
    assert "3 done" in screen.cards[-1]
    assert "ended" in repr(card)


def test_what_cannot_be_seen_for_a_while_is_said_and_then_no_more():
    first = view(state="open")
    looks = Looks(first)
    screen = Screen()
    card = GridWatch("drives", looks, screen)
    looks.now = ServiceError("the bucket <b> is away")
    screen.wait_for("not up to date: the bucket &lt;b&gt; is away")
    drawn = len(screen.cards)
    looks.now = first
    screen.wait_for_another(drawn)
    assert "not seen" not in screen.cards[-1]
    card.stop()


def test_without_a_grid_or_a_notebook_it_is_said_at_once(tmp_path):
    with in_home(tmp_path):
        with pytest.raises(InvalidRequest, match=r"grid\.watch\(\).*grid\.status\(\)"):
            raysm.GridHandle("drives").watch()
        with pytest.raises(InvalidRequest, match="'drives'"):
            GridWatch("drives", raysm.GridHandle("drives").status, Screen())


class Scripted:
    """A handle whose looks are written down."""

    def __init__(self, *views):
        self.views = list(views)

    def status(self):
        return self.views.pop(0)


def drawn(grid, terminal):
    out = io.StringIO()
    pauses = []
    watch(
        grid.status,
        Console(file=out, force_terminal=terminal, width=200, height=60),
        sleep=pauses.append,
    )
    return out.getvalue(), pauses


def test_a_pipe_gets_a_block_for_each_look_that_has_news():
    later = view(states={"done": 20}, state="closed", at_s=9.0)
    text, pauses = drawn(Scripted(view(), view(at_s=2.0), later), terminal=False)
    assert text.count("grid drives:") == 2
    assert "\x1b" not in text
    assert pauses == [PIPED_S, PIPED_S]
