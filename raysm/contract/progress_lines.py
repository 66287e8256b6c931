r"""Progress bars in a log: each ``\r`` ends a line, and at most one such line a second is kept.

A log has no line to write over. Without this a bar would appear in one piece at its end, in front of the next line.
"""

import re
import time
from collections.abc import Callable

__all__ = ["ProgressLines"]

INTERVAL_S = 1.0
MAX_LINE_BYTES = 1 << 16
"""A longer line is cut, so that output without line ends does not fill the memory."""
LINE = re.compile(rb"([^\r\n]*)(\r?\n|\r(?!\n))")


class ProgressLines:
    r"""Turns output with carriage returns into whole lines that end in ``\n``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing; ``clock`` returns seconds."""
        self._clock = clock
        self._shown_s = -INTERVAL_S
        self._held = b""
        self._frame = b""

    def feed(self, data: bytes) -> bytes:
        """Return the lines that ``data`` completes; the beginning of a line is held until its end comes."""
        data = self._held + data
        if b"\r" not in data and not self._frame:
            end = data.rfind(b"\n") + 1
            lines, self._held = data[:end], data[end:]
        else:
            lines = b"".join(self._lines(data))
        while len(self._held) > MAX_LINE_BYTES:
            lines += self._held[:MAX_LINE_BYTES] + b"\n"
            self._held = self._held[MAX_LINE_BYTES:]
        return lines

    def rest(self) -> bytes:
        """Return the last line, once nothing more comes; it has no line end."""
        last = self._held.rstrip(b"\r") or self._frame
        self._held = self._frame = b""
        return last

    def _lines(self, data: bytes) -> list[bytes]:
        lines: list[bytes] = []
        position = 0
        for match in LINE.finditer(data):
            text, end = match.groups()
            # What follows a last \r decides whether it belongs to a \r\n.
            if end == b"\r" and match.end() == len(data):
                break
            position = match.end()
            if end != b"\r":
                # A line end alone closes the bar, whose last state is then what counts.
                lines.append((text or self._frame) + b"\n")
                self._frame = b""
            elif text.strip():
                self._frame = text
                now_s = self._clock()
                if now_s - self._shown_s >= INTERVAL_S:
                    lines.append(text + b"\n")
                    self._shown_s, self._frame = now_s, b""
        self._held = data[position:]
        return lines
