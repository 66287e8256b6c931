"""What cards that are drawn again have in common: a thread that draws, its end, and who waits for it."""

import threading
from abc import ABC, abstractmethod

from raysm.views.card.outputs import Output

__all__ = ["LiveCard"]


class LiveCard(ABC):
    """A card that is drawn again until what it shows has ended, or ``stop`` is called."""

    def __init__(self, title: str, output: Output) -> None:
        """Take what is shown; nothing is drawn before ``_begin``.

        Args:
            title: What it is a card of.
            output: Where it is shown.
        """
        self._title, self._output = title, output
        self._stopping = threading.Event()

    def _begin(self) -> None:
        """Draw in a thread from now on: once the first card is there, and who asked for it was told what is wrong."""
        self._thread = self._output.thread(self._run, f"raysm card of {self._title}")
        self._thread.start()

    @abstractmethod
    def _run(self) -> None:
        """Draw until the end, or until ``_stopping`` is set."""

    def stop(self) -> None:
        """Draw it no more; what it shows goes on."""
        self._stopping.set()
        self._thread.join()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the end, and until its last card is drawn; return whether that was within ``timeout``."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def __repr__(self) -> str:
        return f"<card of {self._title}, {'drawn no more' if self.wait(0) else 'live'}>"
