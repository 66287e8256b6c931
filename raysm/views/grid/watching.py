"""Watch a grid until it is over: on a terminal, in a pipe, or as a card in a notebook."""

import html
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from raysm.errors import RaysmError
from raysm.grid.snapshot import Snapshot
from raysm.views.card.live_card import LiveCard, Output
from raysm.views.grid.text import ShownSnapshot, screen_lines

__all__ = ["DRAWN_S", "GridWatch", "NO_NOTEBOOK", "look_until_over", "watch"]

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


PIPED_S = 10.0
"""Seconds between two blocks of lines where nobody sees a screen: a log of a night must stay readable."""


def watch(
    look: Callable[[], ShownSnapshot],
    console: Console,
    *,
    show: Callable[[Snapshot], Any] | None = None,
    sleep: Callable[[float], Any] = time.sleep,
) -> None:
    """Show a grid until it is over; an interrupt ends the watching alone.

    Args:
        look: Returns the grid as it is: ``GridHandle.status``.
        console: Where to.
        show: What is done with each look instead of drawing it.
        sleep: How the time between two looks passes.

    Raises:
        InvalidRequest: There is no grid of this name.
    """
    if show is not None:
        look_until_over(look, show, sleep, PIPED_S if not console.is_terminal else DRAWN_S)
    elif console.is_terminal:
        # transient=False: the last screen stays, as a result does.
        with Live(console=console, auto_refresh=False) as live:
            look_until_over(look, lambda view: live.update(_screen(view), refresh=True), sleep)
    else:
        look_until_over(look, lambda view: console.print(_screen(view), soft_wrap=True), sleep, PIPED_S)


def _screen(view: Snapshot) -> Text:
    return Text("\n".join(screen_lines(view)))


NO_NOTEBOOK = (
    "grid.watch() draws a card in a notebook, and this is not a notebook: in a terminal use raysm grid watch "
    "NAME, or grid.status()"
)


class GridWatch(LiveCard):
    """A card that is drawn again until its grid is over, or ``stop`` is called."""

    def __init__(self, name: str, look: Callable[[], ShownSnapshot], output: Output) -> None:
        """Draw the first card at once, and the others in a thread.

        Args:
            name: Of the grid.
            look: Returns how it stands.
            output: Where the card is shown.

        Raises:
            InvalidRequest: There is no grid of this name.
        """
        super().__init__(f"the grid {name}", output)
        self._look = look
        # Here, where who asks for the card is told what is wrong.
        self._last = look()
        self._trouble = ""
        self._show(self._last)
        self._begin()

    def _run(self) -> None:
        look_until_over(self._next, self._show, self._pause)

    def _next(self) -> ShownSnapshot:
        before = self._trouble
        try:
            self._last, self._trouble = self._look(), ""
        except RaysmError as error:  # a bucket that is away for a while is no reason to end the card: it says so
            self._trouble = str(error)
        # When it comes and when it goes: between the two the grid itself brings no news.
        if self._trouble != before:
            self._show(self._last)
        return self._last

    def _pause(self, seconds: float) -> bool:
        return self._stopping.wait(seconds) or self._output.is_gone

    def _show(self, view: ShownSnapshot) -> None:
        note = f"not seen just now: {self._trouble}" if self._trouble else ""
        paragraph = f"<p>{html.escape(note)}</p>" if note else ""
        self._output.show(f"<div>{view._repr_html_()}{paragraph}</div>", f"{view}\n{note}".rstrip())
