"""Run the driver with a copy of its metrics in MLflow (``python -m`` this module).

It runs the driver as its child, passes on its output and its signals, writes the metrics in the
output to the job's MLflow run, and ends as the driver does. Errors of MLflow do not end the job.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from raysm.core.protocol import payload as payloads
from raysm.core.protocol.events import Metric, parse
from raysm.core.protocol.metric_patterns import MetricPatterns
from raysm.core.protocol.names import TUNING_OBJECTIVE
from raysm.core.protocol.payload import Payload
from raysm.features.experiments.mirror import Mirror, MlflowRun
from raysm.instance import die_with_parent
from raysm.instance import environment as environments
from raysm.instance.children import Commands
from raysm.instance.log import copy_to_log, remark

DRIVER = Commands().driver
SERVICE_PREFIXES = ("sagemaker_", "_tuning_")

CHUNK = 65536
STDOUT = 1

MAX_LINE_BYTES = 1 << 16
"""Maximum size of a line; only the end of a longer one is parsed."""

DRAIN_S = 2.0

LAST_S = 20.0
STOPPED_LAST_S = 5.0
"""Seconds to write the last values; fewer for a job that is stopped, whose time is short."""


class Lines:
    def __init__(self, take: Callable[[Metric], None], patterns: MetricPatterns) -> None:
        self._take = take
        self._patterns = patterns
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).split(b"\n")
        # A line without an end, such as a progress bar, would grow for days; no event is so long.
        self._rest = rest[-MAX_LINE_BYTES:]
        for line in lines:
            text = line.decode(errors="replace")
            for metric in self._patterns.metrics(text, parse(text), time.time()):
                self._take(metric)


def make_run(
    payload: Payload, job: str = "", hyperparameters: Mapping[str, str] | None = None
) -> MlflowRun:
    request = payload.request
    texts = hyperparameters or {}
    assert request.tracking is not None, "the bootstrap has asked"
    name = request.name
    parameters = {**request.hyperparameters, **request.workload.parameters}
    if TUNING_OBJECTIVE in texts:
        # All trials of a tuning job have the same payload: by its name they would be one
        # run.
        name = job
        parameters |= {
            key: text for key, text in texts.items() if not key.startswith(SERVICE_PREFIXES)
        }
    return MlflowRun(
        uri=request.tracking, experiment=request.project, job=name, parameters=parameters
    )


def main(
    arguments: Sequence[str] = (), driver: Sequence[str] = DRIVER, mirror: Mirror | None = None
) -> int:
    patterns = MetricPatterns(())
    if mirror is None:
        here = environments.read()
        payload = payloads.load(here.payload)
        mirror = Mirror(make_run(payload, here.job_name, here.hyperparameters), say=remark)
        patterns = MetricPatterns((each.name, each.regex) for each in payload.request.metrics)
    child = subprocess.Popen(die_with_parent.wrap([*driver, *arguments]), stdout=subprocess.PIPE)
    stopped = threading.Event()

    def forward(number: int, frame: FrameType | None) -> None:
        # Set before the signal is forwarded: the child may end at once, which must then count as a
        # stop.
        stopped.set()
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    copying = threading.Thread(target=_copy, args=(child, Lines(mirror.add, patterns)), daemon=True)
    copying.start()
    status = child.wait()
    # A background process of the driver may hold its pipe open forever.
    copying.join(DRAIN_S)
    if stopped.is_set():
        mirror.close("KILLED", STOPPED_LAST_S)
    else:
        mirror.close("FAILED" if status else "FINISHED", LAST_S)
    if status < 0:
        # By the same signal, so that the bootstrap sees the same end as without this process.
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _copy(child: "subprocess.Popen[bytes]", lines: Lines) -> None:
    assert child.stdout is not None
    source = child.stdout.fileno()
    while chunk := os.read(source, CHUNK):
        # The log first, because MLflow only gets a copy.
        copy_to_log(STDOUT, chunk)
        lines.feed(chunk)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
