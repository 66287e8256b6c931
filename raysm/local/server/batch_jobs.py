"""Jobs of the embedded Batch: their records, the queue, and the programs that run them.

::

    RUNNABLE ── RUNNING ── SUCCEEDED
       ▲           ├────── FAILED
       └───────────┘ retry

A program is the main process of an instance (``raysm.local.instances``), by default of kind ``process``. It gets
Batch's variables (https://docs.aws.amazon.com/batch/latest/userguide/job_env_vars.html) and the address of this server,
so that boto3, the SDK and ``raysm`` inside it reach this server. The jobs are forgotten when the server ends.
"""

import contextlib
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import raysm
from raysm.contract.home import VARIABLE, Clock, sdk_config_file
from raysm.errors import RaysmError
from raysm.local.instances import Instance, InstanceSpec, Site, open_site
from raysm.local.server.definitions import kind_of
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.validation import ApiError
from raysm.request.targets import instance_kind

LOG = logging.getLogger(__name__)
LOG_GROUP = "/aws/batch/job"
FINAL = ("SUCCEEDED", "FAILED")
STEP_S = 0.2
MAX_PROGRAMS = 16
"""Programs that run at a time, even with more vCPUs: the controllers of a grid mostly wait."""
MAX_LINES = 5_000
"""Lines in one request to CloudWatch Logs, which takes at most 10,000 lines and 1 MiB."""
GRACE_S = 30.0
"""Seconds from SIGTERM to SIGKILL, as on ECS."""


@dataclass(kw_only=True, slots=True)
class Attempt:
    """One run of a job's program; times are seconds since the epoch."""

    stream: str = ""
    started_s: float
    stopped_s: float | None = None
    reason: str = ""
    exit_code: int | None = None


@dataclass(kw_only=True, slots=True)
class BatchJob:
    """One job, or an array of jobs with its children."""

    id: str
    """A UUID; a child of an array has its index too: ``UUID:3``."""
    arn: str
    name: str
    region: str
    queue: str
    """ARN."""
    environment: str
    """Name of the queue's compute environment."""
    vcpus_limit: float
    """vCPUs of that environment."""
    request: Mapping[str, Any]
    """The SubmitJob request merged with the job definition."""
    created_s: float
    status: str = "RUNNABLE"
    reason: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    stopped_s: float | None = None
    size: int | None = None
    """Number of children, for an array and its children."""
    index: int | None = None
    children: "list[BatchJob]" = field(default_factory=list)
    termination_reason: str | None = None
    """Reason of a request to terminate the job."""

    @property
    def vcpus(self) -> float:
        """The vCPUs that it needs."""
        container = container_of(self)
        requirements = {item["type"]: item["value"] for item in container.get("resourceRequirements") or []}
        return float(requirements.get("VCPU") or container.get("vcpus") or 1)


@dataclass(kw_only=True, slots=True)
class _Program:
    site: Site
    instance: Instance
    folder: Path
    stopping_since_s: float | None = None


class BatchJobs:
    """All jobs; a thread starts their programs in the order of submission and watches them."""

    def __init__(self, home: Path, clock: Clock, moto: MotoServices) -> None:
        self._home, self._clock, self._moto = home, clock, moto
        self._folder = home / "batch" / "work"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._jobs: dict[str, BatchJob] = {}
        self._programs: dict[str, _Program] = {}
        self._lock = threading.RLock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.url = ""

    def add(self, job: BatchJob) -> None:
        """Queue a job, and its children."""
        with self._lock:
            for one in (job, *job.children):
                self._jobs[one.id] = one
            if self._thread is None and not self._ending.is_set():
                self._thread = threading.Thread(target=self._run, name="batch", daemon=True)
                self._thread.start()

    def find(self, named: str, region: str) -> BatchJob | None:
        """Return the job of an id or ARN in a region, or None."""
        with self._lock:
            job = self._jobs.get(named.rpartition("/")[2])
        return job if job is not None and job.region == region else None

    def all(self, queue: str) -> list[BatchJob]:
        """Return the jobs of a queue, without the children of arrays."""
        with self._lock:
            return [job for job in self._jobs.values() if job.queue == queue and job.index is None]

    @property
    def running(self) -> bool:
        """True while a job has not ended."""
        with self._lock:
            return any(job.status not in FINAL for job in self._jobs.values())

    def terminate(self, job: BatchJob, reason: str) -> None:
        """End a job, or all children of an array, if they have not ended."""
        with self._lock:
            for one in job.children or [job]:
                one.termination_reason = reason
            self.step()

    def shut_down(self) -> None:
        """End all programs at once, and start no more."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        for program in self._programs.values():
            program.site.close()
            shutil.rmtree(program.folder, ignore_errors=True)

    def _run(self) -> None:
        while not self._ending.wait(STEP_S):
            try:
                self.step()
            except Exception:
                LOG.exception("a step of the embedded Batch failed")

    def step(self) -> None:
        """Watch programs that run, start those that wait, and finish arrays."""
        with self._lock:
            open_jobs = [job for job in self._jobs.values() if job.status not in FINAL]
            for job in open_jobs:
                if job.status == "RUNNING":
                    self._watch(job)
                elif not job.children and job.termination_reason is not None:
                    self._finish(job, "FAILED", job.termination_reason)
            waiting = [job for job in open_jobs if job.status == "RUNNABLE" and not job.children]
            running = [job for job in open_jobs if job.status == "RUNNING"]
            for job in waiting:
                used = sum(one.vcpus for one in running if one.environment == job.environment)
                # Jobs behind one that does not fit wait with it, so that small jobs do not starve a large one.
                if used + job.vcpus > job.vcpus_limit or len(self._programs) >= MAX_PROGRAMS:
                    break
                self._start(job)
                running.append(job)
            for job in open_jobs:
                if job.children and all(child.status in FINAL for child in job.children):
                    is_failed = any(child.status == "FAILED" for child in job.children)
                    status, reason = ("FAILED", "Array Child Job failed") if is_failed else ("SUCCEEDED", "")
                    self._finish(job, status, reason)

    def _finish(self, job: BatchJob, status: str, reason: str) -> None:
        job.status, job.reason, job.stopped_s = status, reason, self._clock.now()

    def _start(self, job: BatchJob) -> None:
        container, number = container_of(job), len(job.attempts) + 1
        # A folder for each attempt; the colon of a child's id is not allowed in names on all systems.
        folder = self._folder / f"{job.id.replace(':', '-')}-{number}"
        definition = str(job.request["jobDefinition"]).rpartition("/")[2].partition(":")[0]
        kind = kind_of(container["image"], job.request.get("tags") or {}, "process")
        job.status = "RUNNING"
        job.attempts.append(Attempt(started_s=self._clock.now(), stream=f"{definition}/default/{folder.name}"))
        try:
            for each in (folder, folder / "ml", folder / "private"):
                each.mkdir(exist_ok=True, mode=0o700)
            site = open_site(kind, container["image"] if instance_kind(kind).needs_image else None)
            with (folder / "log").open("ab") as stream:
                spec = InstanceSpec(
                    host="algo-1",
                    base=folder / "ml",
                    private=folder / "private",
                    command=command_of(job),
                    variables={**self._server_variables(job), **variables_of(job, number)},
                    log_fd=stream.fileno(),
                )
                instance = site.start([spec])[0]
        except (RaysmError, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            self._end_attempt(job, f"CannotStartContainerError: {error}", None)
            return
        self._programs[job.id] = _Program(site=site, instance=instance, folder=folder)

    def _server_variables(self, job: BatchJob) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])  # noqa: TID251
        variables = {
            "PATH": path,
            "LANG": "C.UTF-8",
            # The server takes any credentials.
            "AWS_ACCESS_KEY_ID": "raysm",
            "AWS_SECRET_ACCESS_KEY": "raysm",
            "AWS_DEFAULT_REGION": job.region,
            "AWS_REGION": job.region,
            "AWS_ENDPOINT_URL": self.url,
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(sdk_config_file(self._home)),
            VARIABLE: str(self._home),
        }
        # PYTHONPATH would put the site-packages of an installed raysm before the standard library.
        source = Path(raysm.__file__).parent.parent
        return variables if "site-packages" in source.parts else {**variables, "PYTHONPATH": str(source)}

    def _watch(self, job: BatchJob) -> None:
        program = self._programs[job.id]
        # ``exited`` is set when everything in the instance is gone.
        if program.instance.exited.done():
            code = program.instance.exited.result()
            del self._programs[job.id]
            try:
                self._send_log(job, program.folder / "log")
            except Exception:
                LOG.exception("the log lines of the job %s of the embedded Batch are lost", job.id)
            program.site.close()
            shutil.rmtree(program.folder, ignore_errors=True)
            self._end_attempt(job, "Essential container in task exited", code)
            return
        limit_s = (job.request.get("timeout") or {}).get("attemptDurationSeconds")
        if job.termination_reason is None and limit_s and self._clock.now() - job.attempts[-1].started_s >= limit_s:
            job.termination_reason = "Job attempt duration exceeded timeout"
        if job.termination_reason is None:
            return
        if program.stopping_since_s is None:
            program.stopping_since_s = time.monotonic()
            program.instance.signal(signal.SIGTERM)
        elif time.monotonic() - program.stopping_since_s > GRACE_S:
            program.instance.kill()

    def _end_attempt(self, job: BatchJob, reason: str, code: int | None) -> None:
        attempt = job.attempts[-1]
        attempt.stopped_s, attempt.reason, attempt.exit_code = self._clock.now(), reason, code
        # AWS fails a terminated job even if its program succeeded meanwhile.
        if job.termination_reason is not None:
            self._finish(job, "FAILED", job.termination_reason)
        elif code == 0:
            self._finish(job, "SUCCEEDED", reason)
        elif is_retried(job.request.get("retryStrategy") or {}, len(job.attempts), reason, code):
            job.status, job.reason = "RUNNABLE", reason
        else:
            self._finish(job, "FAILED", reason)

    def _send_log(self, job: BatchJob, log: Path) -> None:
        try:
            at_ms, text = round(log.stat().st_mtime * 1000), log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return  # the home was deleted
        client, stream = self._moto.client("logs", job.region), job.attempts[-1].stream
        with contextlib.suppress(client.exceptions.ResourceAlreadyExistsException):
            client.create_log_group(logGroupName=LOG_GROUP)
        client.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
        # CloudWatch takes no empty message.
        events = [{"timestamp": at_ms, "message": line} for line in text.splitlines() if line.strip()]
        for begin in range(0, len(events), MAX_LINES):
            chunk = events[begin : begin + MAX_LINES]
            client.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=chunk)


def container_of(job: BatchJob) -> Mapping[str, Any]:
    """Return the definition's containerProperties with the overrides of the request."""
    properties = job.request["containerProperties"]
    overrides = {name: value for name, value in (job.request.get("containerOverrides") or {}).items() if value}
    environment = {**_variables(properties), **_variables(overrides)}
    listed = [{"name": name, "value": value} for name, value in environment.items()]
    return {**properties, **overrides, "environment": listed}


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container.get("environment") or []}


def command_of(job: BatchJob) -> tuple[str, ...]:
    """Return the command, with ``Ref::name`` replaced by the job's parameters.

    Raises:
        ApiError: There is no command; the image's own is not known here.
    """
    container, parameters = container_of(job), job.request.get("parameters") or {}
    if not container.get("command"):
        raise ApiError(
            "ClientException",
            f"the embedded Batch does not know the entry point of the image {container['image']!r}: give command in "
            "containerProperties or containerOverrides",
        )
    # AWS leaves a reference to an unknown parameter as it is.
    return tuple(
        parameters.get(word.removeprefix("Ref::"), word) if word.startswith("Ref::") else word
        for word in container["command"]
    )


def variables_of(job: BatchJob, attempt: int) -> dict[str, str]:
    """Return the environment variables of an attempt: the job's own, and those that Batch sets."""
    variables = {
        "AWS_BATCH_JOB_ID": job.id,
        "AWS_BATCH_JQ_NAME": job.queue.rpartition("/")[2],
        "AWS_BATCH_CE_NAME": job.environment,
        "AWS_BATCH_JOB_ATTEMPT": str(attempt),
    }
    if job.index is not None:
        variables |= {"AWS_BATCH_JOB_ARRAY_INDEX": str(job.index), "AWS_BATCH_JOB_ARRAY_SIZE": str(job.size)}
    return {**_variables(container_of(job)), **variables}


def is_retried(strategy: Mapping[str, Any], attempts: int, reason: str, code: int | None) -> bool:
    """Return whether another attempt follows one that failed.

    See https://docs.aws.amazon.com/batch/latest/APIReference/API_RetryStrategy.html.
    """
    if attempts >= strategy.get("attempts", 1):
        return False
    ending = {"onExitCode": "" if code is None else str(code), "onReason": reason, "onStatusReason": reason}
    for rule in strategy.get("evaluateOnExit") or []:
        conditions = {name: pattern for name, pattern in rule.items() if name != "action" and pattern}
        # A pattern may end with an asterisk, and has no other wildcards.
        if all(
            ending[name].startswith(pattern[:-1]) if pattern.endswith("*") else ending[name] == pattern
            for name, pattern in conditions.items()
        ):
            return bool(rule["action"].upper() == "RETRY")
    return True
