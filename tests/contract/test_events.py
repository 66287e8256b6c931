import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.contract.events import Metric, Progress, State, line, parse

EVENTS = [
    State(name="dashboard", host="algo-1", address="http://10.0.0.1:8265"),
    Progress(phase="similarity", done=10, total=100, unit="rows"),
    Metric(name="loss", value=0.25, step=3, host="algo-1"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_an_event_survives_its_line(event):
    assert parse(line(event)) == event
    assert "\n" not in line(event)


def test_an_event_is_found_behind_a_prefix_of_the_log():
    assert parse("2026-01-01T00:00:00 algo-1 | " + line(EVENTS[0])) == EVENTS[0]


def test_a_line_is_json_that_other_tools_can_read():
    assert json.loads(line(EVENTS[1]))["phase"] == "similarity"


@given(st.text() | st.builds(lambda tail: '{"raysm": 1, ' + tail, st.text()))
def test_any_other_line_is_passed_over(text):
    assert parse(text) is None


def test_an_event_of_a_later_version_is_passed_over():
    assert parse('{"raysm": 1, "kind": "hologram", "x": 1}') is None
