"""Run the driver as a child process and turn its end into the job's exit status.

The exit status comes from the failure that the driver recorded, from the last lines of its stderr,
or from the signal that killed it. The driver's output is copied to the job's log.
"""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable
from signal import SIGKILL, SIGTERM
from typing import IO

from raysm.core.protocol.events import MARK, ProgressLines, is_usage, parse
from raysm.core.protocol.result import EXCEPTION, FAILURE, VALUE, Failure
from raysm.core.protocol.store import put
from raysm.instance import exit_status, resources
from raysm.instance.children import WAIT, Children
from raysm.instance.exit_status import ExitStatus, exit_status_of_driver
from raysm.instance.instance import Instance
from raysm.instance.lifecycle import DriverEnded
from raysm.instance.log import copy_to_log
from raysm.instance.scratch import private_tempdir

TAIL_BYTES = 64 << 10
"""More than the traceback of a crash with its list of extension modules, which has some 8 KiB with
torch."""
CHUNK = 65536
STDOUT = 1
STDERR = 2
EVENT = MARK.encode()
END_S = 5.0
"""Seconds to read the rest of the output; all writers have been killed, so only a blocked log takes
longer."""


def measures_only(lines: bytes) -> bool:
    """Return whether lines only say how busy instances are: a stalled job writes such lines."""
    if not lines.startswith(EVENT):
        return not lines
    events = (parse(line.decode(errors="replace")) for line in lines.splitlines())
    return all(event is not None and is_usage(event) for event in events)


class DriverRun:
    def __init__(
        self,
        instance: Instance,
        children: Children,
        address: str | None,
        report: Callable[[DriverEnded], None],
        on_lines: Callable[[bytes], None],
    ) -> None:
        """Start the driver; with None as the cluster's address, it waits for ``go``.

        Threads call ``on_lines`` with complete lines of its output, after these are in the log.
        """
        self._instance = instance
        self._on_lines = on_lines
        self._exit = contextlib.ExitStack()
        # The instance's own folder, because a killed head must leave no files in a /tmp that others
        # may share.
        folder = self._exit.enter_context(private_tempdir(instance.environment.paths))
        self._record = folder / "failure.json"
        is_tracked = instance.payload.request.is_tracked_by_head
        driver = instance.commands.tracked_driver if is_tracked else instance.commands.driver
        # Counted before the driver starts, because the kernel may kill it at once.
        self._oom_kills = resources.oom_kills()
        self._child = children.start(
            driver if address else (*driver, WAIT),
            instance.driver_environment(address, str(self._record)),
            cwd=instance.payload.source,
            stdin=subprocess.DEVNULL if address else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._child.ended.add_done_callback(
            lambda ended: report(
                DriverEnded(ended.result(), exit_status.read_failure(self._record))
            )
        )
        self._tail = b""
        self.line_s = time.monotonic()
        """When the driver wrote its last line, on a monotonic clock."""
        # Threads, because writing to a blocked log must not delay the heartbeats.
        self._copying = [
            threading.Thread(
                target=self._copy,
                args=(source, target),
                daemon=True,
                name=f"driver output {target}",
            )
            for source, target in ((self._child.stdout, STDOUT), (self._child.stderr, STDERR))
        ]
        for thread in self._copying:
            thread.start()

    def _copy(self, source: IO[bytes], target: int) -> None:
        lines = ProgressLines()
        while chunk := os.read(source.fileno(), CHUNK):
            if target == STDERR:
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
            self._log(target, lines.feed(chunk))
        self._log(target, lines.rest())

    def _log(self, target: int, lines: bytes) -> None:
        if not measures_only(lines):
            self.line_s = time.monotonic()
        copy_to_log(target, lines)
        self._on_lines(lines)

    def go(self, address: str) -> None:
        self._child.send_line(address)

    def terminate(self) -> None:
        """Send SIGTERM to the driver, but not to its children, which a checkpoint may need."""
        self._child.signal(SIGTERM)

    def kill(self) -> None:
        self._child.signal_group(SIGKILL)

    def tail(self, timeout_s: float = 0.5) -> str:
        """Return the end of its stderr; wait up to ``timeout_s`` for output still in the pipe."""
        # The wait is limited, because a grandchild may hold the pipe open forever.
        self._copying[-1].join(timeout_s)
        return self._tail.decode(errors="replace")

    def own_exit_status(self) -> ExitStatus | None:
        """Publish the failure that the driver has recorded; return its exit status.

        Returns:
            None without a failure, or if it blames Ray or an instance.
        """
        failure = exit_status.read_failure(self._record)
        if failure is None or exit_status.blames_cluster(failure):
            return None
        return self._publish(ExitStatus(failure.exit_code, failure.reason()), failure)

    def exit_status(self, end: DriverEnded) -> ExitStatus:
        """Return the exit status for the driver's end; publish the failure that it has recorded."""
        if end.status == 0 and (unfinished := self._unfinished()):
            return ExitStatus(1, f"{unfinished}: it was left by os._exit")
        now = resources.oom_kills()
        before = self._oom_kills
        meanwhile = None if now is None or before is None else now - before
        self.kill()  # other processes of its group hold its stderr open
        memory_bytes = resources.memory_limit()
        status = exit_status_of_driver(
            end.status, end.failure, self.tail(), memory_bytes, meanwhile
        )
        return self._publish(status, end.failure)

    def _unfinished(self) -> str:
        """Return what shows that user code ended the driver with code 0 before the workload's end.

        Return "" if nothing shows this.
        """
        workload = self._instance.payload.request.workload
        if workload.returns_value and not (self._instance.environment.paths.model / VALUE).exists():
            return "the function's process ended with code 0 before the function returned"
        if workload.marks_end and not exit_status.end_beside(self._record).exists():
            return f"the process of {workload.label} ended with code 0 while it ran"
        return ""

    def _publish(self, status: ExitStatus, failure: Failure | None) -> ExitStatus:
        if failure is not None and status.reason:
            outputs = self._instance.environment.paths.output_data
            for source, name in (
                (self._record, FAILURE),
                (exit_status.exception_beside(self._record), EXCEPTION),
            ):
                # On a full disk, the failure file and the exit code remain.
                with contextlib.suppress(OSError):
                    put(outputs / name, source.read_bytes())
        return status

    def close(self) -> None:
        self._child.send_line("")
        for thread, pipe in zip(
            self._copying, (self._child.stdout, self._child.stderr), strict=True
        ):
            thread.join(END_S)
            if not thread.is_alive() and pipe:
                pipe.close()
        self._exit.close()
