"""A line of a policy, and what becomes of it with the names of an account's things: lines flow in, policies out."""

import itertools
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["JOBS", "LOGS", "OBJECTS", "ROLE_ARN", "SERVICE", "Grant", "Names", "policy", "resources_of"]

SERVICE = "sagemaker.amazonaws.com"
"""Who takes on the job's role; the same in all partitions."""

Names: TypeAlias = Mapping[str, tuple[str, ...]]
"""What stands for each placeholder of a resource; where nothing does, the resource falls away."""

JOBS = (
    "arn:{partition}:sagemaker:{region}:{account}:training-job/*",
    "arn:{partition}:sagemaker:{region}:{account}:processing-job/*",
)
LOGS = (
    "arn:{partition}:logs:{region}:{account}:log-group:/aws/sagemaker/TrainingJobs:*",
    "arn:{partition}:logs:{region}:{account}:log-group:/aws/sagemaker/ProcessingJobs:*",
)
OBJECTS = "arn:{partition}:s3:::{bucket}/raysm/*"
ROLE_ARN = "{role}"
"""The resource of what is about the job's role."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """Some actions on some resources, for one purpose."""

    purpose: str
    """The Sid of its statement: letters and digits alone."""
    meaning: str
    """What for, in a sentence's part."""
    actions: tuple[str, ...]
    """As IAM names them."""
    resources: tuple[str, ...] = ("*",)
    """ARNs with placeholders; ``*`` where the actions take no narrower one."""
    calls: tuple[str, ...] = ()
    """The operations of the client that need them, ``s3:HeadBucket``."""
    is_side: bool = False
    """Whether jobs can be sent and followed without it."""
    needs: str = ""
    """The placeholder without which a job does not need it at all; empty for every job."""
    conditions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What has to hold beside, as IAM says it."""


def policy(grants: Iterable[Grant], names: Names) -> dict[str, Any]:
    """Return the policy that makes these grants, of what a job with these names needs."""
    # The version of IAM's language, of which this is the latest: without it, IAM reads the one of 2008.
    return {"Version": "2012-10-17", "Statement": list(_statements(grants, names))}


def resources_of(grant: Grant, names: Names) -> list[str]:
    """Return the resources of a grant by their ARNs; none where the job does not need it."""
    if grant.needs and not names.get(grant.needs):
        return []
    expanded = itertools.chain.from_iterable(_expanded(resource, names) for resource in grant.resources)
    # Several channels may lie in one bucket, and that may be the job's own.
    return list(dict.fromkeys(expanded))


def _statements(grants: Iterable[Grant], names: Names) -> Iterator[dict[str, Any]]:
    for grant in grants:
        resources = resources_of(grant, names)
        if not resources:
            continue
        statement: dict[str, Any] = {"Sid": grant.purpose, "Effect": "Allow", "Action": list(grant.actions)}
        statement["Resource"] = resources if len(resources) > 1 else resources[0]
        if grant.conditions:
            statement["Condition"] = {name: dict(values) for name, values in grant.conditions.items()}
        yield statement


def _expanded(resource: str, names: Names) -> Iterator[str]:
    """Yield a resource once for each combination of what stands for its placeholders."""
    placeholders = [name for _, name, _, _ in string.Formatter().parse(resource) if name]
    for values in itertools.product(*(names.get(name, ()) for name in placeholders)):
        yield resource.format(**dict(zip(placeholders, values, strict=True)))
