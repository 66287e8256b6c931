"""The curves of a grid: a Snapshot flows in, SVG in HTML flows out. Pure; the report has them, and a notebook."""

from collections.abc import Sequence

from raysm.grid.snapshot import Snapshot
from raysm.views.charts.line_chart import Axes, line_chart
from raysm.views.charts.series import Series

__all__ = ["curves"]


def curves(view: Snapshot) -> str:
    """Return the curve of the rows that are done, and that of what all jobs do in a second; nothing of one point."""
    rate = f"{view.rate_unit}, all jobs together"
    return _curve(view, view.done, "rows that are done") + _curve(view, view.rates, rate)


def _curve(view: Snapshot, values: Sequence[tuple[float, float]], title: str) -> str:
    # One point is no curve.
    if len(values) < 2:
        return ""
    points = [(at_s - view.created_s, float(value)) for at_s, value in values]
    axes = Axes(title=title, x="since the grid was made", is_time=True, from_zero=True, width=1000)
    return f'<div class="scroll">{line_chart([Series(name=title, points=points)], axes)}</div>'
