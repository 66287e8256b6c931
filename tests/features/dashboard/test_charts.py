"""The charts that Ray's page shows in place of Grafana's."""

import asyncio
import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from raysm.core.protocol.events import Metric
from raysm.features.dashboard.charts import (
    MAX_CURVES,
    Timeline,
    build_board,
    charts_site,
    parse_samples,
)
from tests.support.dashboard_head import NODE, NODES


def timeline(*values):
    return Timeline(
        Metric(name=name, value=value, host=host, time_s=time_s)
        for name, host, time_s, value in values
    )


VALUES = timeline(
    ("loss", "", 6_400, 2.0), ("cpu_percent", "algo-1", 9_990, 50.0), ("nodes", "", 9_990, 2.0)
)


def answer(path, query="", method="GET", cache=Path("/nonexistent")):
    request = SimpleNamespace(method=method, rel_url=SimpleNamespace(raw_query_string=query))
    return asyncio.run(charts_site("digits-1", VALUES, cache)(request, path))


def curves(chart):
    return {name: [value for _, _, value in curve] for name, curve in chart.curves.items()}


def titles(told):
    return [part["title"] for part in told.get("concat", [told])]


@pytest.fixture(scope="module")
def program():
    """The program of the page of the Ray that is installed."""
    ray = Path(importlib.util.find_spec("ray").origin).parent
    (path,) = (ray / "dashboard" / "client" / "build" / "static" / "js").glob("main.*.js")
    return path.read_text()


RELIED_ON = (
    "api/grafana_health",
    "api/prometheus_health",
    "grafanaHost",
    "grafanaOrgId",
    "sessionName",
    "dashboardUids",
    "dashboardDatasource",
    "/default-dashboard?orgId=",
    "panelId=41",
    "panelId=24",
    "/d-solo/",
    "/d/",
    "nodes?view=summary",
    "networkSpeed",
)


@pytest.mark.parametrize("text", RELIED_ON)
def test_rays_page_still_asks_as_the_charts_rely_on(program, text):
    assert text in program, "Ray's page has changed: see raysm/features/dashboard/charts.py"


def test_grafana_and_prometheus_are_said_to_exist_at_a_relative_address():
    told = json.loads(answer("api/grafana_health").body)
    assert told["result"]
    assert set(told["data"]) <= set(RELIED_ON)
    assert "://" not in told["data"]["grafanaHost"]
    assert not told["data"]["grafanaHost"].startswith("/")
    assert json.loads(answer("api/prometheus_health").body)["result"]


def test_the_metrics_tab_has_all_charts_on_one_axis():
    told = json.loads(answer("raysm/charts/d/rayDefaultDashboard/", "from=0&data=1").body)
    assert titles(told) == ["loss", "CPU", "Nodes"]
    assert told["resolve"]["scale"]["x"] == "shared"
    assert [part["data"]["values"][0]["t"] for part in told["concat"]] == [0, 3590, 3590]
    page = answer("raysm/charts/d/rayDefaultDashboard/", "theme=dark")
    assert 'src="../../vega.js"' in page.text


@pytest.mark.parametrize(
    ("panel", "title"), [("41", "Cluster utilization"), ("24", "Node count"), ("7", "")]
)
def test_the_overview_has_its_two_charts(panel, title):
    path = "raysm/charts/d-solo/rayDefaultDashboard/default-dashboard"
    told = json.loads(answer(path, f"panelId={panel}&from=0&data=1").body)
    assert titles(told) == [title]


def test_the_workloads_own_metrics_come_first_under_their_names():
    loss, cpu = build_board(timeline(("cpu_percent", "algo-1", 1, 5.0), ("loss", "", 1, 3.0)), 0.0)
    assert (loss.title, loss.unit, loss.from_zero, curves(loss)) == (
        "loss",
        "",
        False,
        {"loss": [3.0]},
    )
    assert (cpu.title, cpu.unit, cpu.from_zero, curves(cpu)) == (
        "CPU",
        "%",
        True,
        {"algo-1": [5.0]},
    )


def test_instances_are_ordered_by_number_and_many_are_summed_up():
    few = [("cpu_percent", f"algo-{number}", 1, 5.0) for number in (10, 2, 1)]
    assert list(build_board(timeline(*few), 0.0)[0].curves) == ["algo-1", "algo-2", "algo-10"]
    count = 3 * MAX_CURVES
    many = [
        ("cpu_percent", f"algo-{number}", time_s, float(number))
        for number in range(count)
        for time_s in (0, 500)
    ]
    (chart,) = build_board(timeline(*many), 0.0)
    mean = (count - 1) / 2
    assert curves(chart) == {"highest": [count - 1] * 2, "mean": [mean] * 2, "lowest": [0, 0]}


def listed(*nodes):
    return {"data": {"summary": list(nodes)}}


def values(answer):
    return {(sample.host, sample.name): sample.value for sample in parse_samples(answer, 100.0)}


def test_a_node_tells_its_cpu_memory_network_disk_and_store():
    assert values(NODES) == {
        ("algo-1", "cpu_percent"): 37.5,
        ("algo-1", "memory_percent"): 75.0,
        ("algo-1", "memory_bytes"): 6000.0,
        ("algo-1", "network_sent_bytes_per_s"): 10.0,
        ("algo-1", "network_received_bytes_per_s"): 20.0,
        ("algo-1", "disk_read_bytes_per_s"): 30.0,
        ("algo-1", "disk_written_bytes_per_s"): 40.0,
        ("algo-1", "object_store_bytes"): 7.0,
        ("", "nodes"): 1.0,
    }


def test_a_speed_that_is_all_bytes_by_the_seconds_since_1970_is_none_yet():
    made_up = {"now": 1.8e9, "network": [3.6e9, 9.0e9], "networkSpeed": [2.0, 5.0]}
    told = values(listed({**NODE, **made_up}))
    assert not any(name.startswith("network") for _, name in told)
    assert told["algo-1", "disk_read_bytes_per_s"] == 30.0
    assert ("algo-1", "cpu_percent") not in values(listed({**NODE, **made_up, "cpu": 0.0}))
    told = values(listed({**NODE, **made_up, "networkSpeed": [2.0, 7.5], "cpu": 0.0}))
    assert told["algo-1", "network_received_bytes_per_s"] == 7.5
    assert told["algo-1", "cpu_percent"] == 0.0
    # A machine that has neither read nor written.
    told = values(listed({**NODE, "now": 1.8e9, "diskIo": [0, 0], "diskIoSpeed": [0.0, 0.0]}))
    assert told["algo-1", "disk_read_bytes_per_s"] == 0.0


def test_of_several_gpus_the_mean_work_and_the_fullest_memory_count():
    gpus = [
        {"utilizationGpu": 20, "memoryUsed": 1, "memoryTotal": 10},
        {"utilizationGpu": 40, "memoryUsed": 9, "memoryTotal": 10},
        {"utilizationGpu": None, "memoryUsed": 0, "memoryTotal": 10},
    ]
    told = values(listed({**NODE, "gpus": gpus}))
    assert told["algo-1", "gpu_percent"] == 30.0
    assert told["algo-1", "gpu_memory_percent"] == 90.0
