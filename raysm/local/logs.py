"""The logs of a job's instances: lines are read from pipes, written to a file for each host, and passed on.

One thread reads all of them, so that the caller gets one line at a time and needs no lock.
"""

import contextlib
import os
import selectors
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["LogPump", "MAX_LINE"]

MAX_LINE = 1 << 18
"""A line of more bytes is passed on in parts, so that output without newlines does not fill the memory."""


class _Stream:
    """The log of one host."""

    def __init__(self, host: str, file: BinaryIO) -> None:
        self.host = host
        self.file = file
        self.rest = b""


class LogPump:
    """Carries logs until every pipe is closed at its other end.

    Attributes:
        error: What went wrong first: what ``on_line`` raised, which is not called again after that, while the files go
            on to be written; or why a file could not be, while lines go on to be passed on.
    """

    def __init__(self, on_line: Callable[[str, str], None]) -> None:
        """Start the thread; ``on_line(host, line)`` is called in it, with the line's newline removed."""
        self.error: BaseException | None = None
        self._on_line = on_line
        self._is_refused = False
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._closing = False
        self._writers: list[int] = []
        # Reentrant: at the end the thread closes all streams while it holds it.
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._run, name="logs of the instances", daemon=True)
        self._thread.start()

    def open(self, host: str, path: Path) -> int:
        """Return a descriptor to write the log of ``host`` into; ``release`` closes it."""
        reader, writer = os.pipe()
        # select may tell of a pipe that has nothing: the one thread must not wait there for all others.
        os.set_blocking(reader, False)
        with self._lock:
            self._selector.register(reader, selectors.EVENT_READ, _Stream(host, path.open("ab")))
        self._writers.append(writer)
        os.write(self._wake_writer, b".")
        return writer

    def release(self) -> None:
        """Close our own ends, once they were handed on: a log ends when the last process that writes to it does."""
        while self._writers:
            os.close(self._writers.pop())

    def close(self, timeout_s: float = 10.0) -> None:
        """Return once all that was written has been passed on; harmless when repeated.

        Args:
            timeout_s: Give up on pipes that somebody still holds open after this time.
        """
        if self._closing:
            return
        self._closing = True
        self.release()
        os.write(self._wake_writer, b".")
        self._thread.join(timeout_s)
        # A thread that still waits takes the closed pipe as the order to give up.
        os.close(self._wake_writer)
        self._thread.join()
        os.close(self._wake_reader)

    def _run(self) -> None:
        abandoned = False
        while not abandoned:
            with self._lock:
                # One of them is the pipe that wakes this thread.
                streams = len(self._selector.get_map()) - 1
            if self._closing and not streams:
                break
            for key, _ in self._selector.select():
                if key.data is None:
                    abandoned = self._woken()
                else:
                    self._read(key.fd, key.data)
        with self._lock:
            for key in list(self._selector.get_map().values()):
                if key.data is not None:
                    self._end(key.fd, key.data)
            self._selector.close()

    def _woken(self) -> bool:
        """Empty the pipe that wakes us; return whether its other end is closed."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self._wake_reader, 4096) == b""
        return False

    def _read(self, fd: int, stream: _Stream) -> None:
        try:
            # As much as a pipe of Linux holds.
            chunk = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if not chunk:
            self._end(fd, stream)
            return
        with self._noting():
            stream.file.write(chunk)
            stream.file.flush()
        *lines, stream.rest = (stream.rest + chunk).split(b"\n")
        for line in lines:
            self._pass_on(stream.host, line)
        while len(stream.rest) > MAX_LINE:
            self._pass_on(stream.host, stream.rest[:MAX_LINE])
            stream.rest = stream.rest[MAX_LINE:]

    def _end(self, fd: int, stream: _Stream) -> None:
        with self._lock:
            self._selector.unregister(fd)
        os.close(fd)
        with self._noting():
            stream.file.close()
        if stream.rest:
            self._pass_on(stream.host, stream.rest)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Go on where a file cannot be written: an instance whose pipe nobody reads would wait for ever."""
        try:
            yield
        except OSError as error:
            self.error = self.error or error

    def _pass_on(self, host: str, line: bytes) -> None:
        if self._is_refused:
            return
        try:
            self._on_line(host, line.decode("utf-8", errors="replace").removesuffix("\r"))
        # Whatever it is: it is raised again where the job is waited for, and here it would end all other logs.
        except BaseException as error:
            self._is_refused = True
            self.error = self.error or error
