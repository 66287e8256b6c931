"""IAM policies that raysm needs on AWS: for the user who sends jobs, and for the role that jobs run as.

``policies.json`` lists the grants. Actions and resource types are those of the Service
Authorization Reference, https://docs.aws.amazon.com/service-authorization/latest/reference/, the
role's those of https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html. None of it was
tried on AWS.
"""

import itertools
import json
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeAlias

SERVICE = "sagemaker.amazonaws.com"
"""The service that assumes the job's role; the same in all partitions."""

ROLE_ARN = "{role}"
"""The resource of grants about the job's role."""

Names: TypeAlias = Mapping[str, tuple[str, ...]]
"""Values for each placeholder of a resource; a resource whose placeholder has none is left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """Some actions on some resources, for one purpose."""

    purpose: str
    """The Sid of its statement: letters and digits."""
    meaning: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    """ARNs with placeholders; ``*`` if the actions take no narrower one."""
    calls: tuple[str, ...] = ()
    """Operations of the client that need it, ``s3:HeadBucket``."""
    is_side: bool = False
    """True if jobs can be sent and followed without it."""
    needs: str = ""
    """The placeholder without which a job does not need the grant; empty for every job."""
    conditions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def _read(whose: str) -> tuple[Grant, ...]:
    table: dict[str, list[dict[str, Any]]] = json.loads(
        files("raysm.features.account").joinpath("policies.json").read_text("utf-8")
    )
    made = []
    for grant in table[whose]:
        fields: Any = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in grant.items()
        }
        made.append(Grant(**fields))
    return tuple(made)


USER = _read("user")
"""Calls of a user who sends and follows jobs, and of ``raysm doctor``."""

ROLE = _read("role")
"""Calls that SageMaker makes in the role's name, and those of raysm in the instances."""


def trust(account: str) -> dict[str, Any]:
    """Return the trust policy of the job's role; the condition keeps other accounts' jobs from being a way to it."""
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"Service": SERVICE},
        "Action": "sts:AssumeRole",
    }
    statement["Condition"] = {"StringEquals": {"aws:SourceAccount": account}}
    return {"Version": "2012-10-17", "Statement": [statement]}


def policy(grants: Iterable[Grant], names: Names) -> dict[str, Any]:
    """Return the policy that makes these grants, as far as a job with these names needs them."""
    statements = []
    for grant in grants:
        resources = resources_of(grant, names)
        if resources:
            statement: dict[str, Any] = {
                "Sid": grant.purpose,
                "Effect": "Allow",
                "Action": list(grant.actions),
            }
            statement["Resource"] = resources if len(resources) > 1 else resources[0]
            if grant.conditions:
                statement["Condition"] = dict(grant.conditions)
            statements.append(statement)
    return {"Version": "2012-10-17", "Statement": statements}


def resources_of(grant: Grant, names: Names) -> list[str]:
    """Return the ARNs of a grant, one for each combination of names; none if the job does not need it."""
    if grant.needs and not names.get(grant.needs):
        return []
    found: dict[str, None] = {}
    for resource in grant.resources:
        placeholders = [name for _, name, _, _ in string.Formatter().parse(resource) if name]
        for values in itertools.product(*(names.get(name, ()) for name in placeholders)):
            found[resource.format(**dict(zip(placeholders, values, strict=True)))] = None
    return list(found)
