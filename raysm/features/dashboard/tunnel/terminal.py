"""The terminal of a remote command, and its exit code."""

import contextlib
import os
import pty
import re
import secrets
import select
import shlex
import signal
import tty
from collections.abc import Callable, Iterator, Sequence

RECORD = b"\x1e"
"""ASCII's record separator, which terminals do not show."""
MAX_MARK_BYTES = 64


class MarkedCommand:
    """A command whose output is between two marks.

    Attributes:
        code: The exit code; None until the second mark has been read.
        preamble: The text before the first mark: words of the plugin, or an error.
    """

    def __init__(self, command: Sequence[str], *, has_terminal: bool) -> None:
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
        run = shlex.join(self._command) if self._command else SHELL
        if not self._has_terminal:
            # The agent always provides a terminal. This one leaves output as it is, and Ctrl-C is a
            # signal.
            run = f"stty raw -echo isig 2>/dev/null; {run} </dev/null"
        begin = f"printf '\\036%s\\036' {self._nonce}; "
        end = f"; printf '\\036%s:%d\\036' {self._nonce} $?"
        # Ctrl-C reaches the shell too: with the trap it lives on to report the code.
        return f"sh -c {shlex.quote(f'trap : INT; {begin}{run}{end}')}"

    def feed(self, data: bytes) -> bytes:
        """Return the part of the output to show; a possible beginning of a mark is held back."""
        if self.code is not None:
            return b""
        if not self._has_begun:
            self.preamble += data
            before, mark, data = self.preamble.partition(self._begin)
            if not mark:
                return b""
            self.preamble = before
            self._has_begun = True
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


SHELL = "if command -v bash >/dev/null 2>&1; then bash; else sh; fi"

CHUNK_BYTES = 1 << 16
QUIET_S = 0.5
"""A background process of an ended command can hold the pseudo-terminal open forever without
writing to it."""


class Terminal:
    """The user's input and output: a terminal, or pipes and files.

    Attributes:
        is_terminal: True if both are a terminal.
    """

    def __init__(self, stdin: int = 0, stdout: int = 1) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.is_terminal = os.isatty(stdin) and os.isatty(stdout)

    def write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self.stdout, data) :]
            except BlockingIOError:
                # The program at the other end of a shared pipe can have made it non-blocking.
                select.select([], [self.stdout], [])

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        if not self.is_terminal:
            yield
            return
        import termios

        before = termios.tcgetattr(self.stdin)
        try:
            tty.setraw(self.stdin, termios.TCSADRAIN)
            yield
        finally:
            termios.tcsetattr(self.stdin, termios.TCSADRAIN, before)

    def run(self, start: Callable[[int], int], show: Callable[[bytes], bytes] = bytes) -> int:
        """Run a program in a new pseudo-terminal, with the user's keys as its input.

        Args:
            start: Starts the program at the pseudo-terminal's other end, which is its argument, and
                returns a descriptor that is readable when the program has ended.
            show: Filters the output.

        Returns:
            141 if the reader of the output has gone, as for a command whose pipe broke; else 0.
        """
        master, slave = pty.openpty()
        with contextlib.ExitStack() as ending:
            ending.callback(os.close, master)
            # Open until the command has ended: it may not have opened it yet when ``start``
            # returns.
            held = ending.enter_context(contextlib.ExitStack())
            held.callback(os.close, slave)
            # Without a terminal, output must come through unchanged.
            if not self.is_terminal:
                tty.setraw(slave)
            ending.enter_context(self._same_size(master))
            ended = start(slave)
            ending.enter_context(self.raw())
            try:
                self._copy(master, ended, show, on_end=held.close)
            except BrokenPipeError:
                return 128 + signal.SIGPIPE
        return 0

    def _copy(
        self, master: int, ended: int, show: Callable[[bytes], bytes], on_end: Callable[[], None]
    ) -> None:
        sources = {master, ended, *({self.stdin} if self.is_terminal else ())}
        while True:
            ready = select.select(sources, [], [], None if ended in sources else QUIET_S)[0]
            if not ready:
                return
            if self.stdin in ready:
                keys = os.read(self.stdin, CHUNK_BYTES)
                if keys:
                    os.write(master, keys)
                else:
                    sources.discard(self.stdin)
            if master in ready:
                # EIO: nothing holds the other end any more.
                data = b""
                with contextlib.suppress(OSError):
                    data = os.read(master, CHUNK_BYTES)
                if not data:
                    return
                self.write(show(data))
            elif ended in ready:
                sources -= {ended, self.stdin}
                on_end()

    @contextlib.contextmanager
    def _same_size(self, master: int) -> Iterator[None]:
        if not self.is_terminal:
            yield
            return
        import termios

        def resize(*_: object) -> None:
            columns, rows = os.get_terminal_size(self.stdout)
            termios.tcsetwinsize(master, (rows, columns))

        resize()
        before = signal.signal(signal.SIGWINCH, resize)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)
