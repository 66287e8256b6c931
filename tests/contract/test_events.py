"""Tests of ``raysm.contract.events``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.contract.events import MAX_LINE_BYTES, Metric, Progress, ProgressLines, State, line, parse
from tests.support.pages import DOCS

EVENTS = [
    State(name="dashboard", host="algo-1", address="http://10.0.0.1:8265"),
    Progress(phase="similarity", done=10, total=100, unit="rows"),
    Metric(name="loss", value=0.25, step=3, host="algo-1"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_an_event_survives_its_line(event):
    assert parse(line(event)) == event
    assert "\n" not in line(event)


def test_the_page_about_events_shows_the_line_of_one():
    page = (DOCS / "reference" / "events.md").read_text()
    assert line(Metric(name="loss", value=0.25, step=3, time_s=1790000000.0)) in page.splitlines()


@given(st.text() | st.builds(lambda tail: '{"raysm": 1, ' + tail, st.text()))
def test_any_other_line_is_passed_over(text):
    assert parse(text) is None


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def test_a_bar_shows_one_line_a_second_and_its_last_state(clock):
    lines, shown = ProgressLines(clock), b""
    for percent in range(101):
        shown += lines.feed(b"\r%d%%" % percent)
        clock.now_s += 0.25
    shown += lines.feed(b"\n")
    assert shown.split() == [b"%d%%" % percent for percent in range(0, 101, 4)]


def test_windows_line_ends_are_line_ends_also_when_they_come_in_two_pieces(clock):
    lines = ProgressLines(clock)
    assert lines.feed(b"one\r\ntwo\r") + lines.feed(b"\nthree\n") == b"one\ntwo\nthree\n"


def test_a_line_without_end_is_cut(clock):
    lines = ProgressLines(clock)
    assert lines.feed(b"x" * (MAX_LINE_BYTES + 5)) == b"x" * MAX_LINE_BYTES + b"\n"
    assert lines.rest() == b"x" * 5
