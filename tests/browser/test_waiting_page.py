"""The page that stands in for a dashboard which is being started, in a real browser and without a cluster."""

import contextlib
import threading
from types import SimpleNamespace

import pytest

from raysm.views.dashboard.live import LiveSite
from raysm.views.dashboard.server import DashboardServer
from tests.support.browsers import looking
from tests.support.dashboard_head import TOKEN, Answer, Quiet, serving_head

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.browser

WAIT_S = 60.0


@pytest.fixture
def up():
    """Set once the head's dashboard answers."""
    event = threading.Event()
    yield event
    # Else the thread that waits for it would outlive the test.
    event.set()


@pytest.fixture
def server(up, tmp_path):
    with serving_head() as head:
        head.answers[""] = Answer(b"<h1>Ray's own page</h1>", 200, (("Content-Type", "text/html"),))

        @contextlib.contextmanager
        def way():
            assert up.wait(WAIT_S)
            yield SimpleNamespace(address=head.address)

        # Asked for what a job left that never ends.
        showing = DashboardServer(
            lambda: LiveSite("digits-1", Quiet(), way=way, token=TOKEN, cache=tmp_path, ended=tuple)
        )
        yield showing
        up.set()
        showing.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_there_at_once_and_gives_way_to_rays_page_at_the_same_tab(browser, server, up, theme, picture):
    with looking(browser, color_scheme=theme, device_scale_factor=2) as (context, _seen):
        page = context.new_page()
        page.goto(f"{server.url}#/metrics")
        expect(page.get_by_text("The dashboard of digits-1 is being started.")).to_be_visible()
        picture(page, f"dashboard-waiting-{theme}")
        up.set()
        expect(page.get_by_text("Ray's own page")).to_be_visible()
        assert page.url == f"{server.url}#/metrics"
