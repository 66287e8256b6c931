"""A grid on a terminal, as it goes on: a handle flows in, and its screen is drawn until the grid is over.

In a pipe there is no screen to draw on: each look is a block of lines, and only where something has changed.
"""

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from raysm.grid.snapshot import Snapshot
from raysm.views.grid.handle import GridHandle
from raysm.views.grid.looking import DRAWN_S, look_until_over
from raysm.views.grid.screen import screen_lines

__all__ = ["watch"]

PIPED_S = 10.0
"""Seconds between two blocks of lines where nobody sees a screen: a log of a night must stay readable."""


def watch(
    grid: GridHandle,
    console: Console,
    *,
    show: Callable[[Snapshot], Any] | None = None,
    sleep: Callable[[float], Any] = time.sleep,
) -> None:
    """Show a grid until it is over; an interrupt ends the watching alone.

    Args:
        grid: Which.
        console: Where to.
        show: What is done with each look instead of drawing it.
        sleep: How the time between two looks passes.

    Raises:
        InvalidRequest: There is no grid of this name.
    """
    if show is not None:
        look_until_over(grid.status, show, sleep, PIPED_S if not console.is_terminal else DRAWN_S)
    elif console.is_terminal:
        # transient=False: the last screen stays, as a result does.
        with Live(console=console, auto_refresh=False) as live:
            look_until_over(grid.status, lambda view: live.update(_screen(view), refresh=True), sleep)
    else:
        look_until_over(grid.status, lambda view: console.print(_screen(view), soft_wrap=True), sleep, PIPED_S)


def _screen(view: Snapshot) -> Text:
    return Text("\n".join(screen_lines(view)))
