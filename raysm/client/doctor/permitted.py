"""The role that the job runs as, and what the user may do: whether it is there, who may take it on, what IAM allows."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from raysm.client.doctor.case import Case
from raysm.client.doctor.finding import Finding, bad, good, unknown
from raysm.client.doctor.names import names_of
from raysm.client.doctor.simulation import Denial, denials
from raysm.client.permissions import ROLE, ROLE_ARN, SERVICE, USER, Grant, Names, policy, trust
from raysm.errors import ServiceError

__all__ = ["look_at_caller", "look_at_role", "look_at_role_policy"]

ANY_ROLE = "raysm"
"""What a role is called in a command that makes one."""

MISSING = "NoSuchEntity"
"""IAM's code for a role that is not there."""


def look_at_role(case: Case) -> Iterator[Finding]:
    """Yield whether the role exists, and whether SageMaker may take it on."""
    if case.role is None:
        yield bad("no role was named", f"--role ARN, of a role made by: {_creation(ANY_ROLE)}")
        return
    name = _name(case.role)
    try:
        document = dict(case.call("iam", "get_role", RoleName=name)["Role"]["AssumeRolePolicyDocument"])
    except ServiceError as error:
        if error.code != MISSING:
            raise
        yield bad(f"{case.role} is not there", _creation(name))
        return
    statements = _listed(document.get("Statement", ()))
    if any(_trusts(statement) for statement in statements):
        yield good(f"{case.role}, which {SERVICE} may take on")
        return
    # With those that it has: the command replaces the whole document.
    whole = _quoted({**document, "Statement": [*statements, *trust()["Statement"]]})
    change = f"aws iam update-assume-role-policy --role-name {name} --policy-document {whole}"
    yield bad(f"{SERVICE} may not take {case.role} on", change)


def look_at_role_policy(case: Case) -> Iterator[Finding]:
    """Yield whether the role's policies allow what SageMaker does in its name."""
    if case.role is None:
        return
    names = names_of(case)
    try:
        lacking = list(denials(case, case.role, ROLE, names))
    except ServiceError as error:
        if error.code != MISSING:
            raise
        return  # look_at_role has said that it is not there
    for denial in lacking:
        statement = _quoted(policy([replace(denial.grant, actions=denial.actions)], names))
        put = f"aws iam put-role-policy --role-name {_name(case.role)} --policy-name raysm-{denial.grant.purpose}"
        yield bad(f"the role may not {_actions(denial, names)}", f"{put} --policy-document {statement}")
    if not lacking:
        yield good("the role's policies allow what the job needs; those of buckets and keys are not looked at")


def look_at_caller(case: Case) -> Iterator[Finding]:
    """Yield whether the caller may send and follow jobs, and pass the role on."""
    if case.caller.endswith(":root"):
        yield good("the account's root user may do everything; better use another")
        return
    principal = _principal(case)
    if principal is None:
        yield unknown(f"IAM simulates no policies of {case.caller}")
        return
    names = names_of(case)
    lacking = list(denials(case, principal, _needed(case), names))
    for denial in lacking:
        statement = json.dumps(policy([replace(denial.grant, actions=denial.actions)], names))
        yield bad(
            f"you may not {_actions(denial, names)}", f"have this added to the policies of {principal}: {statement}"
        )
    if not lacking:
        yield good("your policies allow to send and follow jobs, and to pass the role on")


def _needed(case: Case) -> list[Grant]:
    """Return what the caller has to be allowed for jobs: nothing beside them, and no role that nobody named."""
    grants = [grant for grant in USER if not grant.is_side]
    return [grant for grant in grants if case.role or ROLE_ARN not in grant.resources]


def _principal(case: Case) -> str | None:
    """Return whose policies count: of who has taken a role on, that role."""
    arn = case.caller
    if ":user/" in arn:
        return arn
    if ":assumed-role/" not in arn:
        return None
    name = arn.rpartition(":assumed-role/")[2].partition("/")[0]
    try:
        # The caller's own ARN lacks the path, which the roles of single sign-on have.
        return str(case.call("iam", "get_role", RoleName=name)["Role"]["Arn"])
    except ServiceError:
        return f"arn:{case.partition}:iam::{case.service.account}:role/{name}"


def _trusts(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal", {})
    # Where a principal is a text, it is *.
    services = _listed(principal.get("Service", ())) if isinstance(principal, Mapping) else []
    # IAM takes its actions in capitals and small letters alike.
    actions = {action.lower() for action in _listed(statement.get("Action", ()))}
    return (
        statement.get("Effect") == "Allow"
        and SERVICE in services
        and not actions.isdisjoint({"sts:assumerole", "sts:*", "*"})
    )


def _listed(item: Any) -> list[Any]:
    """Return a list: IAM lets one value stand for a list of one."""
    return [item] if isinstance(item, (str, Mapping)) else list(item)


def _actions(denial: Denial, names: Names) -> str:
    resources = policy([denial.grant], names)["Statement"][0]["Resource"]
    shown = ", ".join(_listed(resources))
    why = "a policy denies it" if denial.is_explicit else "no policy allows it"
    return f"{', '.join(denial.actions)} on {shown}: {why}"


def _creation(name: str) -> str:
    create = f"aws iam create-role --role-name {name} --assume-role-policy-document {_quoted(trust())}"
    put = f"raysm doctor --on aws --policy role > role.json && aws iam put-role-policy --role-name {name}"
    return f"{create} && {put} --policy-name raysm --policy-document file://role.json"


def _name(arn: str) -> str:
    # A role's ARN may have a path before the name, which IAM's operations do not take.
    return arn.rpartition("/")[2]


def _quoted(document: Mapping[str, Any]) -> str:
    return shlex.quote(json.dumps(document))
