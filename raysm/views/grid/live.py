"""``grid.watch()``: a card in a notebook that is drawn again as the grid goes on, in a thread, beside later cells.

What flows in are looks at the grid, what flows out are cards: the screen of a terminal, and the curves below it.
"""

import html
from collections.abc import Callable

from raysm.errors import RaysmError
from raysm.views.card.live_card import LiveCard, Output
from raysm.views.grid.looking import look_until_over
from raysm.views.grid.shown import ShownSnapshot

__all__ = ["NO_NOTEBOOK", "GridWatch"]

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
