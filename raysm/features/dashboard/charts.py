"""Charts for the Metrics tab and the Overview of Ray's dashboard, which embed Grafana.

Ray's page asks two paths whether Grafana and Prometheus exist. It accepts a relative address for
Grafana, so the frames stay below the secret path. This behaviour may change with Ray's version:
``tests/features/dashboard/test_charts.py`` looks for it in the page of the installed Ray.
"""

import asyncio
import bisect
import functools
import html
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs

from raysm.core.client.job.experiment import Curve
from raysm.core.client.views.charts import Chart, check_plotting, time_charts
from raysm.core.client.views.server import Answer
from raysm.core.client.views.sparkline import thin
from raysm.core.protocol.events import Metric
from raysm.core.protocol.home import private_folder
from raysm.core.protocol.names import LABEL_HOST, natural
from raysm.core.protocol.store import put

if TYPE_CHECKING:
    from aiohttp import web


NODES = "nodes?view=summary"
NODE_COUNT = "nodes"

SPEEDS = (
    ("network", "networkSpeed", ("network_sent", "network_received")),
    ("diskIo", "diskIoSpeed", ("disk_read", "disk_written")),
)
"""Keys of all bytes and of bytes per second in Ray's answer, and the names of the metrics."""


def parse_samples(answer: Mapping[str, Any], time_s: float) -> list[Metric]:
    nodes = [
        node for node in answer["data"]["summary"] if node.get("raylet", {}).get("state") == "ALIVE"
    ]
    named = {_host(node): node for node in nodes}
    usage = [(host, name, value) for host, node in named.items() for name, value in _usage(node)]
    samples = [
        Metric(name=name, value=value, host=host, time_s=time_s) for host, name, value in usage
    ]
    return [*samples, Metric(name=NODE_COUNT, value=float(len(nodes)), time_s=time_s)]


def _host(node: Mapping[str, Any]) -> str:
    labels = node["raylet"].get("labels") or {}
    return str(
        labels.get(LABEL_HOST) or node.get("hostname") or node["raylet"].get("nodeId", "")[:8]
    )


def _usage(node: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    # psutil's first measurement of the load is always 0.
    if "cpu" in node and (node["cpu"] or _is_measured(node, "network", "networkSpeed")):
        yield "cpu_percent", float(node["cpu"])
    if node.get("mem"):
        total, _, percent, used = node["mem"][:4]
        yield "memory_percent", float(percent)
        yield "memory_bytes", float(used)
    gpus = [gpu for gpu in node.get("gpus") or () if gpu.get("utilizationGpu") is not None]
    if gpus:
        yield "gpu_percent", sum(gpu["utilizationGpu"] for gpu in gpus) / len(gpus)
        # The fullest GPU: a mean would hide one that is about to run out of memory.
        yield (
            "gpu_memory_percent",
            100.0 * max(gpu["memoryUsed"] / max(1, gpu["memoryTotal"]) for gpu in gpus),
        )
    for total, speed, names in SPEEDS:
        if _is_measured(node, total, speed):
            yield from (
                (f"{name}_bytes_per_s", float(value))
                for name, value in zip(names, node[speed], strict=False)
            )
    if node["raylet"].get("objectStoreUsedMemory") is not None:
        yield "object_store_bytes", float(node["raylet"]["objectStoreUsedMemory"])


def _is_measured(node: Mapping[str, Any], total: str, speed: str) -> bool:
    """Return whether a node's speed was measured.

    In the first half minute Ray divides all bytes since the machine was booted by the seconds since
    1970:
    https://github.com/ray-project/ray/blob/ray-2.60.0/python/ray/dashboard/modules/reporter/reporter_agent.py
    """
    speeds = node.get(speed)
    totals = node.get(total)
    now_s = node.get("now")
    if not speeds or not totals or not now_s:
        return bool(speeds)
    made_up = all(
        math.isclose(each, of_all / now_s) for each, of_all in zip(speeds, totals, strict=False)
    )
    return not made_up or not any(totals)


Points: TypeAlias = list[tuple[float, float]]

HOST = "raysm/charts"
BOARD = "rayDefaultDashboard"
HEALTH = ("api/grafana_health", "api/prometheus_health")

PRELOAD = ", ".join(f"<{path}>; rel=preload; as=fetch; crossorigin=anonymous" for path in HEALTH)
"""The page's Link header, which makes a browser request these paths first.

A browser opens six connections to a server, and a busy head keeps the page's other requests on them
for long. The browser uses the preloaded answer only if the mode is that of the page's own request,
``anonymous``.
"""

TITLES: Mapping[str, tuple[str, str]] = {
    "cpu_percent": ("CPU", "%"),
    "memory_percent": ("Memory", "%"),
    "gpu_percent": ("GPU", "%"),
    "gpu_memory_percent": ("GPU memory, the fullest", "%"),
    "network_received_bytes_per_s": ("Network, received", "B/s"),
    "network_sent_bytes_per_s": ("Network, sent", "B/s"),
    "disk_read_bytes_per_s": ("Disk, read", "B/s"),
    "disk_written_bytes_per_s": ("Disk, written", "B/s"),
    "object_store_bytes": ("Object store", "B"),
    NODE_COUNT: ("Nodes", ""),
}
"""Title and unit of the metrics that every cluster has, in the order of the page."""
WITHOUT_CHART = ("memory_bytes", "peak_memory_bytes")
UTILIZATION = {
    "cpu_percent": "CPU",
    "memory_percent": "memory",
    "gpu_percent": "GPU",
    "gpu_memory_percent": "GPU memory",
}

MAX_POINTS = 2_000
MAX_CURVES = 8
"""With more instances, a chart shows only the highest, the mean and the lowest value."""
BUCKETS = 240
RANGE = re.compile(r"now-(\d+)([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Timeline:
    """The values of each metric over time; those of a long job are thinned.

    Attributes:
        start_s: The start of the time axis, in seconds since the epoch: the first value, or earlier
            if set.
    """

    def __init__(self, metrics: Iterable[Metric] = ()) -> None:
        self.start_s = math.inf
        self._points: dict[str, dict[str, Points]] = {}
        for metric in metrics:
            self.add(metric)

    def add(self, metric: Metric) -> None:
        """Insert a value by its time: lines of the log arrive later than reports of Ray's nodes."""
        points = self._points.setdefault(metric.name, {}).setdefault(metric.host, [])
        self.start_s = min(self.start_s, metric.time_s)
        bisect.insort(points, (metric.time_s, metric.value))
        thin(points, MAX_POINTS)

    @property
    def names(self) -> list[str]:
        return list(self._points)

    def series(self, name: str, since_s: float = 0.0) -> dict[str, Points]:
        """Return a metric's points by instance, from ``since_s`` (seconds since the epoch) on."""
        by_host = self._points.get(name, {})
        chosen = {
            host: [point for point in points if point[0] >= since_s]
            for host, points in by_host.items()
        }
        return {host: points for host, points in chosen.items() if points}


def build_board(timeline: Timeline, since_s: float) -> list[Chart]:
    """Return all charts of the Metrics tab: the workload's metrics, then those of the instances."""
    names = [
        name
        for name in timeline.names
        if name not in (*TITLES, *WITHOUT_CHART) and _has_curve(timeline, name)
    ]
    charts = [_chart(timeline, name, name, "", since_s) for name in names]
    charts += [
        _chart(timeline, name, title, unit, since_s) for name, (title, unit) in TITLES.items()
    ]
    return [chart for chart in charts if chart.curves]


def build_overview(timeline: Timeline, panel: str, since_s: float) -> list[Chart]:
    if panel == "24":
        return [_chart(timeline, NODE_COUNT, "Node count", "", since_s)]
    if panel == "41":
        by_name = {shown: timeline.series(name, since_s) for name, shown in UTILIZATION.items()}
        curves = {
            shown: _aggregate(by_host, _mean) for shown, by_host in by_name.items() if by_host
        }
        return [
            Chart(title="Cluster utilization", unit="%", curves=_with_steps(curves), from_zero=True)
        ]
    return []


def _has_curve(timeline: Timeline, name: str) -> bool:
    # Values that each instance reports only once, at its end, are not a curve.
    return any(not host or len(points) > 1 for host, points in timeline.series(name).items())


def _chart(timeline: Timeline, name: str, title: str, unit: str, since_s: float) -> Chart:
    by_host = timeline.series(name, since_s)
    # The workload's own metrics have no host.
    curves = {
        host or title: points
        for host, points in sorted(by_host.items(), key=lambda item: natural(item[0]))
    }
    if len(curves) > MAX_CURVES:
        kinds: dict[str, Callable[[list[float]], float]] = {
            "highest": max,
            "mean": _mean,
            "lowest": min,
        }
        curves = {kind: _aggregate(by_host, combine) for kind, combine in kinds.items()}
    return Chart(title=title, unit=unit, curves=_with_steps(curves), from_zero=name in TITLES)


def _with_steps(curves: Mapping[str, Points]) -> dict[str, Curve]:
    return {
        name: [(None, time_s, value) for time_s, value in points] for name, points in curves.items()
    }


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _aggregate(by_host: Mapping[str, Points], combine: Callable[[list[float]], float]) -> Points:
    times = [time_s for points in by_host.values() for time_s, _ in points]
    # At least one second, because the head reports each instance at most once a second.
    start_s = min(times)
    width_s = max(1.0, (max(times) - start_s) / BUCKETS)
    buckets: dict[int, dict[str, list[float]]] = {}
    for host, points in by_host.items():
        for time_s, value in points:
            buckets.setdefault(int((time_s - start_s) / width_s), {}).setdefault(host, []).append(
                value
            )
    return [
        (start_s + (number + 0.5) * width_s, combine([_mean(values) for values in hosts.values()]))
        for number, hosts in sorted(buckets.items())
    ]


def parse_begin(text: str, now_s: float) -> float:
    """Return the begin of a time range, in seconds since the epoch.

    In Ray's page it is ``now-5m``, or milliseconds since the epoch; any other text means all times.
    """
    if relative := RANGE.fullmatch(text):
        return now_s - int(relative[1]) * SECONDS[relative[2]]
    # Longer numbers are not times in milliseconds, and int() of a megabyte of digits takes seconds.
    return int(text) / 1000 if text.isdecimal() and len(text) < 16 else 0.0


def charts_site(name: str, timeline: Timeline, cache: Path) -> Answer:
    """Return a handler that answers Ray's page in place of Grafana.

    ``cache`` is a folder for the chart library.
    """
    settings = {
        "grafanaHost": HOST,
        "grafanaOrgId": "1",
        "sessionName": name,
        "dashboardUids": {"default": BOARD},
    }
    settings |= {"dashboardDatasource": "raysm"}
    health = dict(zip(HEALTH, (settings, {}), strict=True))

    async def answer(request: "web.Request", path: str) -> "web.StreamResponse | None":
        from aiohttp import web

        if path in health:
            return web.json_response(
                {"result": True, "msg": "charts of raysm", "data": health[path]}
            )
        if request.method not in ("GET", "HEAD") or not path.startswith(f"{HOST}/"):
            return None
        if path == f"{HOST}/vega.js":
            script = await asyncio.to_thread(_library, cache)
            headers = {"Cache-Control": "private, max-age=86400"}
            return web.Response(text=script, content_type="text/javascript", headers=headers)
        query = {
            key: values[-1] for key, values in parse_qs(request.rel_url.raw_query_string).items()
        }
        now_s = time.time()
        begin_s = parse_begin(query.get("from", ""), now_s)
        is_solo = path.startswith(f"{HOST}/d-solo/{BOARD}")
        if not is_solo and not path.startswith(f"{HOST}/d/{BOARD}"):
            return None
        if "data" in query:
            if is_solo:
                charts = build_overview(timeline, query.get("panelId", ""), begin_s)
            else:
                charts = build_board(timeline, begin_s)
            width = _parse_number(query.get("width", ""), 600)
            columns = _parse_number(query.get("columns", ""), 1)
            # In a thread, because importing Altair takes two seconds.
            text = await asyncio.to_thread(
                _spec, charts, min(timeline.start_s, now_s), width, columns, is_solo=is_solo
            )
            return web.Response(text=text, content_type="application/json")
        above = "../" * path.removeprefix(f"{HOST}/").count("/")
        page = _page(name, query.get("theme", "light"), f"{above}vega.js", is_solo=is_solo)
        return web.Response(text=page, content_type="text/html")

    return answer


def _parse_number(text: str, default: int) -> int:
    return min(int(text), 4000) if text.isdecimal() and len(text) < 6 else default


def _spec(
    charts: Sequence[Chart], start_s: float, width: int, columns: int, *, is_solo: bool
) -> str:
    # Altair validates every point, which is slow, so the points are inserted afterwards.
    shapes = tuple(
        (chart.title, chart.unit, chart.from_zero, tuple(chart.curves)) for chart in charts
    )
    spec = dict(json.loads(_empty_spec(shapes, start_s, width, 240 if is_solo else 160, columns)))
    for chart, one in zip(charts, spec.get("concat", [spec]), strict=False):
        one["data"] = {"name": one["data"]["name"], "values": chart.rows(start_s)}
    return json.dumps(spec)


@functools.lru_cache(maxsize=16)
def _empty_spec(
    shapes: tuple[Any, ...], start_s: float, width: int, height: int, columns: int
) -> str:
    check_plotting()
    charts = [
        Chart(title=title, unit=unit, from_zero=zero, curves={name: [] for name in names})
        for title, unit, zero, names in shapes
    ]
    return str(
        time_charts(charts, start_s, width=width, height=height, columns=columns).to_json(
            indent=None
        )
    )


def _library(cache: Path) -> str:
    check_plotting()
    import vl_convert

    # Cached, because bundling takes four seconds.
    file = cache / f"vega-{vl_convert.get_vega_version()}-{vl_convert.get_vega_embed_version()}.js"
    if not file.is_file():
        private_folder(cache.parent, cache.name)
        put(file, vl_convert.javascript_bundle())  # type: ignore[call-arg]
    return file.read_text()


def _page(title: str, theme: str, library: str, *, is_solo: bool) -> str:
    background, text = ("#1c2025", "#dcdcdc") if theme == "dark" else ("#fff", "#222")
    links = ""
    if not is_solo:
        links = "".join(f'<a href="#" data-from="{begin}">{shown}</a>' for shown, begin in RANGES)
    try:
        check_plotting()
        note = "No values yet: the first come within seconds."
    except Exception as error:
        note = str(error)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title>"
        f"<style>{STYLE % {'background': background, 'text': text}}</style></head><body>"
        f"<nav>{links}</nav><main class={'solo' if is_solo else 'board'}>"
        f"<p>{html.escape(note)}</p></main>"
        f'<script src="{library}"></script><script>{SCRIPT}</script>'
        "</body></html>"
    )


RANGES = (("5 min", "now-5m"), ("30 min", "now-30m"), ("3 h", "now-3h"), ("all", "0"))

STYLE = """
body { margin: 0; background: %(background)s; color: %(text)s; font: 13px system-ui, sans-serif; }
main { padding: 12px; }
nav { padding: 0 12px; } nav:has(a) { padding-top: 12px; }
nav a { color: inherit; margin-right: 12px; text-decoration: none; opacity: 0.65; }
nav a.now { font-weight: 600; opacity: 1; }
p { opacity: 0.7; }
"""

# The chosen range stays in this frame's own address, so several open pages do not disturb each
# other. Vega's interpreter of expressions (ast) needs no eval, which the page's policy forbids.
SCRIPT = """
const main = document.querySelector("main"), links = [...document.querySelectorAll("nav a")];
const query = new URLSearchParams(location.search);
let shown = "", view = null;
const parts = spec => spec.concat || [spec];
async function draw(spec) {
  const shape = JSON.stringify(spec, (key, value) => key === "values" ? undefined : value);
  if (shape !== shown) {
    if (view) view.finalize();
    view = (await vegaEmbed(main, spec, {actions: false, ast: true, renderer: "svg"})).view;
    shown = shape;
    return;
  }
  parts(spec).forEach(part => view.data(part.data.name, part.data.values));
  await view.runAsync();
}
let drawing = Promise.resolve();
function show() {
  // Not the width of main, which Vega-Embed makes as wide as its content.
  const room = document.documentElement.clientWidth - 24, columns = room > 900 ? 2 : 1;
  const asked = new URLSearchParams(query);
  asked.set("data", "1");
  asked.set("columns", columns);
  asked.set("width", Math.max(200, Math.floor((room - 16) / columns) - 70));
  drawing = drawing.then(async () => {
    const answer = await fetch("?" + asked);
    if (!answer.ok) return;
    const spec = await answer.json();
    if (parts(spec).some(part => part.data.values.length)) await draw(spec);
  }).catch(error => console.warn(error));
}
const mark = () =>
  links.forEach(link => link.classList.toggle("now", link.dataset.from === query.get("from")));
links.forEach(link => link.addEventListener("click", event => {
  event.preventDefault();
  query.set("from", link.dataset.from);
  mark();
  show();
}));
mark();
show();
setInterval(show, 5000);
addEventListener("resize", show);
"""
