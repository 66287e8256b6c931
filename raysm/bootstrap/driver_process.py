"""The driver as a child process: its output goes where the bootstrap's goes, the last of its stderr is kept.

What flows in are a command and an environment, what flows out is the driver's exit status and the tail of its stderr.
"""

import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from raysm.bootstrap.children import Child, Children

__all__ = ["DriverProcess"]

TAIL_BYTES = 8192
CHUNK = 65536
STDERR = 2


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
        self.child: Child = children.start(command, env, cwd=cwd, stdin=stdin, stderr=subprocess.PIPE)
        self._tail = b""
        # A thread, because writing to a log that nobody reads blocks, and the heartbeats must not.
        self._tee = threading.Thread(target=self._copy, daemon=True, name="driver-stderr")
        self._tee.start()

    def _copy(self) -> None:
        assert self.child.stderr is not None
        source = self.child.stderr.fileno()
        while chunk := os.read(source, CHUNK):
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]
            # Not through sys.stderr: its lock would be held by this thread when the interpreter ends.
            with contextlib.suppress(OSError):  # nobody reads our log any more: the tail is still wanted
                while chunk:
                    chunk = chunk[os.write(STDERR, chunk) :]

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
        self._tee.join(timeout_s)
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        """Close the pipe, once nobody writes to it any more."""
        self._tee.join(1)
        if not self._tee.is_alive() and self.child.stderr:
            self.child.stderr.close()
