"""The card of a session; test_escaping gives it hostile strings."""

from raysm.features.session.client.view import render_card
from tests.support.sessions import state


def test_a_session_has_state_instances_cost_end_and_a_link_to_its_dashboard():
    open_state = state(usd=0.5, usd_per_hour=2.0, budget_usd=20.0)
    card = render_card("digits", open_state)
    for shown in (
        "<b>digits</b>",
        ">open<",
        "the job digits-1",
        "2: 8 CPUs",
        "0.50 USD of 20.00 USD, 2.00 USD an hour",
        "in 28 min: idle for 30 min with a client attached",
    ):
        assert shown in card
    assert "<a " not in card
    assert 'href="/proxy/1/x/"' in render_card("digits", open_state, "/proxy/1/x/")
