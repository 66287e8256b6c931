"""``python -m raysm.workloads.tracked``: the driver, with a copy of its metrics in MLflow.

The bootstrap starts it instead of the driver if the head copies metrics. It runs the driver as its child, passes on its
output and its signals, writes the metrics in the output to the job's MLflow run, and ends as the driver does. Errors of
MLflow do not end the job.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from raysm.bootstrap import die_with_parent
from raysm.bootstrap import environment as environments
from raysm.bootstrap.children import Commands
from raysm.bootstrap.log import remark
from raysm.contract import payload as payloads
from raysm.contract.events import Metric, parse
from raysm.contract.mirror import End, Mirror, MlflowRun
from raysm.contract.names import TUNING_OBJECTIVE
from raysm.contract.payload import Payload

DRIVER = Commands().driver

SERVICE_PREFIXES = ("sagemaker_", "_tuning_")
"""Prefixes of hyperparameters that a tuning job or a framework's image sets for itself."""

CHUNK = 65536
STDOUT = 1

MAX_LINE_BYTES = 1 << 16
"""Maximum size of a line; only the end of a longer one is parsed."""

DRAIN_S = 2.0
"""Seconds to read the rest of the pipe once the driver has ended: a background process may keep it open."""

LAST_S = 20.0
STOPPED_LAST_S = 5.0
"""Seconds to write the last values; fewer for a job that is stopped, whose time is short."""


class Lines:
    """Splits output into lines, and passes the metrics in them to ``take``."""

    def __init__(self, take: Callable[[Metric], None]) -> None:
        self._take = take
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the output."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        # A line without an end, such as a progress bar, would grow for days; no event is so long.
        self._rest = rest[-MAX_LINE_BYTES:]
        for line in lines:
            match parse(line.decode(errors="replace")):
                case Metric() as metric:
                    self._take(metric)


def run_of(payload: Payload, job: str = "", hyperparameters: Mapping[str, str] | None = None) -> MlflowRun:
    """Return the MLflow run of the payload's job; a follow-up has the same payload and so the same run."""
    request, texts = payload.request, hyperparameters or {}
    assert request.tracking is not None, "the bootstrap has asked"
    name, parameters = request.name, {**request.hyperparameters, **request.workload.parameters}
    if TUNING_OBJECTIVE in texts:
        # All trials of a tuning job travel with the same payload: by its name they would be one run.
        name = job
        parameters |= {key: text for key, text in texts.items() if not key.startswith(SERVICE_PREFIXES)}
    return MlflowRun(uri=request.tracking, experiment=request.project, job=name, parameters=parameters)


def main(arguments: Sequence[str] = (), driver: Sequence[str] = DRIVER, mirror: Mirror | None = None) -> int:
    """Run the driver; return its exit code, or end by the signal that ended it."""
    mirror = mirror or _mirror()
    child = subprocess.Popen(die_with_parent.wrap([*driver, *arguments]), stdout=subprocess.PIPE)
    stopped = threading.Event()

    def forward(number: int, frame: FrameType | None) -> None:
        # Set before the signal is forwarded: the child may end at once, which must then count as a stop.
        stopped.set()
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    copying = threading.Thread(target=_copy, args=(child, Lines(mirror.add)), daemon=True)
    copying.start()
    status = child.wait()
    # A background process of the driver may hold its pipe open forever.
    copying.join(DRAIN_S)
    mirror.close(_run_status(status, is_stopped=stopped.is_set()), STOPPED_LAST_S if stopped.is_set() else LAST_S)
    if status < 0:
        _die(-status)
    return status


def _mirror() -> Mirror:
    environment = environments.read()
    run = run_of(payloads.load(environment.payload), environment.job_name, environment.hyperparameters)
    return Mirror(run, say=remark)


def _copy(child: "subprocess.Popen[bytes]", lines: Lines) -> None:
    assert child.stdout is not None
    source = child.stdout.fileno()
    while chunk := os.read(source, CHUNK):
        # The log first, because MLflow only gets a copy.
        _write(chunk)
        lines.feed(chunk)


def _write(chunk: bytes) -> None:
    with contextlib.suppress(OSError):  # the log is not read any more, which must not block the driver
        while chunk:
            chunk = chunk[os.write(STDOUT, chunk) :]


def _run_status(status: int, *, is_stopped: bool) -> End:
    if is_stopped:
        return "KILLED"
    return "FINISHED" if status == 0 else "FAILED"


def _die(number: int) -> None:
    """End by the signal that ended the driver, so that the bootstrap sees the same end as without this process."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
