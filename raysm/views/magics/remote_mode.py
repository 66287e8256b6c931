"""``%raysm on``: every cell runs in the session, which also completes names."""

import concurrent.futures
import contextlib
import re
from collections.abc import Callable
from typing import Any, Protocol

from raysm.errors import RaysmError

__all__ = ["MAGIC", "Completer", "RemoteMode"]

HERE = ("%raysm", "%%raysm")
"""Cells that begin so run here; other magics are the session's."""

NAME = re.compile(r"(?<![\w.)\]}'\"])[^\W\d]\w*(\.\w*)*$")
"""A name with dots, which can be completed without executing anything."""

COMPLETED_S = 2.0
"""The longest wait while the user types."""

MAGIC = "%%raysm"


class RemoteMode:
    """An input transformer of IPython: while it is on, it puts the magic's line before each cell of Python.

    Attributes:
        is_on: Whether cells run in the session.
        has_side_effects: Makes IPython skip it when it checks whether a cell is complete.
    """

    has_side_effects = True

    def __init__(self) -> None:
        """Begin switched off."""
        self.is_on = False

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines of a cell, with the magic's line if the cell runs in the session."""
        first = next((line.strip() for line in lines if line.strip()), "")
        if not self.is_on or not first or first.startswith(HERE):
            return lines
        return [f"{MAGIC} --whole\n", *lines]

    def covers(self, cell: str) -> bool:
        """Whether ``cell`` runs in the session."""
        return cell.lstrip().startswith(MAGIC) or (self.is_on and not cell.lstrip().startswith(HERE))


class Completes(Protocol):
    """The part of a session that completion uses."""

    def complete(self, text: str) -> list[str]:
        """Return the completions of ``text``."""


class Completer:
    """Completes names of cells that run in the session, from its namespace."""

    def __init__(self, mode: RemoteMode, session: Callable[[str], Completes | None]) -> None:
        """Ask no session yet.

        Args:
            mode: Tells which cells run in the session.
            session: Returns the session of a cell, or None.
        """
        self._mode, self._session = mode, session
        # In a thread, so that a broken connection does not block the user's typing.
        self._asking = concurrent.futures.ThreadPoolExecutor(1, "raysm completion")

    def matches(self, cell: str, before: str) -> tuple[str, list[str]]:
        """Complete the name before the cursor.

        Args:
            cell: The whole cell.
            before: The line up to the cursor.

        Returns:
            The name, and its completions.
        """
        word = NAME.search(before)
        session = self._session(cell) if word and self._mode.covers(cell) else None
        if word is None or session is None:
            return "", []
        completion = self._asking.submit(session.complete, word[0])
        with contextlib.suppress(RaysmError, concurrent.futures.TimeoutError):
            # Python's completer adds the parenthesis of a call.
            return word[0], [match.rstrip("( ") for match in completion.result(COMPLETED_S)]
        return "", []

    def close(self) -> None:
        """Stop completing."""
        self._asking.shutdown(wait=False, cancel_futures=True)

    def matcher(self) -> Callable[[Any], Any]:
        """Return a matcher of IPython's API version 2."""
        from IPython.core.completer import SimpleCompletion, context_matcher

        def raysm_matcher(context: Any) -> Any:
            name, matches = self.matches(context.full_text, context.text_until_cursor)
            # Names of this kernel do not exist in the session.
            return {
                "completions": [SimpleCompletion(text=match, type="raysm") for match in matches],
                "matched_fragment": name,
                "suppress": bool(matches),
            }

        decorate: Any = context_matcher()
        matcher: Callable[[Any], Any] = decorate(raysm_matcher)
        return matcher
