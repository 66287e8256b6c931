"""Batch's operations on what jobs are sent to: requests flow in, and are kept as environments, queues and policies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysm.local.server.batch.model import client_error
from raysm.local.server.batch.paging import page_under
from raysm.local.server.batch.records import BatchJobs
from raysm.local.server.batch.resources import Resource, Resources

__all__ = ["KINDS", "ResourceKind", "ResourceOperations"]

Operation = Callable[[Mapping[str, Any], str], Mapping[str, Any]]
"""Answers a request that was sent to a region."""

POLICY = "scheduling-policy"
SHORTEST_LIMIT_S, LONGEST_LIMIT_S = 600, 86_400
"""Of a jobStateTimeLimitAction:
https://docs.aws.amazon.com/batch/latest/APIReference/API_JobStateTimeLimitAction.html"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """One kind of environment that a queue can have."""

    key: str
    """Of the list, in the queue."""
    part: str
    """What is listed, as ARNs name it."""
    entry: str
    """Key of each in the list."""
    actions: tuple[str, ...]
    """What a limit of time may do to jobs that wait there."""


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
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What a request need not say."""
    uses: tuple[Use, ...] = ()
    """What it can be made of: one of these."""

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


def _kind(title: str, part: str, **more: Any) -> ResourceKind:
    key = title[0].lower() + title[1:]
    return ResourceKind(
        title=title,
        part=part,
        key=key,
        name_key=f"{key}Name",
        arn_key=f"{key}Arn",
        list_key=f"{key}s",
        **more,
    )


KINDS = (
    _kind("ComputeEnvironment", "compute-environment"),
    _kind("ServiceEnvironment", "service-environment"),
    _kind(
        "JobQueue",
        "job-queue",
        # The answer always has this list.
        defaults={"computeEnvironmentOrder": []},
        uses=(
            Use(
                key="computeEnvironmentOrder",
                part="compute-environment",
                entry="computeEnvironment",
                actions=("CANCEL", "TERMINATE"),
            ),
            Use(
                key="serviceEnvironmentOrder",
                part="service-environment",
                entry="serviceEnvironment",
                # https://docs.aws.amazon.com/batch/latest/userguide/sm_job_stuck_in_runnable.html
                actions=("TERMINATE",),
            ),
        ),
    ),
)


class ResourceOperations:
    """All operations on them."""

    def __init__(self, resources: Resources, jobs: BatchJobs) -> None:
        """Keep them among ``resources``; what jobs wait in is not deleted."""
        self._resources, self._jobs = resources, jobs
        self.operations: dict[str, Operation] = {
            "CreateSchedulingPolicy": self._create_policy,
            "DescribeSchedulingPolicies": self._describe_policies,
            "ListSchedulingPolicies": lambda _, region: {
                "schedulingPolicies": [{"arn": one.arn} for one in self._resources.all(POLICY, region)]
            },
            "UpdateSchedulingPolicy": self._update_policy,
            "DeleteSchedulingPolicy": self._delete_policy,
        }
        for kind in KINDS:
            self.operations |= kind.operations(self)

    def create(self, kind: ResourceKind, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        """Make one; it is VALID at once."""
        # On AWS it is CREATING first, for a few seconds; whoever waits for VALID waits here as well.
        body = {"state": "ENABLED", "status": "VALID", **kind.defaults, **request}
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
            for user in KINDS
            for queue in self._resources.all(user.part, resource.region)
            for use in user.uses
            for item in queue.body.get(use.key) or []
            if use.part == kind.part and item[use.entry].rpartition("/")[2] == resource.name
        ]

    def _check(self, kind: ResourceKind, body: Mapping[str, Any], region: str) -> None:
        # What no model says: each list is optional there.
        uses = [use for use in kind.uses if body.get(use.key)]
        if kind.uses and len(uses) != 1:
            lists = ", ".join(use.key for use in kind.uses)
            raise client_error(f"a {kind.part} has one of {lists}, got {len(uses)} of them")
        for use in uses:
            # Refused now: a queue of nothing would keep its jobs RUNNABLE for ever.
            for item in body[use.key]:
                self._resources.get(use.part, region, item[use.entry])
            _check_limits(body.get("jobStateTimeLimitActions") or [], use)
        if body.get("schedulingPolicyArn"):
            self._resources.get(POLICY, region, body["schedulingPolicyArn"])

    # -- scheduling policies, whose operations are unlike all others

    def _create_policy(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        body = {name: value for name, value in request.items() if name != "name"}
        policy = self._resources.add(Resource(part=POLICY, region=region, name=request["name"], body=body))
        return {"name": policy.name, "arn": policy.arn}

    def _describe_policies(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        listed = [one for one in self._resources.all(POLICY, region) if one.arn in request["arns"]]
        return {"schedulingPolicies": [{**one.body, "name": one.name, "arn": one.arn} for one in listed]}

    def _update_policy(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        # Who runs already keeps his place: the shares count anew from the next look on.
        changes = {name: value for name, value in request.items() if name != "arn"}
        self._resources.change(self._resources.get(POLICY, region, request["arn"]), **changes)
        return {}

    def _delete_policy(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        policy = self._resources.get(POLICY, region, request["arn"])
        queues = self._resources.all("job-queue", region)
        if any(queue.body.get("schedulingPolicyArn") == policy.arn for queue in queues):
            raise client_error(f"Cannot delete, found existing relationship with {policy.arn}")
        self._resources.remove(policy)
        return {}


def _check_limits(actions: Sequence[Mapping[str, Any]], use: Use) -> None:
    for action in actions:
        if not SHORTEST_LIMIT_S <= action["maxTimeSeconds"] <= LONGEST_LIMIT_S:
            raise client_error(
                f"jobStateTimeLimitActions.maxTimeSeconds is {SHORTEST_LIMIT_S} to {LONGEST_LIMIT_S}, got "
                f"{action['maxTimeSeconds']}"
            )
        if action["action"] not in use.actions:
            raise client_error(
                f"jobStateTimeLimitActions.action of a queue with {use.key} is {' or '.join(use.actions)}, got "
                f"{action['action']}"
            )
