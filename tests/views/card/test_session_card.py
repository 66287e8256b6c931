"""A session's card."""

import re

import pytest

from raysm.views.card.session_card import session_card
from tests.support.sessions import state as plain_state

HOSTILE = "</div><script>alert(1)</script>"


def state(**fields):
    return plain_state(**{"usd": 0.5, "usd_per_hour": 2.0, "budget_usd": 20.0, **fields})


@pytest.mark.parametrize(
    "text",
    [
        "<b>digits</b>",
        ">open<",
        "the job digits-1",
        "2: 8 CPUs",
        "0.50 USD of 20.00 USD, 2.00 USD an hour",
        "in 28 min: idle for 30 min with a client attached",
    ],
)
def test_it_has_state_instances_cost_and_when_it_ends(text):
    assert text in session_card("digits", state())


def test_the_dashboard_is_linked_where_it_is_shown():
    assert "<a " not in session_card("digits", state())
    assert 'href="/proxy/1/x/"' in session_card("digits", state(), "/proxy/1/x/")


def test_whatever_it_says_is_text():
    card = session_card(HOSTILE, state(job=HOSTILE, ends_why=HOSTILE, closing=HOSTILE), f'"{HOSTILE}')
    assert "<script" not in card
    assert "&lt;script&gt;" in card
    assert set(re.findall(r"</?([a-z]+)", card)) <= {"div", "span", "b", "br", "a", "details", "summary", "pre"}
