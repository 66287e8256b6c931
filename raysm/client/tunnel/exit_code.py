"""The exit code of a command in a session of Systems Manager.

The agent reports none. So the command's shell writes a mark before and behind the output, the second with the code.
"""

import re
import secrets
import shlex
from collections.abc import Sequence

from raysm.client.tunnel.terminal import SHELL

__all__ = ["MarkedCommand"]

RECORD = b"\x1e"
"""ASCII's record separator, which terminals do not show."""
MAX_MARK_BYTES = 64


class MarkedCommand:
    """A command whose output is between two marks.

    Attributes:
        code: The exit code; None until the second mark has been read.
        preamble: What was read before the first mark: words of the plugin, or an error.
    """

    def __init__(self, command: Sequence[str], *, has_terminal: bool) -> None:
        """Choose the marks.

        Args:
            command: Its words; empty is a shell.
            has_terminal: Whether it reads the user's keys. Otherwise it reads nothing.
        """
        self.code: int | None = None
        self.preamble = b""
        # Random: the output may contain the mark of another command, as a log of one does.
        self._nonce = secrets.token_hex(8)
        self._command = command
        self._has_terminal = has_terminal
        self._begin = RECORD + self._nonce.encode() + RECORD
        self._end = re.compile(RECORD + self._nonce.encode() + rb":(\d{1,3})" + RECORD)
        self._has_begun = False
        self._held = b""

    def line(self) -> str:
        """Return the command line to run; it means the same with and without a shell that reads it."""
        run = shlex.join(self._command) if self._command else SHELL
        if not self._has_terminal:
            # The agent always provides a terminal. This one leaves output as it is, and Ctrl-C is a signal.
            run = f"stty raw -echo isig 2>/dev/null; {run} </dev/null"
        begin = f"printf '\\036%s\\036' {self._nonce}; "
        end = f"; printf '\\036%s:%d\\036' {self._nonce} $?"
        # Ctrl-C reaches the shell too: with the trap it lives on to report the code.
        return f"sh -c {shlex.quote(f'trap : INT; {begin}{run}{end}')}"

    def feed(self, data: bytes) -> bytes:
        """Return the part of the output to show; what can be the beginning of a mark is held back."""
        if self.code is not None:
            return b""
        if not self._has_begun:
            self.preamble += data
            before, mark, data = self.preamble.partition(self._begin)
            if not mark:
                return b""
            self.preamble, self._has_begun = before, True
        data = self._held + data
        self._held = b""
        end = self._end.search(data)
        if end is not None:
            self.code = int(end[1])
            return data[: end.start()]
        start = data.rfind(RECORD, max(0, len(data) - MAX_MARK_BYTES))
        if start >= 0 and self._can_be_mark(data[start:]):
            self._held = data[start:]
            return data[:start]
        return data

    def _can_be_mark(self, tail: bytes) -> bool:
        opening = RECORD + self._nonce.encode() + b":"
        return opening.startswith(tail) or tail.startswith(opening)
