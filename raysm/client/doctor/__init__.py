"""Checks before a job is sent to AWS. They follow AWS's documentation; none of them was run on AWS.

A new check is a function that yields findings, and a line in ``CHECKS``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from raysm.client.doctor.account import (
    check_credentials,
    check_endpoints,
    check_plan,
    check_quotas,
    check_region,
    check_tunnel,
    check_types,
)
from raysm.client.doctor.case import Case, Finding, Intent, State, bad, intent_of, unknown
from raysm.client.doctor.network import check_groups, check_subnets
from raysm.client.doctor.rights import check_caller, check_role, check_role_policy
from raysm.client.doctor.storage import check_bucket, check_image, check_inputs, check_keys
from raysm.errors import InvalidRequest, MissingDependency, ServiceError

__all__ = ["CHECKS", "Case", "Check", "Finding", "Intent", "State", "carry_out", "examine", "intent_of"]

DENIALS = ("AccessDenied", "UnauthorizedOperation", "AuthorizationError", "Forbidden", "403")
"""Error codes of a caller who may not ask begin with one of these."""

MAX_TEXT = 300
"""Characters of an error that are shown: a proxy may answer with a whole page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check."""

    name: str
    look: Callable[[Case], Iterator[Finding]]
    """Yields its findings; none if the job has no such thing."""
    asks: bool = True
    """Whether it asks AWS, and so needs credentials."""


CHECKS = (
    Check(name="region", look=check_region, asks=False),
    Check(name="endpoint", look=check_endpoints, asks=False),
    # Not skipped without credentials, since this check says so.
    Check(name="credentials", look=check_credentials, asks=False),
    Check(name="role", look=check_role),
    Check(name="role's rights", look=check_role_policy),
    Check(name="your rights", look=check_caller),
    Check(name="bucket", look=check_bucket),
    Check(name="inputs", look=check_inputs),
    Check(name="keys", look=check_keys),
    Check(name="image", look=check_image),
    Check(name="instance type", look=check_types, asks=False),
    Check(name="quota", look=check_quotas),
    Check(name="subnets", look=check_subnets),
    Check(name="groups", look=check_groups),
    Check(name="plan", look=check_plan),
    Check(name="tunnel", look=check_tunnel, asks=False),
)
"""All checks, in the order in which problems are best fixed."""


def examine(case: Case) -> Iterator[Finding]:
    """Yield the findings of all checks, as they come."""
    has_credentials = True
    for check in CHECKS:
        if check.asks and not has_credentials:
            yield replace(unknown("could not look without credentials"), name=check.name)
            continue
        for finding in carry_out(check, case):
            if check.look is check_credentials:
                has_credentials = finding.state is State.GOOD
            yield finding


def carry_out(check: Check, case: Case) -> Iterator[Finding]:
    """Yield the findings of a check; an error that stops it is its last finding.

    A refused question is no defect: many users may run jobs and may not ask IAM or Service Quotas about them.
    """
    try:
        for finding in check.look(case):
            yield replace(finding, name=check.name)
    except (InvalidRequest, MissingDependency) as error:
        yield replace(bad(error.problem, error.remedy), name=check.name)
    except ServiceError as error:
        text, remedy = " ".join(error.problem.split()), error.remedy
        if error.code.startswith(DENIALS):
            remedy = "ask someone who may, or add the doctor's own permissions: raysm doctor --policy user"
        shown = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
        yield replace(unknown(f"could not look: {shown}", remedy), name=check.name)
