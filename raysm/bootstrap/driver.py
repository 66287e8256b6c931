"""Run the driver as a child process and turn its end into the job's exit status.

The exit status comes from the failure that the driver recorded, from the last lines of its stderr, or from the signal
that killed it. The driver's output is copied to the job's log.
"""

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import IO

from raysm.bootstrap import exit_status, resources
from raysm.bootstrap.children import WAIT, Child, Children
from raysm.bootstrap.exit_status import ExitStatus, exit_status_of_driver
from raysm.bootstrap.instance import Instance
from raysm.bootstrap.lifecycle import DriverEnded
from raysm.bootstrap.scratch import private_tempdir
from raysm.contract.events import ProgressLines
from raysm.contract.result import Failure

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


class DriverRun:
    """One run of the driver, from its start to its folder's end."""

    def __init__(
        self, instance: Instance, children: Children, address: str | None, report: Callable[[DriverEnded], None]
    ) -> None:
        """Start the driver.

        Args:
            instance: The head.
            children: The processes of the head.
            address: The cluster's address; None starts a driver that waits until there is one.
            report: Called in the event loop when the driver has ended.
        """
        self._instance = instance
        self._exit = contextlib.ExitStack()
        # In the instance's own folder: a head that is killed leaves nothing in a /tmp that it may share with others.
        folder = self._exit.enter_context(private_tempdir(instance.environment.paths))
        self._record = folder / "failure.json"
        is_tracked = instance.payload.request.is_tracked_by_head
        driver = instance.commands.tracked_driver if is_tracked else instance.commands.driver
        command = (*driver, *([WAIT] if address is None else []))
        environment = instance.driver_environment(address, str(self._record))
        # Before the driver: a kernel that kills it at once would be missing from the difference.
        self._oom_kills = resources.oom_kills()
        source = instance.payload.source
        self._process = DriverProcess(children, command, environment, source, waits=address is None)
        self._process.child.ended.add_done_callback(
            lambda ended: report(DriverEnded(ended.result(), exit_status.read_failure(self._record)))
        )

    def go(self, address: str) -> None:
        """Tell a driver that waits where the cluster is; an empty address: there will be none."""
        self._process.go(address)

    def terminate(self) -> None:
        """Send it SIGTERM, and nothing to what it has started: its checkpoint may need that."""
        self._process.child.signal(SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to it and to what it has left behind in its process group."""
        self._process.child.signal_group(SIGKILL)

    def own_exit_status(self) -> ExitStatus | None:
        """Return the exit status that the driver's own failure makes, if it has recorded one; publish that.

        None where it has not failed, or says that Ray or an instance failed it.
        """
        failure = exit_status.read_failure(self._record)
        if failure is None or exit_status.blames_cluster(failure):
            return None
        return self._publish(ExitStatus(failure.exit_code, failure.reason()), failure)

    def exit_status(self, end: DriverEnded) -> ExitStatus:
        """Return the exit status that the driver's end makes; publish the failure that it has recorded."""
        now, before = resources.oom_kills(), self._oom_kills
        meanwhile = None if now is None or before is None else now - before
        self.kill()  # what it left behind holds its stderr open
        memory_bytes = self._instance.capacity.memory_bytes
        status = exit_status_of_driver(end.status, end.failure, self._process.tail(), memory_bytes, meanwhile)
        return self._publish(status, end.failure)

    def _publish(self, status: ExitStatus, failure: Failure | None) -> ExitStatus:
        if failure is not None and status.reason:
            exit_status.publish_failure(self._record, self._instance.environment.paths.output_data)
        return status

    def close(self) -> None:
        """Forget a driver that has ended, and remove its folder."""
        self._process.go("")  # one that still waits has a pipe to be closed
        self._process.close()
        self._exit.close()
