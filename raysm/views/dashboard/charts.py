"""The charts in the Metrics tab and the Overview of Ray's page, which expects Grafana's pages there in frames.

The page asks two addresses whether Grafana and Prometheus exist, and takes a relative address for Grafana, so the
frames stay below the secret path. All of this is Ray's own and may change with its version: a test looks for the texts
of ``RELIED_ON`` in the page of the installed Ray.
"""

import asyncio
import bisect
import html
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs

from raysm.contract.events import Metric
from raysm.contract.names import natural
from raysm.contract.store import put
from raysm.views.dashboard.node_usage import NODE_COUNT
from raysm.views.dashboard.server import Answer
from raysm.views.plots import check_plotting

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["PRELOAD", "RELIED_ON", "Timeline", "board", "charts_site", "overview", "parse_begin"]

Points: TypeAlias = list[tuple[float, float]]

HOST = "raysm/charts"
BOARD = "rayDefaultDashboard"
HEALTH = ("api/grafana_health", "api/prometheus_health")

PRELOAD = ", ".join(f"<{path}>; rel=preload; as=fetch; crossorigin=anonymous" for path in HEALTH)
"""The page's Link header, which makes a browser ask these paths first.

A browser opens six connections to an address, and the page's other requests keep them for as long as a busy head takes
to answer. ``anonymous`` is how the page itself asks: a browser would not use the answer otherwise.
"""

RELIED_ON = (
    *HEALTH,
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
"""Title and unit of what every cluster has, in the order of the page."""
WITHOUT_CHART = ("memory_bytes", "peak_memory_bytes")
UTILIZATION = {
    "cpu_percent": "CPU",
    "memory_percent": "memory",
    "gpu_percent": "GPU",
    "gpu_memory_percent": "GPU memory",
}

MAX_POINTS = 2_000
MAX_CURVES = 8
"""For more instances a chart has the highest, the mean and the lowest value."""
BUCKETS = 240
RANGE = re.compile(r"now-(\d+)([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Timeline:
    """The values of each metric by time; of a long job the older ones are further apart."""

    def __init__(self, metrics: Iterable[Metric] = ()) -> None:
        """Begin with some metrics."""
        self._points: dict[str, dict[str, Points]] = {}
        for metric in metrics:
            self.add(metric)

    def add(self, metric: Metric) -> None:
        """Add a value in the order of time: lines of the log arrive later than what Ray's nodes report."""
        points = self._points.setdefault(metric.name, {}).setdefault(metric.host, [])
        bisect.insort(points, (metric.time_s, metric.value))
        if len(points) > MAX_POINTS:
            points[: MAX_POINTS // 2] = points[: MAX_POINTS // 2 : 2]

    @property
    def names(self) -> list[str]:
        """All metrics in the order in which they first came."""
        return list(self._points)

    def series(self, name: str, since_s: float = 0.0) -> dict[str, Points]:
        """Return the points of a metric by instance, from ``since_s`` on (seconds since the epoch)."""
        chosen = {host: [point for point in points if point[0] >= since_s] for host, points in self._of(name)}
        return {host: points for host, points in chosen.items() if points}

    def _of(self, name: str) -> Iterable[tuple[str, Points]]:
        return self._points.get(name, {}).items()


def board(timeline: Timeline, since_s: float) -> list[dict[str, Any]]:
    """Return all charts of the Metrics tab: the workload's own metrics, then those of the instances."""
    names = [name for name in timeline.names if name not in (*TITLES, *WITHOUT_CHART) and _has_curve(timeline, name)]
    charts = [_chart(timeline, name, name, "", since_s) for name in names]
    charts += [_chart(timeline, name, title, unit, since_s) for name, (title, unit) in TITLES.items()]
    return [chart for chart in charts if chart["points"]]


def overview(timeline: Timeline, panel: str, since_s: float) -> list[dict[str, Any]]:
    """Return a chart of the Overview, by the number of its panel in Ray's Grafana board."""
    if panel == "24":
        return [_chart(timeline, NODE_COUNT, "Node count", "", since_s)]
    if panel == "41":
        by_name = {shown: timeline.series(name, since_s) for name, shown in UTILIZATION.items()}
        curves = {shown: _aggregate(by_host, _mean) for shown, by_host in by_name.items() if by_host}
        return [_as_chart("Cluster utilization", "%", curves, from_zero=True)]
    return []


def _has_curve(timeline: Timeline, name: str) -> bool:
    # What each instance reports once, at its end, is no curve.
    return any(not host or len(points) > 1 for host, points in timeline.series(name).items())


def _chart(timeline: Timeline, name: str, title: str, unit: str, since_s: float) -> dict[str, Any]:
    by_host = timeline.series(name, since_s)
    # The workload's own metrics have no host.
    curves = {host or title: points for host, points in sorted(by_host.items(), key=lambda item: natural(item[0]))}
    if len(curves) > MAX_CURVES:
        curves = {
            "highest": _aggregate(by_host, max),
            "mean": _aggregate(by_host, _mean),
            "lowest": _aggregate(by_host, min),
        }
    return _as_chart(title, unit, curves, from_zero=name in TITLES)


def _as_chart(title: str, unit: str, curves: Mapping[str, Points], *, from_zero: bool) -> dict[str, Any]:
    # JSON has no NaN: a diverged loss is a gap.
    points = [
        {"t": round(time_s * 1000), "v": value if math.isfinite(value) else None, "name": name}
        for name, curve in curves.items()
        for time_s, value in curve
    ]
    return {"title": title, "unit": unit, "zero": from_zero, "names": list(curves), "points": points}


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _aggregate(by_host: Mapping[str, Points], combine: Callable[[list[float]], float]) -> Points:
    """Return one curve of many hosts: in each of ``BUCKETS`` stretches of time, ``combine`` of the hosts' means."""
    times = [time_s for points in by_host.values() for time_s, _ in points]
    # At least one second: the head reports each instance no more often.
    begin, width = min(times), max(1.0, (max(times) - min(times)) / BUCKETS)
    buckets: dict[int, dict[str, list[float]]] = {}
    for host, points in by_host.items():
        for time_s, value in points:
            buckets.setdefault(int((time_s - begin) / width), {}).setdefault(host, []).append(value)
    return [
        (begin + (number + 0.5) * width, combine([_mean(values) for values in hosts.values()]))
        for number, hosts in sorted(buckets.items())
    ]


def parse_begin(text: str, now_s: float) -> float:
    """Return where a range begins, in seconds since the epoch.

    Args:
        text: As Ray's page writes it: ``now-5m``, or milliseconds since the epoch; anything else means everything.
        now_s: The time now.
    """
    if relative := RANGE.fullmatch(text):
        return now_s - int(relative[1]) * SECONDS[relative[2]]
    # More digits are no time in milliseconds, and int() of a megabyte of digits takes seconds.
    return int(text) / 1000 if text.isdecimal() and len(text) < 16 else 0.0


def charts_site(name: str, timeline: Timeline, cache: Path) -> Answer:
    """Return what answers Ray's page in place of Grafana.

    Args:
        name: The job's.
        timeline: Its values; others add to it in the same event loop.
        cache: A folder for the chart library.
    """
    settings = {
        "grafanaHost": HOST,
        "grafanaOrgId": "1",
        "sessionName": name,
        "dashboardUids": {"default": BOARD},
        "dashboardDatasource": "raysm",
    }
    health = dict(zip(HEALTH, (settings, {}), strict=True))

    async def answer(request: "web.Request", path: str) -> "web.StreamResponse | None":
        from aiohttp import web

        if path in health:
            return web.json_response({"result": True, "msg": "charts of raysm", "data": health[path]})
        if request.method not in ("GET", "HEAD") or not path.startswith(f"{HOST}/"):
            return None
        if path == f"{HOST}/vega.js":
            script = await asyncio.to_thread(_library, cache)
            headers = {"Cache-Control": "private, max-age=86400"}
            return web.Response(text=script, content_type="text/javascript", headers=headers)
        query = {key: values[-1] for key, values in parse_qs(request.rel_url.raw_query_string).items()}
        now_s = time.time()
        begin_s, is_solo = parse_begin(query.get("from", ""), now_s), path.startswith(f"{HOST}/d-solo/{BOARD}")
        if not is_solo and not path.startswith(f"{HOST}/d/{BOARD}"):
            return None
        if "data" in query:
            charts = overview(timeline, query.get("panelId", ""), begin_s) if is_solo else board(timeline, begin_s)
            first_ms = min((point["t"] for chart in charts for point in chart["points"]), default=now_s * 1000)
            # One axis for all charts: a loss and the CPU can be compared.
            return web.json_response({"begin": max(first_ms, begin_s * 1000), "end": now_s * 1000, "charts": charts})
        above = "../" * path.removeprefix(f"{HOST}/").count("/")
        page = _page(name, query.get("theme", "light"), f"{above}vega.js", is_solo=is_solo)
        return web.Response(text=page, content_type="text/html")

    return answer


def _library(cache: Path) -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    check_plotting()
    import vl_convert

    # Bundling takes four seconds.
    file = cache / f"vega-{vl_convert.get_vega_version()}-{vl_convert.get_vega_embed_version()}.js"
    if not file.is_file():
        put(file, vl_convert.javascript_bundle())  # type: ignore[call-arg]
    return file.read_text()


def _page(title: str, theme: str, library: str, *, is_solo: bool) -> str:
    background, text, line = ("#1c2025", "#dcdcdc", "#3a3f46") if theme == "dark" else ("#fff", "#222", "#ddd")
    links = "" if is_solo else "".join(f'<a href="#" data-from="{begin}">{shown}</a>' for shown, begin in RANGES)
    # The height of the frames in Ray's Overview.
    settings = {"height": 240 if is_solo else 190, "text": text, "line": line, "solo": is_solo}
    try:
        check_plotting()
        note = "No values yet: the first come within seconds."
    except Exception as error:
        note = str(error)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE % {'background': background, 'text': text, 'line': line}}</style></head><body>"
        f"<nav>{links}</nav><main class={'solo' if is_solo else 'board'}><p>{html.escape(note)}</p></main>"
        f'<script src="{library}"></script><script>const settings = {json.dumps(settings)};{SCRIPT}</script>'
        "</body></html>"
    )


RANGES = (("5 min", "now-5m"), ("30 min", "now-30m"), ("3 h", "now-3h"), ("all", "0"))

STYLE = """
body { margin: 0; background: %(background)s; color: %(text)s; font: 13px system-ui, sans-serif; }
main { display: grid; gap: 12px; padding: 12px; grid-template-columns: repeat(auto-fill, minmax(420px, 1fr)); }
main.solo { display: block; padding: 8px 16px; }
figure { margin: 0; padding: 8px; border: 1px solid %(line)s; border-radius: 4px; }
.solo figure { border: 0; padding: 0; }
figcaption { font-weight: 500; margin-bottom: 4px; }
figure div { width: 100%%; }
nav { padding: 0 12px; } nav:has(a) { padding-top: 12px; }
nav a { color: inherit; margin-right: 12px; text-decoration: none; opacity: 0.65; }
nav a.now { font-weight: 600; opacity: 1; }
p { opacity: 0.7; }
"""

# The chosen range stays in this frame's own address, so several open pages do not disturb each other. Vega's
# interpreter of expressions (ast) needs no eval, which the page's policy forbids.
SCRIPT = """
const main = document.querySelector("main"), links = [...document.querySelectorAll("nav a")];
const query = new URLSearchParams(location.search), shown = new Map();
const colors = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7a00", "#7a5fd0"];
const axis = {labelColor: settings.text, titleColor: settings.text, domainColor: settings.line,
              tickColor: settings.line, gridColor: settings.line};
const spec = (chart, begin, end) => ({
  $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container", height: settings.height,
  background: "transparent", autosize: {type: "fit", contains: "padding"},
  params: [{name: "begin", value: begin}, {name: "end", value: end}],
  data: {name: "points", values: chart.points},
  mark: {type: "line", clip: true, point: {opacity: 0, size: 80}},
  encoding: {
    x: {field: "t", type: "temporal", title: null, axis: {tickCount: 5, grid: false},
        scale: {domainMin: {expr: "begin"}, domainMax: {expr: "end"}}},
    y: {field: "v", type: "quantitative", title: chart.unit || null, scale: {zero: chart.zero},
        axis: {format: "~s", tickCount: 4}},
    color: {field: "name", type: "nominal", title: null, scale: {domain: chart.names, range: colors},
            legend: chart.names.length > 1 || chart.names[0] !== chart.title ? {orient: "bottom"} : null},
    tooltip: [{field: "name", title: chart.title}, {field: "t", type: "temporal", format: "%H:%M:%S", title: "time"},
              {field: "v", type: "quantitative", format: ".5~s", title: chart.unit || "value"}],
  },
  config: {axis, legend: {labelColor: settings.text}, view: {stroke: null}, font: "system-ui, sans-serif"},
});
async function draw(answer) {
  const titles = answer.charts.map(chart => chart.title);
  if (titles.join("\\n") !== [...shown.keys()].join("\\n")) {
    shown.forEach(entry => entry.finalize());
    shown.clear();
    main.replaceChildren();
    for (const chart of answer.charts) {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption");
      const place = document.createElement("div");
      caption.textContent = chart.title;
      figure.append(...(settings.solo ? [place] : [caption, place]));
      main.append(figure);
      const options = {actions: false, ast: true, renderer: "svg"};
      shown.set(chart.title, await vegaEmbed(place, spec(chart, answer.begin, answer.end), options));
    }
    return;
  }
  for (const chart of answer.charts) {
    const view = shown.get(chart.title).view;
    await view.signal("begin", answer.begin).signal("end", answer.end).data("points", chart.points).runAsync();
  }
}
let drawing = Promise.resolve();
function show() {
  const asked = new URLSearchParams(query);
  asked.set("data", "1");
  drawing = drawing.then(async () => {
    const answer = await fetch("?" + asked);
    if (!answer.ok) return;
    const content = await answer.json();
    if (content.charts.some(chart => chart.points.length)) await draw(content);
  }).catch(error => console.warn(error));
}
const mark = () => links.forEach(link => link.classList.toggle("now", link.dataset.from === query.get("from")));
links.forEach(link => link.addEventListener("click", event => {
  event.preventDefault();
  query.set("from", link.dataset.from);
  mark();
  show();
}));
mark();
show();
setInterval(show, 5000);
"""
