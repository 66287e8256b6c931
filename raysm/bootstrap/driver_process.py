"""The driver as a child process: its lines go where the bootstrap's go, and the last of its stderr is kept."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from raysm.bootstrap.children import Child, Children
from raysm.contract.events import ProgressLines

__all__ = ["DriverProcess"]

TAIL_BYTES = 8192
CHUNK = 65536
STDOUT, STDERR = 1, 2
END_S = 5.0
"""All that wrote has been killed by then: the pipes end at once, unless the log is not read."""


class DriverProcess:
    """The running driver."""

    def __init__(
        self,
        children: Children,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        *,
        waits: bool = False,
    ) -> None:
        """Start it in the folder of the user's source; one that ``waits`` does nothing before ``go``."""
        stdin = subprocess.PIPE if waits else subprocess.DEVNULL
        pipe = subprocess.PIPE
        self.child: Child = children.start(command, env, cwd=cwd, stdin=stdin, stdout=pipe, stderr=pipe)
        self._tail = b""
        # Threads: writing to a log without a reader blocks, and the heartbeats must not wait for it.
        self._copying = [
            threading.Thread(target=self._copy, args=(source, target), daemon=True, name=f"driver output {target}")
            for source, target in ((self.child.stdout, STDOUT), (self.child.stderr, STDERR))
        ]
        for thread in self._copying:
            thread.start()

    def _copy(self, source: IO[bytes], target: int) -> None:
        lines = ProgressLines()
        while chunk := os.read(source.fileno(), CHUNK):
            if target == STDERR:
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
            _write(target, lines.feed(chunk))
        _write(target, lines.rest())

    def go(self, address: str) -> None:
        """Tell one that waits, and was not told yet, where the cluster is; an empty address: there will be none."""
        if self.child.stdin is None or self.child.stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError):  # it has ended, and its status says why
            self.child.stdin.write(f"{address}\n".encode())
            self.child.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()

    def tail(self, timeout_s: float = 0.5) -> str:
        """Return the last of its stderr; wait that long for what is still in the pipe."""
        # A grandchild may hold the pipe open for ever: then the end of the file does not come.
        self._copying[-1].join(timeout_s)
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        """Close the pipes, once nothing is written to them any more."""
        for thread, pipe in zip(self._copying, (self.child.stdout, self.child.stderr), strict=True):
            thread.join(END_S)
            if not thread.is_alive() and pipe:
                pipe.close()


def _write(target: int, data: bytes) -> None:
    # Not through sys.stderr: its lock would be held by this thread when the interpreter ends.
    with contextlib.suppress(OSError):  # The log has lost its reader: the tail is still wanted.
        while data:
            data = data[os.write(target, data) :]
