"""Watch a grid until it is over: on a terminal, in a pipe, or as a card in a notebook."""

import html
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from raysm.core.client.views.live_card import LiveCard, Output
from raysm.errors import RaysmError
from raysm.features.grid.snapshot import Snapshot
from raysm.features.grid.store.store import GridState
from raysm.features.grid.views.text import ShownSnapshot, screen_lines

DRAWN_S = 0.5
"""Seconds between two updates of a screen, each of which counts the rows."""


def look_until_over(
    look: Callable[[], ShownSnapshot],
    show: Callable[[ShownSnapshot], Any],
    sleep: Callable[[float], Any],
    pause_s: float = DRAWN_S,
) -> None:
    last: object = None
    while True:
        view = look()
        # The time alone is not a change.
        facts = {
            name: value for name, value in view.as_dict().items() if name not in ("at_s", "left_s")
        }
        if facts != last:
            show(view)
            last = facts
        if view.state == GridState.CLOSED or (
            view.state == GridState.PAUSED and not any(each.open for each in view.regions)
        ):
            return
        if sleep(pause_s):
            return


PIPED_S = 10.0
"""Seconds between two outputs to a pipe, so that the log of a night stays readable."""


def watch(
    look: Callable[[], ShownSnapshot],
    console: Console,
    *,
    show: Callable[[Snapshot], Any] | None = None,
    sleep: Callable[[float], Any] = time.sleep,
) -> None:
    """Show a grid until it is over; an interrupt ends only the display."""
    if show is not None:
        look_until_over(look, show, sleep, PIPED_S if not console.is_terminal else DRAWN_S)
    elif console.is_terminal:
        # Not transient: the last screen stays visible.
        with Live(console=console, auto_refresh=False) as live:
            look_until_over(look, lambda view: live.update(_screen(view), refresh=True), sleep)
    else:
        look_until_over(
            look, lambda view: console.print(_screen(view), soft_wrap=True), sleep, PIPED_S
        )


def _screen(view: Snapshot) -> Text:
    return Text("\n".join(screen_lines(view)))


NO_NOTEBOOK = (
    "grid.watch() draws a card in a notebook, which this is not; "
    "use raysm grid watch NAME, or grid.status()"
)


class GridWatch(LiveCard):
    def __init__(self, name: str, look: Callable[[], ShownSnapshot], output: Output) -> None:
        super().__init__(f"the grid {name}", output)
        self._look = look
        # In the caller's thread, so that the caller gets an error.
        self._last = look()
        self._trouble = ""
        self._show(self._last)
        self._begin()

    def _run(self) -> None:
        look_until_over(self._next, self._show, self._pause)

    def _next(self) -> ShownSnapshot:
        before = self._trouble
        try:
            self._last = self._look()
            self._trouble = ""
        except RaysmError as error:  # the bucket may be unreachable for a while; the card says so
            self._trouble = str(error)
        # Shown when an error comes and when it goes.
        if self._trouble != before:
            self._show(self._last)
        return self._last

    def _pause(self, seconds: float) -> bool:
        return self._stopping.wait(seconds) or self._output.is_gone

    def _show(self, view: ShownSnapshot) -> None:
        note = f"not up to date: {self._trouble}" if self._trouble else ""
        paragraph = f"<p>{html.escape(note)}</p>" if note else ""
        self._output.show(f"<div>{view._repr_html_()}{paragraph}</div>", f"{view}\n{note}".rstrip())
