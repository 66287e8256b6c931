"""What one call has printed: its end is kept, by absolute positions, for whoever reads it now or later.

Any thread writes, any thread reads. What flows in are texts with their stream, what flows out are pieces from a
position on; memory is bounded, and what was dropped is told as such.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["KEPT_CHARACTERS", "Output", "Piece"]

KEPT_CHARACTERS = 1 << 20
"""Of each call, the last ones."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one stream."""

    start: int
    """Position of its first character in all that the call has printed."""
    stream: str
    """``stdout`` or ``stderr``."""
    text: str

    @property
    def end(self) -> int:
        """The position behind its last character."""
        return self.start + len(self.text)


class Output:
    """What one call has printed."""

    def __init__(self, wake: Callable[[], None] = lambda: None, most: int = KEPT_CHARACTERS) -> None:
        """Begin empty.

        Args:
            wake: Called, in the writer's thread, when there is more.
            most: Characters that are kept.
        """
        self._wake, self._most = wake, most
        self._lock = threading.Lock()
        self._pieces: deque[Piece] = deque()
        self._end = 0

    @property
    def end(self) -> int:
        """Characters printed so far."""
        return self._end

    def write(self, stream: str, text: str) -> None:
        """Add ``text``."""
        if not text:
            return
        with self._lock:
            last = self._pieces[-1] if self._pieces else None
            # print() writes its newline by itself: pieces of one character would be most of the memory.
            if last is not None and last.stream == stream and len(last.text) < 4096:
                self._pieces[-1] = Piece(last.start, stream, last.text + text)
            else:
                self._pieces.append(Piece(self._end, stream, text))
            self._end += len(text)
            # Whole pieces, only when all that is to be kept lies behind them.
            while self._end - self._pieces[0].end >= self._most:
                self._pieces.popleft()
        # Outside of the lock: whoever is woken may read at once.
        self._wake()

    def since(self, position: int) -> list[Piece]:
        """Return what was printed from ``position`` on; the first piece begins later where the text is gone."""
        with self._lock:
            later = [piece for piece in self._pieces if piece.end > position]
        if later and later[0].start < position:
            first = later[0]
            later[0] = Piece(position, first.stream, first.text[position - first.start :])
        return later
