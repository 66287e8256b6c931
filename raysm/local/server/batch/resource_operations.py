"""Batch's operations on compute environments and job queues."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.local.server.batch.model import client_error
from raysm.local.server.batch.paging import page_under
from raysm.local.server.batch.records import BatchJobs
from raysm.local.server.batch.resources import Resource, Resources

__all__ = ["ResourceKind", "ResourceOperations"]

Operation = Callable[[Mapping[str, Any], str], Mapping[str, Any]]
"""Answers a request that was sent to a region."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceKind:
    """One kind of what jobs are sent to."""

    title: str
    """As operations name it: ``JobQueue``."""
    part: str
    """As ARNs name it."""
    key: str
    """As requests that change it name it: ``jobQueue``."""
    name_key: str
    """Of its name, in requests and answers."""
    arn_key: str
    """Of its ARN, in answers."""
    list_key: str
    """Of several of them in an answer, and of those that are asked for in a request."""

    def operations(self, owner: "ResourceOperations") -> Mapping[str, Operation]:
        """Return its four operations."""
        return {
            f"Create{self.title}": lambda request, region: owner.create(self, request, region),
            f"Describe{self.title}s": lambda request, region: owner.describe(self, request, region),
            f"Update{self.title}": lambda request, region: owner.update(self, request, region),
            f"Delete{self.title}": lambda request, region: owner.delete(self, request, region),
        }

    def answer(self, resource: Resource) -> dict[str, Any]:
        """Return what Create and Update answer."""
        return {self.name_key: resource.name, self.arn_key: resource.arn}


def _kind(title: str, part: str) -> ResourceKind:
    key = title[0].lower() + title[1:]
    return ResourceKind(title=title, part=part, key=key, name_key=f"{key}Name", arn_key=f"{key}Arn", list_key=f"{key}s")


ENVIRONMENT = _kind("ComputeEnvironment", "compute-environment")
QUEUE = _kind("JobQueue", "job-queue")
NOT_HERE = ("serviceEnvironmentOrder", "schedulingPolicyArn", "jobStateTimeLimitActions")
"""Parts of a queue that only training jobs, fair shares and limits of time need."""


class ResourceOperations:
    """All operations on them."""

    def __init__(self, resources: Resources, jobs: BatchJobs) -> None:
        """Keep them among ``resources``; what jobs wait in is not deleted."""
        self._resources, self._jobs = resources, jobs
        self.operations: dict[str, Operation] = {**ENVIRONMENT.operations(self), **QUEUE.operations(self)}

    def create(self, kind: ResourceKind, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        """Make one; it is VALID at once."""
        # On AWS it is CREATING first, for a few seconds; whoever waits for VALID waits here as well.
        body = {"state": "ENABLED", "status": "VALID", **request}
        name = body.pop(kind.name_key)
        self._check(kind, body, region)
        return kind.answer(self._resources.add(Resource(part=kind.part, region=region, name=name, body=body)))

    def describe(self, kind: ResourceKind, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        """Return those that are asked for, or all; one that is not there is left out, as on AWS."""
        # By names and ARNs alike, as every request of Batch takes them.
        chosen = [name.rpartition("/")[2] for name in request.get(kind.list_key) or []]
        listed = [one for one in self._resources.all(kind.part, region) if not chosen or one.name in chosen]
        return page_under(
            kind.list_key, listed, request, lambda one: one.name, lambda one: {**one.body, **kind.answer(one)}
        )

    def update(self, kind: ResourceKind, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        """Change what is named."""
        resource = self._resources.get(kind.part, region, request[kind.key])
        changes = {name: value for name, value in request.items() if name != kind.key and value is not None}
        # As it would be: what is left as it was counts too.
        self._check(kind, {**resource.body, **changes}, region)
        return kind.answer(self._resources.change(resource, **changes))

    def delete(self, kind: ResourceKind, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        """Forget one that is disabled, and that nothing uses."""
        resource = self._resources.get(kind.part, region, request[kind.key])
        if resource.is_enabled:
            raise client_error(f"Cannot delete, resource must be in the DISABLED state: {resource.arn}")
        # AWS would fail the jobs of a queue that goes; here nobody loses what waits.
        if any(job.queue == resource.arn for job in self._jobs.open()) or self._users(kind, resource):
            raise client_error(f"Cannot delete, found existing relationship with {resource.arn}")
        self._resources.remove(resource)
        return {}

    def _users(self, kind: ResourceKind, resource: Resource) -> list[str]:
        return [
            queue.name
            for queue in self._resources.all(QUEUE.part, resource.region)
            for item in queue.body["computeEnvironmentOrder"]
            if kind is ENVIRONMENT and item["computeEnvironment"].rpartition("/")[2] == resource.name
        ]

    def _check(self, kind: ResourceKind, body: Mapping[str, Any], region: str) -> None:
        if kind is not QUEUE:
            return
        for key in NOT_HERE:
            if body.get(key):
                raise client_error(f"the embedded Batch has no {key}: leave it out")
        # The model makes the list optional. Jobs of a queue without environments would stay RUNNABLE for ever.
        if not body.get("computeEnvironmentOrder"):
            raise client_error("a job-queue needs a computeEnvironmentOrder, got none")
        for item in body["computeEnvironmentOrder"]:
            self._resources.get(ENVIRONMENT.part, region, item["computeEnvironment"])
