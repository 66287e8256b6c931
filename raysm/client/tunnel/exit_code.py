"""The exit code of a command in a session: AWS's agent tells none, so the command's shell writes it behind the output.

What flows in is a command, or what the session writes; what flows out is what to run, or the output without the mark.
"""

import re
import secrets
import shlex
from collections.abc import Sequence

__all__ = ["SHELL", "Marked"]

SHELL = "if command -v bash >/dev/null 2>&1; then bash; else sh; fi"
"""What is run where nobody says what."""
RECORD = b"\x1e"
"""ASCII's record separator: terminals show nothing of it."""
LONGEST = 64
"""Bytes of a mark, at most."""


class Marked:
    """A command with the mark that tells its end.

    Attributes:
        code: The exit code; None until it is told.
    """

    def __init__(self, command: Sequence[str], *, has_terminal: bool) -> None:
        """Choose a mark that the command cannot know.

        Args:
            command: Its words; none is a shell.
            has_terminal: Whether somebody sits before it: then it reads his keys, and its lines end as a terminal's.
        """
        self.code: int | None = None
        # Random: a command that prints the mark of another one, as a log of it does, would end this one.
        self._nonce = secrets.token_hex(8)
        self._command = command
        self._has_terminal = has_terminal
        self._mark = re.compile(RECORD + self._nonce.encode() + rb":(\d{1,3})" + RECORD)
        self._held = b""

    def line(self) -> str:
        """Return the line to run: the words of one command, whether a shell reads them or not."""
        # Quoted here, for the shell of there: what the user's own shell left as one word stays one word.
        run = shlex.join(self._command) if self._command else SHELL
        if not self._has_terminal:
            # The agent gives it a terminal all the same: one that changes nothing of what is written, and which still
            # makes a signal of Ctrl-C.
            run = f"stty raw -echo isig 2>/dev/null; {run} </dev/null"
        # The shell is struck by Ctrl-C as well: it lives on to tell the code, and what it runs is not spared by a trap.
        return f"sh -c {shlex.quote(f'trap : INT; {run}{self._end()}')}"

    def _end(self) -> str:
        return f"; printf '\\036%s:%d\\036' {self._nonce} $?"

    def feed(self, data: bytes) -> bytes:
        """Return what is to be shown of the output; what may become the mark is held back."""
        data = self._held + data
        mark = self._mark.search(data)
        if mark is not None:
            self.code = int(mark[1])
            self._held = b""
            return data[: mark.start()]
        # Only near the end can a mark be cut off: anything longer than a mark would have matched above.
        start = data.rfind(RECORD, max(0, len(data) - LONGEST))
        # Only what goes on as the mark does: a separator of the command's own is shown at once.
        if start >= 0 and self._may_be_mark(data[start:]):
            self._held = data[start:]
            return data[:start]
        self._held = b""
        return data

    def _may_be_mark(self, tail: bytes) -> bool:
        opening = RECORD + self._nonce.encode() + b":"
        return opening.startswith(tail) or tail.startswith(opening)

    def rest(self) -> bytes:
        """Return what was held back when the session ended."""
        rest, self._held = self._held, b""
        return rest
