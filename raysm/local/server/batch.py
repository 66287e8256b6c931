"""The requests that the embedded Batch answers, and its compute environments, job queues and job definitions.

::

    HOME/batch/resources.json     environments, queues and definitions
"""

import functools
import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from raysm.contract.home import Clock
from raysm.contract.service_model import loader, violations_in
from raysm.contract.store import put, read_json
from raysm.local.server.batch_jobs import Attempt, BatchJob, BatchJobs, command_of, container_of
from raysm.local.server.moto_services import ACCOUNT, MotoServices
from raysm.local.server.validation import ApiError, refuse

SERVICE = "batch"
MIN_CHILDREN, MAX_CHILDREN = 2, 10_000
"""Size of an array job: https://docs.aws.amazon.com/batch/latest/userguide/array_jobs.html."""
NOT_EMULATED = ("dependsOn", "nodeOverrides", "eksPropertiesOverride", "ecsPropertiesOverride", "shareIdentifier")
INHERITED = ("retryStrategy", "timeout", "parameters")
"""Fields that a job takes from its definition."""
PARTS = {"computeEnvironment": "compute-environment", "jobQueue": "job-queue"}
"""Kinds of resources as ARNs name them, by their keys in requests."""

Resource = dict[str, Any]


class BatchService:
    """Answers requests to Batch; every method may be called from any thread."""

    def __init__(self, home: Path, clock: Clock, moto: MotoServices) -> None:
        """Read the resources of an earlier server."""
        self._clock = clock
        self.jobs = BatchJobs(home, clock, moto)
        self._path = home / "batch" / "resources.json"
        # By part, region and name: ("job-queue", "us-east-1", "controllers").
        listed = read_json(self._path)["resources"] if self._path.exists() else []
        self._resources: dict[tuple[str, str, str], Resource] = {tuple(key): body for key, body in listed}
        self._operations: dict[str, Callable[[Mapping[str, Any], str], Mapping[str, Any]]] = {
            "CreateComputeEnvironment": functools.partial(self._create, "computeEnvironment"),
            "CreateJobQueue": functools.partial(self._create, "jobQueue"),
            "DescribeJobQueues": self._describe_queues,
            "RegisterJobDefinition": self._register,
            "DescribeJobDefinitions": self._describe_definitions,
            "SubmitJob": self._submit,
            "DescribeJobs": self._describe,
            "ListJobs": self._list,
            "TerminateJob": self._terminate,
        }

    @property
    def running(self) -> bool:
        """True while a job has not ended."""
        return self.jobs.running

    def answer(self, method: str, path: str, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        """Carry a request out.

        Raises:
            ApiError: It is refused, or not emulated.
        """
        operation = operation_of(method, path)
        # moto would answer with queues of its own, which have none of these jobs.
        if operation not in self._operations:
            message = f"the embedded SageMaker does not emulate {operation or path} of the service batch"
            raise ApiError("NotImplementedException", message)
        parameters = {name: value for name, value in request.items() if value is not None}
        shape = _model().operation_model(operation).input_shape
        refuse(violations_in(parameters, shape, takes_files=True), _client_error)
        return self._operations[operation](parameters, region)

    def shut_down(self) -> None:
        """End all programs."""
        self.jobs.shut_down()

    def _add_resource(self, part: str, region: str, name: str, body: Mapping[str, Any]) -> str:
        """Add a resource; return its ARN."""
        arn = f"arn:aws:batch:{region}:{ACCOUNT}:{part}/{name}"
        if (part, region, name) in self._resources:
            raise _client_error(f"Object already exists: {arn}")
        resources = {**self._resources, (part, region, name): dict(body)}
        # A definition holds the variables of its jobs, which may be secrets.
        text = json.dumps({"resources": list(resources.items())})
        put(self._path, text, mode=0o600, within=self._path.parent)
        self._resources = resources
        return arn

    def _get(self, part: str, region: str, named: str) -> Resource:
        body = self._resources.get((part, region, named.rpartition("/")[2]))
        if body is None:
            raise _client_error(f"{named} does not exist: there is no such {part} in {region}")
        return body

    def _create(self, key: str, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        name = request[f"{key}Name"]
        if key == "jobQueue":
            if not request.get("computeEnvironmentOrder"):
                raise _client_error("a job queue needs a computeEnvironmentOrder, got none")
            for item in request["computeEnvironmentOrder"]:
                self._get(PARTS["computeEnvironment"], region, item["computeEnvironment"])
        arn = self._add_resource(PARTS[key], region, name, {"state": "ENABLED", "status": "VALID", **request})
        return {f"{key}Name": name, f"{key}Arn": arn}

    def _describe_queues(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        chosen = [named.rpartition("/")[2] for named in request.get("jobQueues") or []]
        listed = [
            {**body, "jobQueueArn": f"arn:aws:batch:{region}:{ACCOUNT}:job-queue/{name}"}
            for (part, in_region, name), body in self._resources.items()
            if (part, in_region) == ("job-queue", region) and (not chosen or name in chosen)
        ]
        return {"jobQueues": listed}

    def _definitions(self, region: str) -> list[Resource]:
        found = self._resources.items()
        return [body for (part, in_region, _), body in found if (part, in_region) == ("job-definition", region)]

    def _register(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        if request["type"] != "container" or not request.get("containerProperties"):
            raise _client_error(
                f"the embedded Batch runs definitions of type container with containerProperties, got type "
                f"{request['type']!r} with {', '.join(sorted(request))}"
            )
        platforms = request.get("platformCapabilities") or ["EC2"]
        if "networkConfiguration" in request["containerProperties"] and "FARGATE" not in platforms:
            raise _client_error(
                f"networkConfiguration is only for FARGATE, got platformCapabilities {', '.join(platforms)}"
            )
        name = request["jobDefinitionName"]
        revision = 1 + sum(body["jobDefinitionName"] == name for body in self._definitions(region))
        arn = f"arn:aws:batch:{region}:{ACCOUNT}:job-definition/{name}:{revision}"
        body = {**request, "revision": revision, "status": "ACTIVE", "jobDefinitionArn": arn}
        self._add_resource("job-definition", region, f"{name}:{revision}", body)
        return {"jobDefinitionName": name, "jobDefinitionArn": arn, "revision": revision}

    def _describe_definitions(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        chosen = [named.rpartition("/")[2] for named in request.get("jobDefinitions") or []]
        listed = [
            body
            for body in self._definitions(region)
            if request.get("jobDefinitionName") in (None, body["jobDefinitionName"])
            and request.get("status") in (None, body["status"])
            and (not chosen or f"{body['jobDefinitionName']}:{body['revision']}" in chosen)
        ]
        return {"jobDefinitions": listed}

    def _submit(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        for name in NOT_EMULATED:
            if request.get(name):
                raise _client_error(f"the embedded Batch does not emulate {name}: leave it out")
        queue = self._get("job-queue", region, request["jobQueue"])
        if queue["state"] != "ENABLED":
            raise _client_error(f"the job queue {request['jobQueue']} is {queue['state']}")
        # The first environment: there is only one machine.
        first = min(queue["computeEnvironmentOrder"], key=lambda item: item["order"])["computeEnvironment"]
        limit = (self._get("compute-environment", region, first).get("computeResources") or {}).get("maxvCpus")
        definition = self._definition(request["jobDefinition"], region)
        inherited = {name: definition[name] for name in INHERITED if definition.get(name) is not None}
        parameters = {**(inherited.get("parameters") or {}), **(request.get("parameters") or {})}
        size = (request.get("arrayProperties") or {}).get("size")
        if size is not None and not MIN_CHILDREN <= size <= MAX_CHILDREN:
            raise _client_error(f"arrayProperties.size is {MIN_CHILDREN} to {MAX_CHILDREN}, got {size}")
        merged = {
            **inherited,
            **request,
            "parameters": parameters,
            "jobDefinition": definition["jobDefinitionArn"],
            "containerProperties": definition["containerProperties"],
        }
        identifier, now = str(uuid.uuid4()), self._clock.now()

        def new_job(index: int | None) -> BatchJob:
            name = identifier if index is None else f"{identifier}:{index}"
            return BatchJob(
                id=name,
                arn=f"arn:aws:batch:{region}:{ACCOUNT}:job/{name}",
                name=request["jobName"],
                region=region,
                queue=f"arn:aws:batch:{region}:{ACCOUNT}:job-queue/{queue['jobQueueName']}",
                environment=first.rpartition("/")[2],
                vcpus_limit=float(limit or "inf"),
                request=merged,
                created_s=now,
                size=size,
                index=index,
            )

        job = new_job(None)
        job.children = [new_job(index) for index in range(size or 0)]
        # A job without a command is refused now, not by each attempt.
        command_of(job)
        self.jobs.add(job)
        return {"jobArn": job.arn, "jobName": job.name, "jobId": job.id}

    def _definition(self, named: str, region: str) -> Resource:
        """Return a definition; for a name without a revision the latest one."""
        name = named.rpartition("/")[2]
        found = [
            body
            for body in self._definitions(region)
            if name in (body["jobDefinitionName"], f"{body['jobDefinitionName']}:{body['revision']}")
        ]
        if not found:
            raise _client_error(f"JobDefinition {named} does not exist")
        return max(found, key=lambda body: int(body["revision"]))

    def _describe(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        # AWS leaves out jobs that do not exist.
        found = [self.jobs.find(named, region) for named in request["jobs"]]
        return {"jobs": [_described(job) for job in found if job is not None]}

    def _list(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        if request.get("arrayJobId"):
            array = self.jobs.find(request["arrayJobId"], region)
            jobs = [] if array is None else array.children
        else:
            queue = self._get("job-queue", region, request.get("jobQueue") or "")
            jobs = self.jobs.all(f"arn:aws:batch:{region}:{ACCOUNT}:job-queue/{queue['jobQueueName']}")
        # As on AWS: without a status, the running ones.
        status = request.get("jobStatus", "RUNNING")
        fields = ("jobArn", "jobName", "jobId", "status", "statusReason", "createdAt", "startedAt", "stoppedAt")
        described = [job for job in map(_described, jobs) if job["status"] == status]
        return {"jobSummaryList": [{key: job[key] for key in fields if key in job} for job in described]}

    def _terminate(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        job = self.jobs.find(request["jobId"], region)
        # AWS reports no error for a job that does not exist.
        if job is not None:
            self.jobs.terminate(job, request["reason"])
        return {}


def operation_of(method: str, path: str) -> str:
    """Return the operation of a request, ``SubmitJob``; empty for a path that botocore does not know."""
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


def _described(job: BatchJob) -> dict[str, Any]:
    container = dict(container_of(job))
    if job.attempts:
        container |= _without_none(exitCode=job.attempts[-1].exit_code, logStreamName=job.attempts[-1].stream)
    array: dict[str, Any] | None = None
    if job.index is not None:
        array = {"size": job.size, "index": job.index}
    elif job.children:
        array = {"size": job.size, "statusSummary": dict(Counter(child.status for child in job.children))}
    return _without_none(
        jobArn=job.arn,
        jobName=job.name,
        jobId=job.id,
        jobQueue=job.queue,
        # AWS shows an array as PENDING while its children run.
        status="PENDING" if job.children and job.stopped_s is None else job.status,
        statusReason=job.reason or None,
        createdAt=_ms(job.created_s),
        startedAt=_ms(job.attempts[-1].started_s if job.attempts else None),
        stoppedAt=_ms(job.stopped_s),
        isTerminated=job.termination_reason is not None,
        attempts=[_attempt(each) for each in job.attempts],
        jobDefinition=job.request["jobDefinition"],
        container=container,
        arrayProperties=array,
        **{name: job.request.get(name) for name in ("retryStrategy", "timeout", "parameters", "tags")},
    )


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return _without_none(
        container=_without_none(exitCode=attempt.exit_code, logStreamName=attempt.stream),
        startedAt=_ms(attempt.started_s),
        stoppedAt=_ms(attempt.stopped_s),
        statusReason=attempt.reason or None,
    )


def _ms(moment_s: float | None) -> int | None:
    return None if moment_s is None else round(moment_s * 1000)


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
