"""A dashboard as its user has it."""

import socket

import pytest

from raysm.views.dashboard.dashboard import Dashboard
from raysm.views.dashboard.frozen import FrozenSite
from raysm.views.dashboard.server import DashboardServer


@pytest.fixture
def dashboard():
    with Dashboard(DashboardServer(lambda: FrozenSite([])), "<digits>") as one:
        yield one


def test_it_says_where_it_is(dashboard):
    assert repr(dashboard) == f"<dashboard of <digits>: {dashboard.url}>"
    assert str(dashboard.port) in dashboard.url


def test_a_notebook_shows_it_in_a_frame_and_as_a_link(dashboard):
    shown = dashboard._repr_html_()
    assert shown.count(dashboard.url) == 2
    assert "<iframe" in shown
    assert "&lt;digits&gt;" in shown
    assert "<digits>" not in shown


def test_it_is_closed_at_the_end_of_the_block():
    with Dashboard(DashboardServer(lambda: FrozenSite([])), "digits") as dashboard:
        port = dashboard.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_closing_it_twice_is_harmless(dashboard):
    dashboard.close()
    dashboard.close()
