"""The base of a session's handle."""

import pytest

import raysm
from raysm.client.session.connected import ConnectedSession, detached, rows, text
from raysm.errors import SessionEnded
from tests.support.sessions import state


@pytest.mark.parametrize("name", ["name", "job", "state"])
def test_what_is_known_of_an_open_session_is_not_known_of_another(name):
    with pytest.raises(SessionEnded, match=r"the session digits is not open: start\(\) it"):
        getattr(raysm.Session(name="digits"), name)


def test_one_that_was_given_no_name_has_none_in_the_message():
    with pytest.raises(SessionEnded, match="^the session is not open"):
        raysm.Session().run(print)


def test_a_handle_that_is_not_open_is_shown_as_such_and_its_name_is_text():
    session = raysm.Session(name="digits")
    session._name = "<b>"
    assert isinstance(session, ConnectedSession)
    assert session._repr_html_() == "<p>&lt;session &lt;b&gt;: not open&gt;</p>"


def test_it_says_what_there_is_to_know_and_nothing_of_a_price_that_nobody_knows():
    told = dict(rows(state()))
    assert told["instances"] == "2: 8 CPUs"
    assert told["end"] == "in 28 min: idle for 30 min with a client attached"
    assert "cost" not in told


@pytest.mark.parametrize(
    ("fields", "label", "value"),
    [
        ({"usd": 0.5, "usd_per_hour": 2.0}, "cost", "0.50 USD, 2.00 USD an hour"),
        ({"usd": 0.5, "usd_per_hour": 2.0, "budget_usd": 20.0}, "cost", "0.50 USD of 20.00 USD, 2.00 USD an hour"),
        ({"busy": 1, "ends_in_s": None}, "end", "none while it is busy"),
        ({"busy": 1}, "at work", "1 call"),
        ({"gpus": 4.0}, "instances", "2: 8 CPUs, 4 GPUs"),
        ({"closing": "it was closed"}, "state", "closing: it was closed"),
        ({"ends_in_s": 40.0}, "end", "in 40 s: idle for 30 min with a client attached"),
    ],
)
def test_a_fact_is_told_as_people_do(fields, label, value):
    assert dict(rows(state(**fields)))[label] == value


def test_as_text_it_is_one_line_with_its_name():
    assert text(state(), "digits").startswith("<session digits: state open, instances 2: 8 CPUs,")
    assert text(None, "digits") == "<session digits: not open>"
    assert text(None, None) == "<session: not open>"


def test_what_becomes_of_it_without_a_client_has_the_time_and_what_puts_it_off():
    assert detached("digits", 300.0) == (
        "detached",
        "from now on: ends after 5 min without a call; raysm session keep digits 60m puts that off",
    )
