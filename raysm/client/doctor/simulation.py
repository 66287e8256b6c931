"""IAM's own answer to whether somebody may do something: SimulatePrincipalPolicy.

What flows in are grants and names, what flows out is what of them is denied. IAM looks at the policies of the user or
role, its boundary and the organisation's; it does not see what policies of buckets, keys and repositories say.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raysm.client.doctor.case import Case
from raysm.client.permissions import Grant, Names, resources_of

__all__ = ["Denial", "denials"]

EXAMPLE = "doctor"
"""Stands for a wildcard: IAM simulates one resource, whose name it takes letter for letter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Denial:
    """What of one grant is not allowed."""

    grant: Grant
    """The whole."""
    actions: tuple[str, ...]
    """Of it, those that are denied on at least one resource."""
    is_explicit: bool
    """Whether a policy says no; else none says yes."""


def denials(case: Case, principal: str, grants: Iterable[Grant], names: Names) -> Iterator[Denial]:
    """Yield what a user or role may not do, one grant after the other.

    Args:
        case: Whose account.
        principal: The user's or role's ARN.
        grants: What is asked about.
        names: Of the resources.

    Raises:
        ServiceError: IAM does not answer, most often because the caller may not ask.
    """
    # A call for each: IAM tries every action of a call on every one of its resources.
    for grant in grants:
        resources = [
            resource.replace("*", EXAMPLE) if resource != "*" else "*" for resource in resources_of(grant, names)
        ]
        if not resources:
            continue
        answer = case.call(
            "iam",
            "simulate_principal_policy",
            PolicySourceArn=principal,
            ActionNames=list(grant.actions),
            ResourceArns=resources,
            # A condition whose key is not told does not hold: what it allows would look denied.
            ContextEntries=[
                {"ContextKeyName": key, "ContextKeyType": "string", "ContextKeyValues": [value.replace("*", EXAMPLE)]}
                for operands in grant.conditions.values()
                for key, value in operands.items()
            ],
            # The most that IAM takes, so that one page has all; without it, a page has 100.
            MaxItems=1000,
        )
        denied = [item for item in answer["EvaluationResults"] if item["EvalDecision"] != "allowed"]
        if denied:
            yield Denial(
                grant=grant,
                actions=tuple(dict.fromkeys(item["EvalActionName"] for item in denied)),
                is_explicit=any(item["EvalDecision"] == "explicitDeny" for item in denied),
            )
