"""The curves of a grid as SVG in HTML, for its report and its card in a notebook."""

from collections.abc import Sequence

from raysm.grid.snapshot import Snapshot
from raysm.views.grid.screen import duration
from raysm.views.sparkline import sparkline

__all__ = ["curves"]


def curves(view: Snapshot) -> str:
    """Return the curve of the rows that are done, and that of what all jobs do in a second; nothing of one point."""
    rate = f"{view.rate_unit}, all jobs together"
    return _curve(view, view.done, "rows that are done") + _curve(view, view.rates, rate)


def _curve(view: Snapshot, values: Sequence[tuple[float, float]], title: str) -> str:
    # One point is no curve.
    if len(values) < 2:
        return ""
    # From the beginning of the grid, with which both curves begin.
    points = [(view.created_s, 0.0), *((at_s, float(value)) for at_s, value in values)]
    span = duration(values[-1][0] - view.created_s)
    svg = sparkline(points, title, width=1000, height=140, note=f"{span} since the grid was made")
    return f'<div class="scroll">{svg}</div>'
