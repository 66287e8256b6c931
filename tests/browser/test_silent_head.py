"""Ray's page over a head that is too busy to answer: raysm's own answers do not wait for it."""

import mimetypes
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.support.browsers import looking
from tests.support.dashboard_head import Answer, serving_head, showing, told, way_to

expect = pytest.importorskip("playwright.sync_api").expect
ray = pytest.importorskip("ray")

pytestmark = pytest.mark.browser

BUILD = Path(ray.__file__).parent / "dashboard" / "client" / "build"


@pytest.fixture
def server(tmp_path):
    """A head that serves the page of this machine's Ray, and answers nothing that the page asks."""
    over = threading.Event()
    with serving_head() as head:

        def answer_to(asked):
            path = asked.path.lstrip("/")
            file = BUILD / (path or "index.html")
            if file.is_file():
                kind = mimetypes.guess_type(file)[0] or "application/octet-stream"
                return Answer(file.read_bytes(), 200, (("Content-Type", kind),))
            # Longer than the test waits: a browser keeps its six connections to one address for that long.
            over.wait()
            return told({})

        head.answer_to = answer_to
        with showing(partial(way_to, head), tmp_path) as server:
            yield server
            over.set()


def test_the_page_knows_of_its_charts_though_the_head_is_silent(browser, server):
    with looking(browser) as (context, _seen):
        page = context.new_page()
        page.goto(f"{server.url}#/overview")
        # The page shows them, or an alert, once it has its answers; their content waits for a free connection.
        for title in ("Cluster Utilization", "Node Count"):
            expect(page.locator(f"iframe[title='{title}']")).to_have_count(1)
        expect(page.get_by_text("Set up Prometheus and Grafana")).to_have_count(0)
