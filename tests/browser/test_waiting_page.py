"""The page that is shown while the dashboard starts, in a real browser and without a cluster."""

import contextlib
import threading
from types import SimpleNamespace

import pytest

from tests.support.browsers import looking
from tests.support.dashboard_head import Answer, serving_head, showing

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.browser

WAIT_S = 300.0


def test_it_is_there_at_once_and_gives_way_to_rays_page_at_the_same_tab(browser, tmp_path, picture):
    up = threading.Event()
    with serving_head() as head:
        head.answers[""] = Answer(b"<h1>Ray's own page</h1>", 200, (("Content-Type", "text/html"),))

        @contextlib.contextmanager
        def way():
            assert up.wait(WAIT_S)
            yield SimpleNamespace(address=head.address)

        with showing(way, tmp_path) as server, looking(browser) as (context, _):
            try:
                page = context.new_page()
                page.goto(f"{server.url}#/metrics")
                expect(page.get_by_text("The dashboard of digits-1 is starting")).to_be_visible()
                picture(page, "dashboard-waiting")
            finally:
                up.set()
            expect(page.get_by_text("Ray's own page")).to_be_visible()
            assert page.url == f"{server.url}#/metrics"
