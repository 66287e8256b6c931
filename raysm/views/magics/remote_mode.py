"""``%raysm on``: every cell runs in the session, and names are completed by the session.

What flows in are the lines of cells, and what stands before the cursor; what flows out are lines that begin with
``%%raysm``, and names.
"""

import concurrent.futures
import contextlib
import re
from collections.abc import Callable
from typing import Any, Protocol

from raysm.errors import RaysmError

__all__ = ["Completer", "RemoteMode"]

HERE = ("%", "!", "?")
"""How a cell begins that is none of Python alone: IPython's own, which runs here in any case."""

NAME = re.compile(r"(?<![\w.)\]}'\"])[^\W\d]\w*(\.\w*)*$")
"""A name, perhaps with a dot: all that can be completed without executing anything."""

COMPLETED_S = 2.0
"""Whoever types does not wait longer."""

MAGIC = "%%raysm"


class RemoteMode:
    """A transformation of input: the line of the magic is put before each cell that is Python, while it is on.

    Attributes:
        is_on: Whether it is.
        has_side_effects: For IPython, which then leaves it out when it asks whether a cell is complete.
    """

    has_side_effects = True

    def __init__(self) -> None:
        """Begin switched off."""
        self.is_on = False

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines of a cell, changed where it is to run in the session."""
        first = next((line.strip() for line in lines if line.strip()), "")
        if not self.is_on or not first or first.startswith(HERE) or first.endswith("?"):
            return lines
        return [f"{MAGIC} --whole\n", *lines]

    def covers(self, cell: str) -> bool:
        """Whether ``cell`` runs in the session."""
        return cell.lstrip().startswith(MAGIC) or (self.is_on and not cell.lstrip().startswith(HERE))


class Completes(Protocol):
    """A session, as far as completion has to know it."""

    def complete(self, text: str) -> list[str]:
        """Return how ``text`` may go on."""


class Completer:
    """Completes names of cells that run in the session, from its namespace."""

    def __init__(self, mode: RemoteMode, session: Callable[[str], Completes | None]) -> None:
        """Ask nobody yet.

        Args:
            mode: Tells which cells those are.
            session: Returns the one in which a cell runs; None where there is none.
        """
        self._mode, self._session = mode, session
        # In a thread: a connection that is away is waited for, but not by whoever types.
        self._asking = concurrent.futures.ThreadPoolExecutor(1, "raysm completion")

    def matches(self, cell: str, before: str) -> tuple[str, list[str]]:
        """Complete what stands before the cursor.

        Args:
            cell: All of it.
            before: Its line, as far as the cursor.

        Returns:
            The name that is completed, and what it may become.
        """
        word = NAME.search(before)
        session = self._session(cell) if word and self._mode.covers(cell) else None
        if word is None or session is None:
            return "", []
        completion = self._asking.submit(session.complete, word[0])
        with contextlib.suppress(RaysmError, concurrent.futures.TimeoutError):
            # Python's own completer adds what a call begins with; notebooks do not.
            return word[0], [match.rstrip("( ") for match in completion.result(COMPLETED_S)]
        return "", []

    def close(self) -> None:
        """Complete no more."""
        self._asking.shutdown(wait=False, cancel_futures=True)

    def matcher(self) -> Callable[[Any], Any]:
        """Return it as a matcher of IPython's, of the second kind."""
        from IPython.core.completer import SimpleCompletion, context_matcher

        def raysm_matcher(context: Any) -> Any:
            name, matches = self.matches(context.full_text, context.text_until_cursor)
            # What this kernel knows itself would be of no use there.
            return {
                "completions": [SimpleCompletion(text=match, type="raysm") for match in matches],
                "matched_fragment": name,
                "suppress": bool(matches),
            }

        decorate: Any = context_matcher()
        matcher: Callable[[Any], Any] = decorate(raysm_matcher)
        return matcher
