"""How far a training was, so that a restart can say how many steps are done again.

What flows in is the number of each step that is done; what flows out is a small file beside the checkpoints, and on
this instance another one that is exact.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["REACHED", "Reached", "StepMarker", "read_reached"]

REACHED = "reached"
"""Name of the file: the last step that was done, in 20 digits, and whether it is exact."""

EVERY_S = 10.0
"""Seconds between two numbers among the checkpoints: the service uploads all that changes there, at once."""

EXACT, AT_LEAST = b"\n", b"+"


@dataclass(frozen=True, order=True, slots=True)
class Reached:
    """What is known of the last step that was done."""

    step: int = 0
    """Its number; 0 where nothing is known."""
    is_exact: bool = True
    """Whether none came after it."""


class StepMarker:
    """Keeps the number of the last step.

    Written in place and not synchronised to the disk: it has to cost next to nothing, and says nothing that counts.
    """

    def __init__(
        self, folder: Path, step: int, own: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Open the files, and write ``step``.

        Args:
            folder: Of the checkpoints.
            step: The step at which this run begins.
            own: Where the service does not look, a folder for every number; None: it does not look at ``folder``.
            clock: Seconds that never go back.
        """
        self._clock = clock
        self._step = step
        self._due_s = 0.0
        # Kept open: opening a file after every step would cost more than writing to it.
        self._lasting = _opened(folder)
        self._own = None if own is None else _opened(own)
        self.write(step)

    def write(self, step: int) -> None:
        """That step is done."""
        self._step = step
        if self._own is None:
            _write(self._lasting, step, EXACT)
            return
        _write(self._own, step, EXACT)
        if self._clock() >= self._due_s:
            _write(self._lasting, step, AT_LEAST)
            self._due_s = self._clock() + EVERY_S

    def close(self) -> None:
        """Write the last number everywhere, and close the files."""
        _write(self._lasting, self._step, EXACT)
        os.close(self._lasting)
        if self._own is not None:
            os.close(self._own)


def read_reached(*folders: Path | None) -> Reached:
    """Return the last step that was done, as far as these folders know."""
    return max((_read(folder) for folder in folders if folder is not None), default=Reached())


def _read(folder: Path) -> Reached:
    try:
        content = (folder / REACHED).read_bytes()
        return Reached(int(content[:20]), content[20:] == EXACT)
    # A file that a crash left torn or empty too: it was never synchronised, and only a message goes without it.
    except (OSError, ValueError):
        return Reached()


def _opened(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / REACHED, os.O_WRONLY | os.O_CREAT, 0o644)


def _write(file: int, step: int, mark: bytes) -> None:
    # Always as long, at the same place: a reader never sees half of a shorter number.
    os.pwrite(file, b"%020d" % step + mark, 0)
