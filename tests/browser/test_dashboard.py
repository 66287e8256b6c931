"""Ray's dashboard of one job in a real browser: alone, in JupyterLab, and when the job ends."""

import re
from pathlib import Path

import pytest

from raysm.core.client.job.handle import token_of
from tests.support.browsers import looking
from tests.support.dashboard_head import Answer, serving_head
from tests.support.jobs import FORMING_S

expect = pytest.importorskip("playwright.sync_api").expect
pytest.importorskip("nbformat")

pytestmark = pytest.mark.browser

CHARTS = "iframe[title='Core Dashboard']"


def go(page, dashboard, tab, query=""):
    # Another query is another page; without one the browser would only change the part behind the
    # #.
    page.goto(f"{dashboard.url}?{query or tab}#/{tab}")


def test_the_overview_has_content_and_asks_for_no_token(page, dashboard, picture):
    go(page, dashboard, "overview")
    expect(page.get_by_text("Recent jobs")).to_be_visible()
    expect(page.get_by_text("raysm.instance.work.driver").first).to_be_visible()
    for title in ("Cluster Utilization", "Node Count"):
        expect(page.frame_locator(f"iframe[title='{title}']").locator("svg")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_text("Set up Prometheus and Grafana")).to_have_count(0)
    picture(page, "dashboard-overview")
    # Ray's own protection of its API against pages.
    status = page.evaluate(
        "() => fetch('api/jobs/', {method: 'POST', body: '{}'}).then(answer => answer.status)"
    )
    assert status == 405
    for tab, text in (("cluster", "ALIVE x 2"), ("actors", "Counter"), ("logs", "Node ID")):
        go(page, dashboard, tab)
        expect(page.get_by_text(text).first).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_metrics_tab_has_charts_on_one_time_axis_with_values_on_hover(
    page, dashboard, picture, theme
):
    go(page, dashboard, "metrics", f"theme={theme}")
    charts = page.frame_locator(CHARTS)
    for title in ("loss", "CPU", "Memory", "Network, received", "Disk, written", "Nodes"):
        expect(charts.get_by_text(title, exact=True).first).to_be_visible()
    expect(charts.get_by_text("algo-2").first).to_be_visible()
    point = charts.locator("g.mark-symbol path").first
    expect(point).to_be_attached()
    picture(page, f"dashboard-metrics{'' if theme == 'light' else '-dark'}", later_s=45)
    point.hover(force=True)
    expect(charts.locator("#vg-tooltip-element")).to_contain_text("seconds since the start")
    charts.get_by_text("all", exact=True).click()
    expect(charts.locator("nav a.now")).to_have_text("all")
    color = "rgb(255, 255, 255)" if theme == "light" else "rgb(28, 32, 37)"
    expect(charts.locator("body")).to_have_css("background-color", color)


def test_every_request_stays_below_the_secret_path_and_the_token_is_in_no_page_cookie_url_storage_or_process(
    looked, dashboard, job
):
    context, seen = looked
    token, prefix = token_of(job), dashboard.url.rstrip("/").rpartition("/")[2]
    page = context.new_page()
    go(page, dashboard, "overview")
    # Until its dashboard answers, a page reloads itself.
    expect(page.get_by_text("Recent jobs")).to_be_visible()
    for tab in ("overview", "jobs", "cluster", "actors", "metrics", "logs"):
        go(page, dashboard, tab)
        page.wait_for_load_state("networkidle")
        assert token not in page.content()
        for frame in page.frames:
            # A chart's frame may be on its way still: the network is idle between two slow answers,
            # too.
            frame.wait_for_load_state()
            assert token not in frame.content()
    assert len(seen.urls) > 20
    assert [url for url in seen.urls if not url.startswith((dashboard.url, "data:"))] == []
    assert token not in "".join(seen.urls)
    assert context.cookies() == []
    assert token not in str(context.storage_state())
    arguments = [
        path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()
    ]
    assert not any(token.encode() in line or prefix.encode() in line for line in arguments)


def test_another_page_gets_nothing_even_where_it_knows_the_address(browser, dashboard):
    with serving_head() as other, looking(browser) as (context, _):
        other.answer_to = lambda asked: Answer(
            b"<title>another page</title>", 200, (("Content-Type", "text/html"),)
        )
        page = context.new_page()
        page.goto(f"http://{other.address}/")
        read = page.evaluate(
            "url => fetch(url).then(answer => answer.text(), () => 'nothing')",
            f"{dashboard.url}api/jobs/",
        )
        # What is sent without being read: Ray would take it, if the proxy passed it on as a
        # program's.
        sent = """url => fetch(url, {method: "POST", mode: "no-cors", body: '{"entrypoint": "touch /tmp/x"}'})
                         .then(answer => answer.type, () => "nothing")"""
        page.evaluate(sent, f"{dashboard.url}api/jobs/")
        own = context.new_page()
        own.goto(f"{dashboard.url}api/jobs/")
        assert "touch /tmp/x" not in own.content()
    assert read == "nothing"


def test_a_notebook_in_jupyterlab_shows_it_in_a_frame(browser, lab, job):
    open_it = f"import raysm\nshown = raysm.attach({job.name!r}).dashboard()\nshown"
    path = lab.write("look", [open_it, "shown.close()"])
    with looking(browser) as (context, seen):
        page = context.new_page()
        notebook = lab.open(page, path).begin()
        notebook.run()
        frame = page.frame_locator(".jp-OutputArea iframe")
        expect(frame.get_by_text("Recent jobs")).to_be_visible()
        source = page.locator(".jp-OutputArea iframe").element_handle().content_frame().url
        assert re.search(r"/proxy/\d+/[\w-]{32}/", source)
        notebook.run()
        notebook.ran(1)
        saved = notebook.save("<iframe")
        # As a kernel that has ended.
        lab.open(page, path)
        expect(frame.get_by_text("Run the cell again to open it.")).to_be_visible()
        # JupyterLab's own page may report what it lacks; what counts is that nothing was asked of
        # anybody else.
        seen.errors.clear()
    assert token_of(job) not in saved


@pytest.fixture
def other(clusters):
    job = clusters.start(1)
    with job.dashboard(timeout=FORMING_S) as dashboard:
        yield dashboard
    job.stop()


def test_two_live_clusters_at_once_are_each_shown_at_their_own_address(other, dashboard, looked):
    # In this order: a page whose dashboard ends before it says that as an error.
    context, _ = looked
    shown = [(context.new_page(), site, count) for site, count in ((dashboard, 2), (other, 1))]
    for page, site, _ in shown:
        go(page, site, "cluster")
    for page, site, count in shown:
        # A page that waits for its dashboard reloads itself.
        expect(page.get_by_text(f"ALIVE x {count}").first).to_be_visible()
        # Ray's own cookie knows no ports: after a reload both would be the cluster that was looked
        # at last.
        page.reload()
        expect(page.get_by_text(f"ALIVE x {count}").first).to_be_visible()
        assert page.url.startswith(site.url)
    assert context.cookies() == []
    assert dashboard.url != other.url
