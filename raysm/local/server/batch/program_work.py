"""Jobs of containers: a definition's command flows in, a program of this machine flows out, and its lines in a log.

It runs as the main process of an instance (``raysm.local.instances``): a process, unless the image or the tag of the
job names another kind. What it is told is what Batch tells it, and where this server listens, so that boto3, the SDK
and ``raysm`` in it mean this AWS.
https://docs.aws.amazon.com/batch/latest/userguide/job_env_vars.html
"""

import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import raysm
from raysm.contract.home import VARIABLE, sdk_config_file
from raysm.errors import RaysmError
from raysm.local.instances import Instance, InstanceSpec, Site, open_site
from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.model import client_error
from raysm.local.server.batch.records import BatchJob
from raysm.local.server.definitions import kind_of
from raysm.local.server.moto_services import MotoServices
from raysm.request.targets import instance_kind

__all__ = ["LOG_GROUP", "NotNow", "ProgramWork", "Seen", "command_of", "container_of", "variables_of"]

LOG = logging.getLogger(__name__)
LOG_GROUP = "/aws/batch/job"
DEFAULT_KIND = "process"
MOST = 16
"""Programs at a time: an environment of 256 vCPUs is not on a laptop, and those of a grid wait more than they work."""
MOST_LINES = 5_000
"""In a request to the log, which takes 10,000 of them and 1 MiB."""
TELLINGS = 25
"""Looks at which lines that cannot be told are tried again, 5 s: where files are short, others end meanwhile."""
GRACE_S = 30.0
"""From SIGTERM to SIGKILL: what ECS gives a container."""
ENDED = "Essential container in task exited"


class NotNow(Exception):
    """An attempt cannot begin now and may later; the message becomes the job's reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """How an attempt is."""

    status: str
    """One of ACTIVE, or of FINAL if it has ended."""
    reason: str = ""
    """Why it ended."""
    exit_code: int | None = None
    """None while it runs, or if its program is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Program:
    """One that runs."""

    site: Site
    instance: Instance
    log: Path
    folder: Path


class ProgramWork:
    """Starts, watches and ends the program of each attempt."""

    def __init__(self, home: Path, moto: MotoServices) -> None:
        """Keep what runs below ``home``; lines go to the logs of ``moto``."""
        self._home, self._moto = home, moto
        self._folder = home / "batch" / "work"
        # Once: a home that was deleted is not to come back by its last programs.
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._programs: dict[str, _Program] = {}
        # When each was asked to end, on the monotonic clock.
        self._asked: dict[str, float] = {}
        # How often the lines of each could not be told.
        self._untold: Counter[str] = Counter()
        self._url = ""

    def listen(self, url: str) -> None:
        """Say where this server listens: what programs are told."""
        self._url = url

    def capacity(self, environment: Mapping[str, Any]) -> float:
        """Return how many vCPUs there are; of an unmanaged environment nobody knows."""
        return float((environment.get("computeResources") or {}).get("maxvCpus") or float("inf"))

    def need(self, job: BatchJob) -> float:
        """Return how many vCPUs a job takes."""
        container = container_of(job)
        requirements = {item["type"]: item["value"] for item in container.get("resourceRequirements") or []}
        return float(requirements.get("VCPU") or container.get("vcpus") or 1)

    def limit_s(self, job: BatchJob) -> float | None:
        """Return the limit of an attempt."""
        seconds = (job.request.get("timeout") or {}).get("attemptDurationSeconds")
        return None if seconds is None else float(seconds)

    def begin(self, job: BatchJob) -> str:
        """Start the program."""
        if len(self._programs) >= MOST:
            raise NotNow(f"this machine runs {MOST} programs at a time")
        container = container_of(job)
        # Of the attempt: the one before may have left something that this one would take for its own.
        # The children of an array have the array's id, and a folder has no colon on all systems.
        folder = self._folder / f"{job.id.replace(':', '-')}-{len(job.tries) + 1}"
        base, private = folder / "ml", folder / "private"
        log = folder / "log"
        kind = kind_of(container["image"], job.tags, DEFAULT_KIND)
        try:
            for each in (folder, base, private):
                each.mkdir(exist_ok=True, mode=0o700)
            site = open_site(kind, container["image"] if instance_kind(kind).needs_image else None)
            with log.open("ab") as stream:
                spec = InstanceSpec(
                    host="algo-1",
                    base=base,
                    private=private,
                    command=command_of(job),
                    variables={**self._surroundings(job), **variables_of(job)},
                    log_fd=stream.fileno(),
                )
                instance = site.start([spec])[0]
        except (RaysmError, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise ApiError("CannotStartContainerError", f"CannotStartContainerError: {error}") from error
        self._programs[job.id] = _Program(site=site, instance=instance, log=log, folder=folder)
        definition = job.request["jobDefinition"].rpartition("/")[2].partition(":")[0]
        return f"{definition}/default/{folder.name}"

    def _surroundings(self, job: BatchJob) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])  # noqa: TID251
        variables = {
            "PATH": path,
            "LANG": "C.UTF-8",
            # The role of a job, as boto3 in it finds it: any keys will do.
            "AWS_ACCESS_KEY_ID": "raysm",
            "AWS_SECRET_ACCESS_KEY": "raysm",
            "AWS_DEFAULT_REGION": job.region,
            "AWS_REGION": job.region,
            "AWS_ENDPOINT_URL": self._url,
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(sdk_config_file(self._home)),
            VARIABLE: str(self._home),
        }
        # A raysm that runs from its sources is nowhere else to be found; an installed one must not come before the
        # standard library, as PYTHONPATH does.
        source = Path(raysm.__file__).parent.parent
        return variables if "site-packages" in source.parts else {**variables, "PYTHONPATH": str(source)}

    def look(self, job: BatchJob) -> Seen:
        """Return whether it still runs."""
        program = self._programs.get(job.id)
        if program is None:
            return Seen(status="FAILED", reason="its program is gone")
        # The future, and not the pid: it is set when everything in the instance is gone.
        if not program.instance.exited.done():
            return Seen(status="RUNNING")
        # Before it is forgotten: of one that is, nobody would know how it ended, nor have its lines.
        if not self._is_told(job, program.log):
            return Seen(status="RUNNING")
        code = program.instance.exited.result()
        del self._programs[job.id], self._untold[job.id]
        self._asked.pop(job.id, None)
        program.site.close()
        shutil.rmtree(program.folder, ignore_errors=True)
        return Seen(status="FAILED" if code else "SUCCEEDED", reason=ENDED, exit_code=code)

    def stop(self, job: BatchJob) -> None:
        """Send SIGTERM; when its grace is over, SIGKILL."""
        program = self._programs.get(job.id)
        if program is None:
            return
        now = time.monotonic()
        if job.id not in self._asked:
            self._asked[job.id] = now
            program.instance.signal(signal.SIGTERM)
        elif now - self._asked[job.id] > GRACE_S:
            program.instance.kill()

    def close(self) -> None:
        """End all programs at once."""
        for program in self._programs.values():
            program.site.close()
            shutil.rmtree(program.folder, ignore_errors=True)
        self._programs.clear()

    def _is_told(self, job: BatchJob, log: Path) -> bool:
        """Tell the lines of a program; return whether they are told, or there was enough trying."""
        try:
            self._tell(job, log)
        except Exception:
            self._untold[job.id] += 1
            if self._untold[job.id] < TELLINGS:
                return False
            LOG.exception("the lines of the job %s of the embedded Batch are lost", job.id)
        return True

    def _tell(self, job: BatchJob, log: Path) -> None:
        try:
            at_ms, chunks = round(log.stat().st_mtime * 1000), list(_chunks(log))
        except FileNotFoundError:
            return  # the home was deleted under it: nobody reads the lines any more, but the program has ended
        client, stream = self._moto.client("logs", job.region), job.tries[-1].resource
        with contextlib.suppress(client.exceptions.ResourceAlreadyExistsException):
            client.create_log_group(logGroupName=LOG_GROUP)
        # Some of its lines may be there already, where they could not all be told at the first look.
        with contextlib.suppress(client.exceptions.ResourceNotFoundException):
            client.delete_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
        client.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
        for lines in chunks:
            events = [{"timestamp": at_ms, "message": line} for line in lines]
            client.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=events)


def _chunks(log: Path) -> Iterator[list[str]]:
    # CloudWatch takes no empty message.
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    for begin in range(0, len(lines), MOST_LINES):
        yield lines[begin : begin + MOST_LINES]


def container_of(job: BatchJob) -> Mapping[str, Any]:
    """Return what runs: its definition's containerProperties, with what the request replaces."""
    overrides = {name: value for name, value in (job.request.get("containerOverrides") or {}).items() if value}
    properties = job.request["containerProperties"]
    environment = {**_by_name(properties), **_by_name(overrides)}
    return {**properties, **overrides, "environment": [{"name": n, "value": v} for n, v in environment.items()]}


def _by_name(container: Mapping[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container.get("environment") or []}


def command_of(job: BatchJob) -> tuple[str, ...]:
    """Return the command, its ``Ref::name`` replaced by the job's parameters.

    Raises:
        ApiError: There is none: what the image would run, nobody here knows.
    """
    container, parameters = container_of(job), job.request.get("parameters") or {}
    if not container.get("command"):
        raise client_error(
            f"the embedded Batch does not know what the image {container['image']!r} runs: give command in "
            "containerProperties or containerOverrides"
        )
    words = [(word, word.removeprefix("Ref::")) for word in container["command"]]
    # One that has no such parameter stays as it is, as on AWS.
    return tuple(parameters.get(name, word) if name != word else word for word, name in words)


def variables_of(job: BatchJob) -> dict[str, str]:
    """Return what Batch tells a job of itself, beside its own variables."""
    variables = {
        "AWS_BATCH_JOB_ID": job.id,
        "AWS_BATCH_JQ_NAME": job.queue.rpartition("/")[2],
        "AWS_BATCH_CE_NAME": str(job.request.get("environment") or "").rpartition("/")[2],
        "AWS_BATCH_JOB_ATTEMPT": str(len(job.tries) + 1),
    }
    if job.index is not None:
        variables |= {"AWS_BATCH_JOB_ARRAY_INDEX": str(job.index), "AWS_BATCH_JOB_ARRAY_SIZE": str(job.size)}
    # The last word is Batch's: names that begin with AWS_BATCH are its own.
    return {**_by_name(container_of(job)), **variables}
