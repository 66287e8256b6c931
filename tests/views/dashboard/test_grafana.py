"""What Ray's page asks Grafana for: the page that is installed relies on what is answered here."""

import asyncio
from types import SimpleNamespace

import pytest

from raysm.contract.events import Metric
from raysm.views.dashboard.assets import installed_build
from raysm.views.dashboard.grafana import RELIED_ON, ChartsPart, begin_of, health_of
from raysm.views.dashboard.parts import PageRequest
from raysm.views.dashboard.timeline import Timeline

NOW_S = 10_000.0

VALUES = Timeline(
    [
        Metric(name="loss", value=2.0, time_s=NOW_S - 3600),
        Metric(name="cpu_percent", host="algo-1", value=50.0, time_s=NOW_S - 10),
        Metric(name="nodes", value=2.0, time_s=NOW_S - 10),
    ]
)


def answer(path, query="", method="GET", timeline=VALUES):
    part = ChartsPart("digits-1", timeline, clock=lambda: NOW_S)
    asked = PageRequest(path=path, query=query, request=SimpleNamespace(method=method))
    return asyncio.run(part.answer(asked))


@pytest.fixture(scope="module")
def program():
    """The program of the page of the Ray that is installed."""
    (path,) = (installed_build() / "static" / "js").glob("main.*.js")
    return path.read_text()


@pytest.mark.parametrize("text", RELIED_ON)
def test_rays_page_still_asks_as_the_charts_rely_on(program, text):
    assert text in program, "Ray's page has changed: see raysm/views/dashboard/grafana.py"


@pytest.mark.parametrize("name", ["grafanaHost", "grafanaOrgId", "sessionName", "dashboardUids", "dashboardDatasource"])
def test_everything_that_the_page_reads_of_grafana_is_told(name):
    assert name in RELIED_ON
    assert name in health_of("digits-1")["api/grafana_health"]["data"]


def test_grafana_and_prometheus_are_said_to_be_there():
    for path in ("api/grafana_health", "api/prometheus_health"):
        assert b'"result": true' in answer(path).body


def test_the_address_of_the_charts_is_relative_to_the_page():
    host = health_of("digits-1")["api/grafana_health"]["data"]["grafanaHost"]
    assert "://" not in host
    assert not host.startswith("/")


@pytest.mark.parametrize(
    ("text", "begin_s"),
    [
        ("now-5m", NOW_S - 300),
        ("now-1h", NOW_S - 3600),
        ("now-2d", NOW_S - 172800),
        ("9000000", 9000.0),
        ("0", 0.0),
        ("", 0.0),
        ("now-5parsecs", 0.0),
        ("9" * 400, 0.0),
    ],
)
def test_a_range_is_read_as_grafana_writes_it(text, begin_s):
    assert begin_of(text, NOW_S) == begin_s


def test_the_metrics_tab_gets_every_chart():
    body = answer("raysm/charts/d/rayDefaultDashboard/", "from=now-5m&to=now&theme=light&kiosk=1").text
    assert [title in body for title in ("<figcaption>loss<", "<figcaption>CPU<", "<figcaption>Nodes<")] == [True] * 3


@pytest.mark.parametrize(("panel", "title"), [("41", "Cluster utilization"), ("24", "Node count")])
def test_the_overview_gets_its_two_panels(panel, title):
    body = answer("raysm/charts/d-solo/rayDefaultDashboard/default-dashboard", f"panelId={panel}&from=now-1h").text
    assert f"<figcaption>{title}<" in body


def test_a_panel_that_there_is_not_says_that_it_has_no_values():
    assert "No values yet" in answer("raysm/charts/d-solo/rayDefaultDashboard/default-dashboard", "panelId=7").text
    assert "No values yet" in answer("raysm/charts/d-solo/undefined", "panelId=41").text


def test_what_the_page_asks_for_again_is_its_inner_part_alone():
    whole = answer("raysm/charts/d/rayDefaultDashboard/").text
    part = answer("raysm/charts/d/rayDefaultDashboard/", "part=1").text
    assert "<!doctype" in whole
    assert "<!doctype" not in part
    assert part in whole


@pytest.mark.parametrize("path", ["api/jobs/", "", "raysm/other", "d/rayDefaultDashboard/"])
def test_everything_else_is_anothers_part(path):
    assert answer(path) is None
    assert answer("raysm/charts/d/rayDefaultDashboard/", method="POST") is None
