"""Looks at a grid again and again until it is over: snapshots flow in, those that bring news flow out."""

from collections.abc import Callable
from typing import Any

from raysm.views.grid.shown import ShownSnapshot

__all__ = ["DRAWN_S", "look_until_over"]

DRAWN_S = 0.5
"""Seconds between two looks that somebody sees: more often nobody reads them, and each counts the rows anew."""


def look_until_over(
    look: Callable[[], ShownSnapshot],
    show: Callable[[ShownSnapshot], Any],
    sleep: Callable[[float], Any],
    pause_s: float = DRAWN_S,
) -> None:
    """Show each look at a grid in which something has changed, and return when it is over.

    Args:
        look: Returns how it stands.
        show: What is done with it.
        sleep: How the time between two looks passes, in seconds; what it returns ends the looking where it is true.
        pause_s: Seconds between them.
    """
    last: object = None
    while True:
        view = look()
        # The moment alone is no news.
        facts = {name: value for name, value in view.as_dict().items() if name not in ("at_s", "left_s")}
        if facts != last:
            show(view)
            last = facts
        if view.state == "closed" or (view.state == "paused" and not any(each.open for each in view.regions)):
            return
        if sleep(pause_s):
            return
