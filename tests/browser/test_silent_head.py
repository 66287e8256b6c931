"""Ray's page over a head that is too busy to answer: what raysm itself serves does not wait for it."""

import threading
from functools import partial

import pytest

from raysm.views.dashboard.assets import installed_build
from raysm.views.dashboard.live import LiveSite
from raysm.views.dashboard.server import DashboardServer
from tests.support.browsers import looking
from tests.support.dashboard_head import TOKEN, Answer, Quiet, serving_head, told, way_to

expect = pytest.importorskip("playwright.sync_api").expect
ray = pytest.importorskip("ray")

pytestmark = pytest.mark.browser


@pytest.fixture
def server(tmp_path):
    """Of a head that serves the page of this machine's Ray, and is silent to all that the page asks."""
    over = threading.Event()
    with serving_head() as head:
        page = (installed_build() / "index.html").read_bytes()
        at_once = {
            "": Answer(page, 200, (("Content-Type", "text/html"),)),
            "api/version": told({"ray_version": ray.__version__, "ray_commit": ray.__commit__}),
        }

        def answer_to(asked):
            path = asked.path.lstrip("/")
            if path in at_once:
                return at_once[path]
            # Longer than the test waits: a browser keeps its six connections to one address for that long.
            over.wait()
            return told({})

        head.answer_to = answer_to
        way = partial(way_to, head)
        showing = DashboardServer(
            lambda: LiveSite("digits-1", Quiet(), way=way, token=TOKEN, cache=tmp_path, ended=tuple)
        )
        yield showing
        over.set()
        showing.close()


def test_the_page_knows_of_its_charts_though_the_head_is_silent(browser, server):
    with looking(browser) as (context, _seen):
        page = context.new_page()
        page.goto(f"{server.url}#/overview")
        # The page shows them, or an alert, once it has its answers; their content waits for a free connection.
        for title in ("Cluster Utilization", "Node Count"):
            expect(page.locator(f"iframe[title='{title}']")).to_have_count(1)
        expect(page.get_by_text("Set up Prometheus and Grafana")).to_have_count(0)
