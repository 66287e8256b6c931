"""The embedded Batch, whose programs really run.

It has the calls that raysm's array children and grid controllers need.

::

    RUNNABLE ── RUNNING ── SUCCEEDED
       ▲           ├────── FAILED
       └───────────┘ retry

A program is the main process of an instance (``raysm.local.instances``), by default of kind
``process``. It gets Batch's variables
(https://docs.aws.amazon.com/batch/latest/userguide/job_env_vars.html) and the address of this
server, so that boto3, the SDK and ``raysm`` inside it reach this server. Everything is forgotten
when the server ends.
"""

import contextlib
import functools
import logging
import os
import shutil
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import raysm
from raysm.core.protocol.home import VARIABLE, Clock, private_folder, sdk_config_file
from raysm.core.protocol.service_model import loader, violations_in
from raysm.core.request.targets import instance_kind
from raysm.errors import RaysmError
from raysm.local.instances import Instance, InstanceSpec, open_site
from raysm.local.server.definitions import choose_kind
from raysm.local.server.moto_services import ACCOUNT, MotoServices
from raysm.local.server.validation import ApiError, refuse

LOG = logging.getLogger(__name__)
SERVICE = "batch"
LOG_GROUP = "/aws/batch/job"
FINAL = ("SUCCEEDED", "FAILED")
MIN_CHILDREN = 2
MAX_CHILDREN = 10_000
"""Size of an array job: https://docs.aws.amazon.com/batch/latest/userguide/array_jobs.html."""
NOT_EMULATED = (
    "dependsOn",
    "nodeOverrides",
    "eksPropertiesOverride",
    "ecsPropertiesOverride",
    "shareIdentifier",
    "parameters",
    "timeout",
)
MAX_PROGRAMS = 16
"""Programs that run at a time; the controllers of a grid mostly wait."""
MAX_LINES = 5_000
"""Lines in one request to CloudWatch Logs, which takes at most 10,000 lines and 1 MiB."""
STEP_S = 0.2
GRACE_S = 30.0
"""Seconds from SIGTERM to SIGKILL, as on ECS."""

Resource = dict[str, Any]


@dataclass(kw_only=True, slots=True)
class BatchJob:
    id: str
    """A UUID; a child of an array has its index too: ``UUID:3``."""
    region: str
    queue: Resource
    request: Mapping[str, Any]
    index: int | None
    children: "list[BatchJob]" = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    """The answer of DescribeJobs, whose times are milliseconds since the epoch."""
    termination_reason: str | None = None

    @property
    def size(self) -> int:
        return int((self.request.get("arrayProperties") or {}).get("size") or 0)

    @property
    def status(self) -> str:
        if not self.children:
            return str(self.details["status"])
        statuses = {child.status for child in self.children}
        if not statuses <= set(FINAL):
            return "PENDING"
        return "FAILED" if "FAILED" in statuses else "SUCCEEDED"

    def describe(self) -> dict[str, Any]:
        details = {
            **self.details,
            "status": self.status,
            "isTerminated": self.termination_reason is not None,
        }
        if self.index is not None:
            details["arrayProperties"] = {"size": self.size, "index": self.index}
        elif self.children:
            summary = Counter(child.status for child in self.children)
            details["arrayProperties"] = {"size": self.size, "statusSummary": dict(summary)}
        if self.children and self.status in FINAL:
            details["stoppedAt"] = max(child.details["stoppedAt"] for child in self.children)
            details["statusReason"] = "Array Child Job failed" if self.status == "FAILED" else ""
        return details


class BatchService:
    """Answers requests to Batch and runs its jobs; every method may be called from any thread.

    Attributes:
        url: The address of this server, for the programs.
    """

    def __init__(self, home: Path, clock: Clock, moto: MotoServices) -> None:
        self._home = home
        self._clock = clock
        self._moto = moto
        self._folder = private_folder(home, "batch")
        self.url = ""
        self._lock = threading.Lock()
        # By region and name.
        self._environments: dict[tuple[str, str], Resource] = {}
        self._queues: dict[tuple[str, str], Resource] = {}
        self._definitions: dict[tuple[str, str], list[Resource]] = {}
        self._jobs: dict[str, BatchJob] = {}
        # Jobs start in the order of their submission.
        self._programs = ThreadPoolExecutor(MAX_PROGRAMS, thread_name_prefix="batch")
        self._ending = threading.Event()
        self._operations: dict[str, Callable[[Mapping[str, Any], str], Mapping[str, Any]]] = {
            "CreateComputeEnvironment": self._create_environment,
            "CreateJobQueue": self._create_queue,
            "DescribeJobQueues": self._describe_queues,
            "RegisterJobDefinition": self._register,
            "DescribeJobDefinitions": self._describe_definitions,
            "SubmitJob": self._submit,
            "DescribeJobs": self._describe,
            "TerminateJob": self._terminate,
        }

    @property
    def running(self) -> bool:
        with self._lock:
            return any(job.status not in FINAL for job in self._jobs.values())

    def answer(
        self, method: str, path: str, request: Mapping[str, Any], region: str
    ) -> Mapping[str, Any]:
        """Carry a request out; raise ApiError if it is refused, or not emulated."""
        operation = parse_operation(method, path)
        # moto would answer with queues of its own, which have none of these jobs.
        if operation not in self._operations:
            message = (
                f"the embedded SageMaker does not emulate {operation or path} of the service batch"
            )
            raise ApiError("NotImplementedException", message)
        parameters = {name: value for name, value in request.items() if value is not None}
        shape = _model().operation_model(operation).input_shape
        refuse(violations_in(parameters, shape, takes_files=True), _client_error)
        for name in NOT_EMULATED:
            if parameters.get(name):
                raise _client_error(f"the embedded Batch does not emulate {name}: leave it out")
        return self._operations[operation](parameters, region)

    def shut_down(self) -> None:
        self._ending.set()
        self._programs.shutdown(cancel_futures=True)

    def _create_environment(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        name = request["computeEnvironmentName"]
        arn = _add(self._environments, "compute-environment", region, name, request)
        return {"computeEnvironmentName": name, "computeEnvironmentArn": arn}

    def _create_queue(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        if not request.get("computeEnvironmentOrder"):
            raise _client_error("a job queue needs a computeEnvironmentOrder, got none")
        for item in request["computeEnvironmentOrder"]:
            _get(self._environments, "compute environment", region, item["computeEnvironment"])
        name = request["jobQueueName"]
        body = {
            "state": "ENABLED",
            "status": "VALID",
            "jobQueueArn": _arn(region, "job-queue", name),
            **request,
        }
        return {
            "jobQueueName": name,
            "jobQueueArn": _add(self._queues, "job-queue", region, name, body),
        }

    def _describe_queues(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        chosen = [_name(named) for named in request.get("jobQueues") or []]
        queues = [queue for (where, name), queue in self._queues.items() if where == region]
        return {
            "jobQueues": [
                queue for queue in queues if not chosen or queue["jobQueueName"] in chosen
            ]
        }

    def _register(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        if request["type"] != "container" or not request.get("containerProperties"):
            raise _client_error(
                "the embedded Batch runs definitions of type container with containerProperties, "
                f"got type {request['type']!r} with {', '.join(sorted(request))}"
            )
        name = request["jobDefinitionName"]
        with self._lock:
            revisions = self._definitions.setdefault((region, name), [])
            number = len(revisions) + 1
            arn = _arn(region, "job-definition", f"{name}:{number}")
            revisions.append(
                {**request, "revision": number, "status": "ACTIVE", "jobDefinitionArn": arn}
            )
        return {"jobDefinitionName": name, "jobDefinitionArn": arn, "revision": number}

    def _describe_definitions(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        chosen = [_name(named) for named in request.get("jobDefinitions") or []]
        listed = [
            body
            for (where, name), revisions in self._definitions.items()
            for body in revisions
            if where == region
            and request.get("jobDefinitionName") in (None, name)
            and request.get("status") in (None, body["status"])
            and (not chosen or f"{name}:{body['revision']}" in chosen)
        ]
        return {"jobDefinitions": listed}

    def _submit(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        queue = _get(self._queues, "job-queue", region, request["jobQueue"])
        if queue["state"] != "ENABLED":
            raise _client_error(f"the job queue {request['jobQueue']} is {queue['state']}")
        size = (request.get("arrayProperties") or {}).get("size")
        if size is not None and not MIN_CHILDREN <= size <= MAX_CHILDREN:
            raise _client_error(
                f"arrayProperties.size is {MIN_CHILDREN} to {MAX_CHILDREN}, got {size}"
            )
        merged = {**self._definition(request["jobDefinition"], region), **request}
        identifier = str(uuid.uuid4())

        def new_job(index: int | None = None) -> BatchJob:
            name = identifier if index is None else f"{identifier}:{index}"
            job = BatchJob(id=name, region=region, queue=queue, request=merged, index=index)
            job.details = {
                "jobArn": _arn(region, "job", name),
                "jobName": request["jobName"],
                "jobId": name,
                "jobQueue": queue["jobQueueArn"],
                "jobDefinition": merged["jobDefinitionArn"],
                "status": "RUNNABLE",
                "createdAt": self._now_ms(),
                "attempts": [],
                "container": merge_container(job),
                **{key: merged[key] for key in ("retryStrategy", "tags") if key in merged},
            }
            return job

        job = new_job()
        job.children = [new_job(index) for index in range(size or 0)]
        # A job without a command is refused now, not by each attempt.
        build_command(job)
        with self._lock:
            self._jobs |= {one.id: one for one in (job, *job.children)}
        for one in job.children or [job]:
            self._programs.submit(self._run, one)
        return {"jobArn": job.details["jobArn"], "jobName": request["jobName"], "jobId": job.id}

    def _now_ms(self) -> int:
        return round(self._clock.now() * 1000)

    def _definition(self, named: str, region: str) -> Resource:
        name, _, revision = _name(named).partition(":")
        revisions = self._definitions.get((region, name)) or []
        found = [body for body in revisions if revision in ("", str(body["revision"]))]
        if not found:
            raise _client_error(f"JobDefinition {named} does not exist")
        fields = ("retryStrategy", "containerProperties", "jobDefinitionArn")
        return {name: found[-1][name] for name in fields if name in found[-1]}

    def _find(self, named: str, region: str) -> BatchJob | None:
        job = self._jobs.get(_name(named))
        return job if job is not None and job.region == region else None

    def _describe(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        # AWS leaves out jobs that do not exist.
        found = [self._find(named, region) for named in request["jobs"]]
        return {"jobs": [job.describe() for job in found if job is not None]}

    def _terminate(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        job = self._find(request["jobId"], region)
        # AWS reports no error for a job that does not exist.
        if job is not None:
            with self._lock:
                for one in job.children or [job]:
                    one.termination_reason = one.termination_reason or request["reason"]
                    if one.status == "RUNNABLE":
                        self._finish(one, "FAILED", request["reason"])
        return {}

    # The programs, each in a thread of the pool.

    def _run(self, job: BatchJob) -> None:
        try:
            while self._begins(job):
                self._run_attempt(job)
        except Exception as error:
            LOG.exception("the job %s of the embedded Batch failed", job.id)
            self._finish(job, "FAILED", f"{type(error).__name__}: {error}")

    def _begins(self, job: BatchJob) -> bool:
        with self._lock:
            if job.status != "RUNNABLE" or self._ending.is_set():
                return False
            job.details["status"] = "RUNNING"
            return True

    def _finish(self, job: BatchJob, status: str, reason: str) -> None:
        job.details |= {"status": status, "statusReason": reason, "stoppedAt": self._now_ms()}

    def _run_attempt(self, job: BatchJob) -> None:
        number = len(job.details["attempts"]) + 1
        # A folder for each attempt; the colon of a child's id is not allowed in names on all
        # systems.
        folder = self._folder / f"{job.id.replace(':', '-')}-{number}"
        stream = f"{_name(job.request['jobDefinitionArn']).partition(':')[0]}/default/{folder.name}"
        attempt: dict[str, Any] = {
            "startedAt": self._now_ms(),
            "container": {"logStreamName": stream},
        }
        job.details["attempts"].append(attempt)
        job.details |= {
            "startedAt": attempt["startedAt"],
            "container": {**merge_container(job), **attempt["container"]},
        }
        code = None
        reason = "Essential container in task exited"
        try:
            code = self._run_program(job, number, folder, stream)
        except (RaysmError, OSError) as error:
            reason = f"CannotStartContainerError: {error}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        attempt |= {"stoppedAt": self._now_ms(), "statusReason": reason}
        if code is not None:
            for container in (attempt["container"], job.details["container"]):
                container["exitCode"] = code
        with self._lock:
            # AWS fails a terminated job even if its program succeeded meanwhile.
            if job.termination_reason is not None:
                self._finish(job, "FAILED", job.termination_reason)
            elif code == 0:
                self._finish(job, "SUCCEEDED", reason)
            elif is_retried(job.request.get("retryStrategy") or {}, number, reason, code):
                job.details |= {"status": "RUNNABLE", "statusReason": reason}
            else:
                self._finish(job, "FAILED", reason)

    def _run_program(self, job: BatchJob, number: int, folder: Path, stream: str) -> int:
        for each in (folder, folder / "ml", folder / "private"):
            each.mkdir(mode=0o700)
        image = merge_container(job)["image"]
        kind = choose_kind(image, job.request.get("tags") or {}, "process")
        log = folder / "log"
        with (
            open_site(kind, image if instance_kind(kind).needs_image else None) as site,
            log.open("ab") as output,
        ):
            spec = InstanceSpec(
                host="algo-1",
                base=folder / "ml",
                private=folder / "private",
                command=build_command(job),
                variables={**self._server_variables(job), **make_variables(job, number)},
                log_fd=output.fileno(),
            )
            code = self._await_end(job, site.start([spec])[0])
        try:
            at_ms = round(log.stat().st_mtime * 1000)
            text = log.read_text(encoding="utf-8", errors="replace")
            client = self._moto.client("logs", job.region)
            with contextlib.suppress(client.exceptions.ResourceAlreadyExistsException):
                client.create_log_group(logGroupName=LOG_GROUP)
            client.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
            # CloudWatch takes no empty message.
            events = [
                {"timestamp": at_ms, "message": line} for line in text.splitlines() if line.strip()
            ]
            for begin in range(0, len(events), MAX_LINES):
                chunk = events[begin : begin + MAX_LINES]
                client.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=chunk)
        except Exception:
            LOG.exception("the log lines of the job %s of the embedded Batch are lost", job.id)
        return code

    def _await_end(self, job: BatchJob, instance: Instance) -> int:
        kill_at_s: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                return instance.wait(STEP_S)
            if job.termination_reason is not None and kill_at_s is None:
                kill_at_s = time.monotonic() + GRACE_S
                instance.signal(signal.SIGTERM)
            if self._ending.is_set() or (kill_at_s is not None and time.monotonic() > kill_at_s):
                instance.kill()

    def _server_variables(self, job: BatchJob) -> dict[str, str]:
        own = str(Path(sys.executable).parent)
        path = os.pathsep.join([own, os.environ.get("PATH", os.defpath)])  # noqa: TID251
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
        return (
            variables
            if "site-packages" in source.parts
            else {**variables, "PYTHONPATH": str(source)}
        )


def parse_operation(method: str, path: str) -> str:
    return _operations().get((method, path), "")


@functools.cache
def _model() -> Any:
    # Loaded on the first request to Batch, so that other servers start fast.
    from botocore.model import ServiceModel

    return ServiceModel(loader().load_service_model(SERVICE, "service-2"), SERVICE)


@functools.cache
def _operations() -> Mapping[tuple[str, str], str]:
    facts = {name: _model().operation_model(name).http for name in _model().operation_names}
    return {(http["method"], http["requestUri"]): name for name, http in facts.items()}


def _client_error(message: str) -> ApiError:
    return ApiError("ClientException", f"Error executing request, Exception : {message}")


def _arn(region: str, part: str, name: str) -> str:
    return f"arn:aws:batch:{region}:{ACCOUNT}:{part}/{name}"


def _name(named: str) -> str:
    return named.rpartition("/")[2]


def _add(
    resources: dict[tuple[str, str], Resource],
    part: str,
    region: str,
    name: str,
    body: Mapping[str, Any],
) -> str:
    arn = _arn(region, part, name)
    if resources.setdefault((region, name), new := dict(body)) is not new:
        raise _client_error(f"Object already exists: {arn}")
    return arn


def _get(
    resources: Mapping[tuple[str, str], Resource], what: str, region: str, named: str
) -> Resource:
    body = resources.get((region, _name(named)))
    if body is None:
        raise _client_error(f"{named} does not exist: there is no such {what} in {region}")
    return body


def merge_container(job: BatchJob) -> Mapping[str, Any]:
    properties = job.request["containerProperties"]
    overrides = {
        name: value
        for name, value in (job.request.get("containerOverrides") or {}).items()
        if value
    }
    environment = {**_variables(properties), **_variables(overrides)}
    listed = [{"name": name, "value": value} for name, value in environment.items()]
    return {**properties, **overrides, "environment": listed}


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container.get("environment") or []}


def build_command(job: BatchJob) -> tuple[str, ...]:
    container = merge_container(job)
    if not container.get("command"):
        raise _client_error(
            "the embedded Batch does not know the entry point of the image "
            f"{container['image']!r}: give command in containerProperties or containerOverrides"
        )
    return tuple(container["command"])


def make_variables(job: BatchJob, attempt: int) -> dict[str, str]:
    first = min(job.queue["computeEnvironmentOrder"], key=lambda item: item["order"])
    variables = {
        "AWS_BATCH_JOB_ID": job.id,
        "AWS_BATCH_JQ_NAME": job.queue["jobQueueName"],
        "AWS_BATCH_CE_NAME": _name(first["computeEnvironment"]),
        "AWS_BATCH_JOB_ATTEMPT": str(attempt),
    }
    if job.index is not None:
        variables |= {
            "AWS_BATCH_JOB_ARRAY_INDEX": str(job.index),
            "AWS_BATCH_JOB_ARRAY_SIZE": str(job.size),
        }
    return {**_variables(merge_container(job)), **variables}


def is_retried(strategy: Mapping[str, Any], attempts: int, reason: str, code: int | None) -> bool:
    """Return whether another attempt follows one that failed.

    See https://docs.aws.amazon.com/batch/latest/APIReference/API_RetryStrategy.html.
    """
    if attempts >= strategy.get("attempts", 1):
        return False
    ending = {
        "onExitCode": "" if code is None else str(code),
        "onReason": reason,
        "onStatusReason": reason,
    }
    for rule in strategy.get("evaluateOnExit") or []:
        conditions = {
            name: pattern for name, pattern in rule.items() if name != "action" and pattern
        }
        # A pattern may end with an asterisk, and has no other wildcards.
        if all(
            ending[name].startswith(pattern[:-1])
            if pattern.endswith("*")
            else ending[name] == pattern
            for name, pattern in conditions.items()
        ):
            return bool(rule["action"].upper() == "RETRY")
    return True
