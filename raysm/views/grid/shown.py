"""Plans and snapshots that show themselves: the same values, which ``print`` and a notebook show as people read."""

import html
from dataclasses import fields
from typing import Any

from raysm.grid.plan import GridPlan
from raysm.grid.snapshot import Snapshot
from raysm.views.grid.curves import curves
from raysm.views.grid.plan_text import plan_lines
from raysm.views.grid.screen import screen_lines

__all__ = ["ShownPlan", "ShownSnapshot", "shown_plan", "shown_snapshot"]


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
