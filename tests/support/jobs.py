"""Runs whole jobs on local instances, and waits for what they say."""

import contextlib
import dataclasses
import sys
import threading
import time
from pathlib import Path

from raysm.core.protocol import events
from raysm.core.protocol.source import Source
from raysm.core.request import Cluster, JobRequest
from raysm.features.script.request import Script
from raysm.features.training.request import TorchScript
from raysm.local.job_spec import Channel, JobSpec, number_hosts
from raysm.local.local_job import LocalJob
from raysm.local.preparation import local_path
from tests.support.payloads import pack_payload

FORMING_S = 180.0
"""Generous: two cores form a cluster of three in 5 s, and among others' work in a minute."""

ENDS_S = 540.0
"""Until a job has ended: no test waits so long, unless it hangs."""


NOTICES_LOSS_SOON = {"RAY_health_check_period_ms": "200"}
"""The environment of a job that loses an instance and goes on: Ray then takes its node for dead after
five looks that fail, which come each fifth of a second instead of each third second."""


class Log:
    """Every line of every instance, with the moment at which it came."""

    def __init__(self):
        self._came = threading.Condition()
        self.lines = []

    def __call__(self, host, text):
        with self._came:
            self.lines.append((time.monotonic(), host, text))
            self._came.notify_all()

    def wait_for(self, wanted, timeout_s=FORMING_S):
        """Return the moment, host and text of the first line for which ``wanted(host, text)`` holds."""
        deadline_s = time.monotonic() + timeout_s
        seen = 0
        with self._came:
            while True:
                for entry in self.lines[seen:]:
                    if wanted(entry[1], entry[2]):
                        return entry
                seen = len(self.lines)
                if (
                    not self._came.wait(deadline_s - time.monotonic())
                    and time.monotonic() >= deadline_s
                ):
                    raise AssertionError(
                        f"no such line within {timeout_s} s; the log:\n{self.text()}"
                    )

    def wait_for_text(self, text, timeout_s=FORMING_S):
        return self.wait_for(lambda host, line: text in line, timeout_s)

    def events(self, kind=events.State):
        found = (events.parse(text) for _, _, text in self.lines)
        return [event for event in found if isinstance(event, kind)]

    def text(self):
        return "\n".join(f"{host} | {text}" for _, host, text in self.lines)


def script_request(folder: Path, code: str, *, args=(), **fields) -> JobRequest:
    """A request that runs ``code`` as a script on the head."""
    script = folder / "script.py"
    script.write_text(code)
    cluster = fields.pop("cluster", Cluster(count=3))
    return JobRequest(
        name="test-job", workload=Script(str(script), args=args), cluster=cluster, **fields
    )


def training_request(
    folder: Path, code: str, *, cluster, inputs=None, grace_s=100.0, **fields
) -> JobRequest:
    """A request that runs ``code`` as a script written for torchrun; ``fields`` are those of TorchScript."""
    script = folder / "main.py"
    script.write_text(code)
    workload = TorchScript(str(script), **fields)
    return JobRequest(
        name="test-job", workload=workload, cluster=cluster, inputs=inputs or {}, grace_s=grace_s
    )


def spec_of(
    request: JobRequest, root: Path, function: bytes | None = None, source: Source | None = None
) -> JobSpec:
    """What the embedded SageMaker makes of a request; its payload is packed below ``root``."""
    cluster = request.cluster
    groups = [(group.name, group.instance_type, group.count) for group in cluster.groups]
    named = number_hosts(
        *(groups or [("homogeneousCluster", cluster.instance_type, cluster.count)])
    )
    channels = [
        Channel(name=name, source=local_path(name, given.uri), distribution=given.distribution)
        for name, given in request.inputs.items()
    ]
    pack_payload(request, root / "payload", function=function, source=source)
    return JobSpec(
        name=request.name,
        groups=named,
        head=next((group.hosts[0] for group in named if group.name == cluster.head), None),
        command=(sys.executable, "-m", "raysm.instance"),
        channels=(*channels, Channel(name="raysm", source=root / "payload")),
        losses_allowed=cluster.on_instance_loss == "continue",
    )


SPEC_FIELDS = {field.name for field in dataclasses.fields(JobSpec)}


@contextlib.contextmanager
def started(
    request: JobRequest,
    root: Path,
    kind: str = "namespace",
    function: bytes | None = None,
    source: Source | None = None,
    **options,
):
    """Yield a started job and its log; options are fields of its JobSpec, or the LocalJob's.

    A ``function`` is pickled by the name of its module, which is in its ``source``.
    """
    log = Log()
    root.mkdir(parents=True, exist_ok=True)
    fields = {name: options.pop(name) for name in SPEC_FIELDS & options.keys()}
    # Ray would run its workers at the lowest priority, behind all other tests.
    fields["environment"] = {"RAY_worker_niceness": "0"} | dict(fields.get("environment", {}))
    spec = dataclasses.replace(spec_of(request, root, function, source), **fields)
    with LocalJob(spec, root=root, kind=kind, on_line=log, **options) as job:
        job.start()
        yield job, log


def completed(
    request: JobRequest, root: Path, kind: str = "namespace", timeout_s: float = ENDS_S, **options
):
    """Run a job to its end; return its outcome, its log and the folder of its result."""
    with started(request, root, kind, **options) as (job, log):
        outcome = job.wait(timeout_s=timeout_s)
        return outcome, log, job.model_dir
