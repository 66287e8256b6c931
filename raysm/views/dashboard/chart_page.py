"""The page of charts that stands where Ray's page expects Grafana's: charts flow in, HTML flows out. Pure."""

import html
from collections.abc import Sequence

from raysm.views.charts.line_chart import Axes, line_chart
from raysm.views.charts.series import Series
from raysm.views.dashboard.panels import Chart

__all__ = ["chart_page", "charts_of"]

THEMES = {"light": ("#fff", "#222", "#ddd"), "dark": ("#1c2025", "#dcdcdc", "#3a3f46")}
"""Background, text and lines; Ray's page says which."""

RANGES = (("5 min", "now-5m"), ("30 min", "now-30m"), ("3 h", "now-3h"), ("all", "0"))

REFRESH_MS = 5000

STYLE = """
body {{ margin: 0; background: {background}; color: {text}; font: 13px system-ui, sans-serif; }}
main {{ display: grid; gap: 12px; padding: 12px; grid-template-columns: repeat(auto-fill, minmax(420px, 1fr)); }}
main.solo {{ display: block; padding: 8px 16px; }}
figure {{ margin: 0; padding: 8px; border: 1px solid {line}; border-radius: 4px; }}
.solo figure {{ border: 0; padding: 0; }}
figcaption {{ font-weight: 500; margin-bottom: 4px; }}
nav {{ padding: 12px 12px 0; }}
nav a {{ color: inherit; margin-right: 12px; text-decoration: none; opacity: 0.65; }}
nav a.now {{ font-weight: 600; opacity: 1; }}
svg {{ width: 100%; height: auto; }}
p {{ opacity: 0.7; }}
"""

# The choice of the range stays in this frame's own address: of many open pages each has its own.
SCRIPT = """
const main = document.querySelector("main"), links = [...document.querySelectorAll("nav a")];
const query = new URLSearchParams(location.search);
const mark = () => links.forEach(link => link.classList.toggle("now", link.dataset.from === query.get("from")));
async function show() {{
  const asked = new URLSearchParams(query);
  asked.set("part", "1");
  try {{
    const answer = await fetch("?" + asked);
    if (answer.ok) main.innerHTML = await answer.text();
  }} catch (error) {{}}
}}
links.forEach(link => link.addEventListener("click", event => {{
  event.preventDefault();
  query.set("from", link.dataset.from);
  mark();
  show();
}}));
mark();
setInterval(show, {refresh});
"""


def chart_page(charts: Sequence[Chart], *, title: str, theme: str, is_solo: bool) -> str:
    """Return a page that shows charts, and asks for them again every few seconds.

    Args:
        charts: In their order.
        title: Of the page.
        theme: ``light`` or ``dark``.
        is_solo: Whether it is a small frame with one chart in it.
    """
    background, text, line = THEMES.get(theme, THEMES["light"])
    links = "".join(f'<a href="#" data-from="{begin}">{shown}</a>' for shown, begin in RANGES)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE.format(background=background, text=text, line=line)}</style></head><body>"
        f"{'' if is_solo else f'<nav>{links}</nav>'}"
        f'<main class="{"solo" if is_solo else "board"}">{charts_of(charts, is_solo=is_solo)}</main>'
        f"<script>{SCRIPT.format(refresh=REFRESH_MS)}</script></body></html>"
    )


def charts_of(charts: Sequence[Chart], *, is_solo: bool) -> str:
    """Return charts as HTML, without the page around them."""
    if not any(chart.curves for chart in charts):
        return "<p>No values yet: the first come within seconds.</p>"
    return "".join(_figure(chart, is_solo) for chart in charts)


def _figure(chart: Chart, is_solo: bool) -> str:
    # One curve that is named as its chart needs no legend.
    series = [
        Series(name="" if name == chart.title else name, points=_elapsed(chart, points))
        for name, points in chart.curves.items()
    ]
    # A card of Ray's Overview is nearly as high as it is wide.
    width, height = (420, 330) if is_solo else (560, 230)
    axes = Axes(y=chart.unit, width=width, height=height, is_time=True, from_zero=chart.from_zero)
    return f"<figure><figcaption>{html.escape(chart.title)}</figcaption>{line_chart(series, axes)}</figure>"


def _elapsed(chart: Chart, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points by seconds since the chart's first one."""
    begin_s = min(points[0][0] for points in chart.curves.values())
    return [(time_s - begin_s, value) for time_s, value in points]
