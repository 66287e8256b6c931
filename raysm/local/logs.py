"""The logs of a job's instances.

A thread for each host reads a pipe, writes its file, and passes on its lines.
"""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from io import RawIOBase
from pathlib import Path

MAX_LINE = 1 << 18
"""A longer line, in bytes, is passed on in parts, so that output without newlines does not fill the
memory."""


class LogPump:
    """Carries logs until every pipe is closed at its other end.

    Attributes:
        error: The first error, or None. An error of ``on_line`` ends the calls of it; after an
            error of a log file, lines are still passed on.
    """

    def __init__(self, on_line: Callable[[str, str], None]) -> None:
        self.error: BaseException | None = None
        self._on_line = on_line
        self._is_refused = False
        self._lock = threading.Lock()
        self._writers: list[int] = []
        self._threads: list[threading.Thread] = []
        # Closing the second end makes all threads give up.
        self._give_up, self._closer = os.pipe()
        self._is_closed = False

    def open(self, host: str, path: Path) -> int:
        file = path.open("ab", buffering=0)
        reader, writer = os.pipe()
        self._writers.append(writer)
        thread = threading.Thread(
            target=self._run, args=(host, reader, file), name=f"log of {host}", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return writer

    def release(self) -> None:
        """Close our own ends, once the instances have them.

        A log ends with the last process that writes to it.
        """
        while self._writers:
            os.close(self._writers.pop())

    def close(self, timeout_s: float = 10.0) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.release()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        os.close(self._closer)
        for thread in self._threads:
            thread.join()
        os.close(self._give_up)

    def _run(self, host: str, reader: int, file: RawIOBase) -> None:
        rest = b""
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        poll.register(self._give_up, select.POLLIN)
        try:
            while reader in dict(poll.poll()):
                # As much as a pipe of Linux holds.
                chunk = os.read(reader, 1 << 16)
                if not chunk:
                    break
                # A full disk must not stop the reading: the instance would wait forever for its
                # pipe.
                with self._noting_errors():
                    file.write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._pass_on(host, line)
                while len(rest) > MAX_LINE:
                    self._pass_on(host, rest[:MAX_LINE])
                    rest = rest[MAX_LINE:]
        finally:
            os.close(reader)
            with self._noting_errors():
                file.close()
        if rest:
            self._pass_on(host, rest)

    @contextlib.contextmanager
    def _noting_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = self.error or error

    def _pass_on(self, host: str, line: bytes) -> None:
        with self._lock:
            if self._is_refused:
                return
            try:
                self._on_line(host, line.decode("utf-8", errors="replace").removesuffix("\r"))
            # ``LocalJob.wait`` raises the error.
            except BaseException as error:
                self._is_refused = True
                self.error = self.error or error
