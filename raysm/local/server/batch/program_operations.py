"""Batch's operations on jobs of containers, one or an array of them, and on their definitions."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch import answers
from raysm.local.server.batch.model import client_error
from raysm.local.server.batch.program_work import command_of
from raysm.local.server.batch.queues import listed_jobs, queue_for
from raysm.local.server.batch.records import BatchJob, BatchJobs
from raysm.local.server.batch.resources import Resource, Resources
from raysm.local.server.batch.retry import check_strategy
from raysm.local.server.batch.run import BatchRun

__all__ = ["PROGRAM", "ProgramOperations"]

PROGRAM = "job"
DEFINITION = "job-definition"
LEAST_CHILDREN, MOST_CHILDREN = 2, 10_000
"""Of an array: https://docs.aws.amazon.com/batch/latest/userguide/array_jobs.html"""
LONGEST_OVERRIDES = 8_192
MOST_DEPENDENCIES = 20
NOT_HERE = ("nodeOverrides", "eksPropertiesOverride", "ecsPropertiesOverride", "consumableResourcePropertiesOverride")
INHERITED = ("retryStrategy", "timeout", "schedulingPriority", "parameters")
"""What a definition says for jobs that do not."""


class ProgramOperations:
    """All operations on them."""

    def __init__(self, jobs: BatchJobs, resources: Resources, run: BatchRun) -> None:
        """Have ``run`` carry them out."""
        self._jobs, self._resources, self._run = jobs, resources, run
        self.operations: dict[str, Callable[[Mapping[str, Any], str], Mapping[str, Any]]] = {
            "RegisterJobDefinition": self._register,
            "DescribeJobDefinitions": self._describe_definitions,
            "DeregisterJobDefinition": self._deregister,
            "SubmitJob": self._submit,
            "DescribeJobs": self._describe,
            "ListJobs": self._list,
            "CancelJob": lambda request, region: self._end(request, region, cancels=True),
            "TerminateJob": lambda request, region: self._end(request, region, cancels=False),
        }

    # -- definitions

    def _register(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        if request["type"] != "container" or not request.get("containerProperties"):
            raise client_error(
                f"the embedded Batch runs definitions of type container with containerProperties, got type "
                f"{request['type']!r} with {', '.join(sorted(request))}"
            )
        # EC2 is what Batch takes where nothing is said.
        platforms = request.get("platformCapabilities") or ["EC2"]
        if "networkConfiguration" in request["containerProperties"] and "FARGATE" not in platforms:
            raise client_error(
                f"networkConfiguration is of FARGATE alone, got platformCapabilities {', '.join(platforms)}"
            )
        check_strategy(request.get("retryStrategy"))
        name = request["jobDefinitionName"]
        # By those that were deregistered too: a revision is never given twice.
        revision = 1 + max((one.body["revision"] for one in self._revisions(name, region)), default=0)
        body = {**request, "revision": revision, "status": "ACTIVE"}
        definition = self._resources.add(Resource(part=DEFINITION, region=region, name=f"{name}:{revision}", body=body))
        return {"jobDefinitionName": name, "jobDefinitionArn": definition.arn, "revision": revision}

    def _revisions(self, name: str, region: str) -> list[Resource]:
        return [one for one in self._resources.all(DEFINITION, region) if one.body["jobDefinitionName"] == name]

    def _describe_definitions(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        chosen = [named.rpartition("/")[2] for named in request.get("jobDefinitions") or []]
        listed = [
            {**one.body, "jobDefinitionArn": one.arn}
            for one in self._resources.all(DEFINITION, region)
            if request.get("jobDefinitionName") in (None, one.body["jobDefinitionName"])
            and request.get("status") in (None, one.body["status"])
            and (not chosen or one.name in chosen)
        ]
        return {"jobDefinitions": listed}

    def _deregister(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        self._resources.change(self._definition(request["jobDefinition"], region), status="INACTIVE")
        return {}

    def _definition(self, named: str, region: str) -> Resource:
        """Return a definition; of a name alone the latest active revision."""
        name = named.rpartition("/")[2]
        if ":" in name:
            return self._resources.get(DEFINITION, region, named)
        active = [one for one in self._revisions(name, region) if one.body["status"] == "ACTIVE"]
        if not active:
            raise client_error(f"JobDefinition {named} does not exist, or has no active revision")
        return max(active, key=lambda one: one.body["revision"])

    # -- jobs

    def _submit(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        queue = queue_for(self._resources, region, request)
        definition = self._definition(request["jobDefinition"], region)
        for key in NOT_HERE:
            if request.get(key):
                raise client_error(f"the embedded Batch has no {key}")
        merged = _merged(request, definition)
        check_strategy(merged.get("retryStrategy"))
        size = (request.get("arrayProperties") or {}).get("size")
        self._check(request, size, region)
        job = BatchJob(
            id=str(uuid.uuid4()),
            kind=PROGRAM,
            name=request["jobName"],
            region=region,
            queue=queue.arn,
            request=merged,
            tags={**_passed_on(definition), **(request.get("tags") or {})},
            created_s=self._jobs.clock.now(),
            priority=request.get("schedulingPriorityOverride") or merged.get("schedulingPriority") or 0,
            size=size,
        )
        # What could never start is refused now, and not by each of its children.
        command_of(job)
        self._jobs.add([job, *_children(job)])
        self._run.wake()
        return answers.submitted(job)

    def _check(self, request: Mapping[str, Any], size: int | None, region: str) -> None:
        if size is not None and not LEAST_CHILDREN <= size <= MOST_CHILDREN:
            raise client_error(f"arrayProperties.size is {LEAST_CHILDREN} to {MOST_CHILDREN}, got {size}")
        length = len(str(request.get("containerOverrides") or ""))
        if length > LONGEST_OVERRIDES:
            raise client_error(f"Container Overrides length must be at most {LONGEST_OVERRIDES}, got {length}")
        others = request.get("dependsOn") or []
        if len(others) > MOST_DEPENDENCIES:
            raise client_error(f"dependsOn has at most {MOST_DEPENDENCIES} jobs, got {len(others)}")
        for item in others:
            if item.get("jobId"):
                other = self._jobs.get(item["jobId"], region)
                if item.get("type") == "N_TO_N" and other.size != size:
                    raise client_error(f"N_TO_N takes arrays of one size: {other.id} has {other.size}, this one {size}")
            elif item.get("type") != "SEQUENTIAL":
                raise client_error("dependsOn names a jobId, or is of type SEQUENTIAL")

    def _describe(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        # One that is not there is left out, as on AWS: no error says so.
        every = [self._jobs.find(named) for named in request["jobs"]]
        jobs = [job for job in every if job is not None and job.region == region and job.kind == PROGRAM]
        return {"jobs": [answers.describe_program(job, self._children_of(job)) for job in jobs]}

    def _children_of(self, job: BatchJob) -> list[BatchJob]:
        # A child has its array's size too.
        return self._jobs.children(job.id) if job.size is not None and job.index is None else []

    def _list(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        if request.get("arrayJobId"):
            jobs = self._children_of(self._jobs.get(request["arrayJobId"], region))
        elif request.get("jobQueue"):
            queue = self._resources.get("job-queue", region, request["jobQueue"])
            # An array is one among them; its children are listed by its id.
            jobs = [
                job for job in self._jobs.all() if job.queue == queue.arn and job.kind == PROGRAM and job.index is None
            ]
        else:
            raise client_error("name a jobQueue or an arrayJobId: there are no multi-node jobs here")
        return listed_jobs(jobs, request, lambda job: answers.summarize_program(job, self._children_of(job)))

    def _end(self, request: Mapping[str, Any], region: str, *, cancels: bool) -> Mapping[str, Any]:
        try:
            job = self._jobs.get(request["jobId"], region)
        except ApiError:
            # As AWS: who ends what is not there has what he wants.
            return {}
        self._run.end(job, request["reason"], cancels=cancels)
        return {}


def _merged(request: Mapping[str, Any], definition: Resource) -> dict[str, Any]:
    """Return a request with what its definition says: what is changed or deregistered later must not change a job."""
    replaced = {name: value for name, value in request.items() if name != "tags"}
    inherited = {name: definition.body[name] for name in INHERITED if definition.body.get(name) is not None}
    parameters = {**(inherited.get("parameters") or {}), **(replaced.get("parameters") or {})}
    return {
        **inherited,
        **replaced,
        "parameters": parameters,
        "jobDefinition": definition.arn,
        "containerProperties": definition.body["containerProperties"],
    }


def _passed_on(definition: Resource) -> Mapping[str, str]:
    # On AWS they go to the tasks of ECS, which here are the jobs themselves.
    return definition.body.get("tags") or {} if definition.body.get("propagateTags") else {}


def _children(array: BatchJob) -> list[BatchJob]:
    return [
        BatchJob(
            id=f"{array.id}:{index}",
            kind=array.kind,
            name=array.name,
            region=array.region,
            queue=array.queue,
            request=array.request,
            tags=array.tags,
            created_s=array.created_s,
            priority=array.priority,
            size=array.size,
            parent=array.id,
            index=index,
        )
        for index in range(array.size or 0)
    ]
