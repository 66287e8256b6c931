"""Plans and snapshots of grids that show themselves in a terminal and in a notebook, with curves as SVG."""

import html
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from raysm.grid.plan import GridPlan
from raysm.grid.snapshot import Snapshot
from raysm.views.grid.plan_text import plan_lines
from raysm.views.grid.screen import duration, screen_lines
from raysm.views.sparkline import sparkline

__all__ = ["ShownPlan", "ShownSnapshot", "curves", "shown_plan", "shown_snapshot"]


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


class ShownPlan(GridPlan):
    """A plan; see ``GridPlan``."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(plan_lines(self))

    def _repr_html_(self) -> str:
        return _preformatted(str(self))


class ShownSnapshot(Snapshot):
    """A grid at one moment; see ``Snapshot``."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(screen_lines(self))

    def _repr_html_(self) -> str:
        return _preformatted(str(self)) + curves(self)


def shown_plan(plan: GridPlan) -> ShownPlan:
    """Return a plan that shows itself."""
    return ShownPlan(**_values(plan))


def shown_snapshot(view: Snapshot) -> ShownSnapshot:
    """Return a snapshot that shows itself."""
    return ShownSnapshot(**_values(view))


def _values(value: Any) -> dict[str, Any]:
    # Not asdict: it would turn the regions and places within into dictionaries.
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _preformatted(text: str) -> str:
    # A table of figures stands in columns only where each letter is as wide as the next, and no line is broken, as
    # JupyterLab breaks those of what it shows; small enough for its columns in a window of 1,400 pixels.
    style = "line-height:1.2;font-size:12px;white-space:pre;overflow-x:auto"
    return f'<pre style="{style}">{html.escape(text)}</pre>'
