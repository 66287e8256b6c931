"""IAM policies that raysm needs on AWS, and the checks whether a role and a user have them.

``policies.json`` lists the grants: for the user who sends jobs, and for the role that jobs run as.
Actions and resource types are those of the Service Authorization Reference,
https://docs.aws.amazon.com/service-authorization/latest/reference/, the role's those of
https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html. None of it was tried on AWS.

The checks call IAM's SimulatePrincipalPolicy, which looks at the policies of a user or role, its
permissions boundary and the organization's policies. It does not see policies of buckets,
repositories and keys; the checks read those of keys themselves.
"""

import itertools
import json
import shlex
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any, TypeAlias

from raysm.core.client.images import registry_in
from raysm.core.client.storage.inputs import manifest_at
from raysm.core.client.storage.s3 import Storage, split
from raysm.core.request import Input
from raysm.core.request.external import CodeArtifact, place_of
from raysm.errors import InvalidRequest, RaysmError, ServiceError
from raysm.features.account.case import Case, Finding, bad, good, unknown

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
    """Return the trust policy of the job's role.

    The condition keeps other accounts' jobs from being a way to it.
    """
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
        resources = expand_resources(grant, names)
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


def expand_resources(grant: Grant, names: Names) -> list[str]:
    """Return the ARNs of a grant, one for each combination of names.

    There are none if the job does not need the grant.
    """
    if grant.needs and not names.get(grant.needs):
        return []
    found: dict[str, None] = {}
    for resource in grant.resources:
        placeholders = [name for _, name, _, _ in string.Formatter().parse(resource) if name]
        for values in itertools.product(*(names.get(name, ()) for name in placeholders)):
            found[resource.format(**dict(zip(placeholders, values, strict=True)))] = None
    return list(found)


MISSING = "NoSuchEntity"
"""IAM's code for a role that does not exist."""

OF_KEY = ", unless the key's own does"

UNKNOWN_REPOSITORY = "arn:aws:ecr:REGION:ACCOUNT:repository/REPOSITORY"
EXAMPLE = "doctor"
"""Replaces wildcards: IAM simulates one resource, whose name it takes literally."""


def check_role(case: Case) -> Iterator[Finding]:
    if case.role is None:
        yield bad("no role was given", f"--role ARN, of a role made by: {_creation(case, 'raysm')}")
        return
    name = _role_name(case.role)
    try:
        document = dict(
            case.call("iam", "get_role", RoleName=name)["Role"]["AssumeRolePolicyDocument"]
        )
    except ServiceError as error:
        if error.code != MISSING:
            raise
        yield bad(f"{case.role} does not exist", _creation(case, name))
        return
    statements = _as_list(document.get("Statement", ()))
    own = trust(case.service.account)["Statement"]
    trusting = [statement for statement in statements if _trusts(statement)]
    if trusting:
        yield good(f"{case.role}, which {SERVICE} may assume")
        if not any(f"aws:Source{key}" in json.dumps(trusting) for key in ("Account", "Arn")):
            # https://docs.aws.amazon.com/sagemaker/latest/dg/security-confused-deputy-prevention.html
            condition = (
                'add to that statement of its trust policy: "Condition": '
                f"{json.dumps(own[0]['Condition'])}"
            )
            yield bad(
                f"{SERVICE} may assume {case.role} for other accounts, too", condition, needed=False
            )
        return
    # With the present statements: the command replaces the whole document.
    whole = _quote({**document, "Statement": [*statements, *own]})
    change = f"aws iam update-assume-role-policy --role-name {name} --policy-document {whole}"
    yield bad(f"{SERVICE} may not assume {case.role}", change)


def check_role_policy(case: Case) -> Iterator[Finding]:
    if case.role is None:
        return
    names = find_names(case)
    findings: list[Finding] = []
    try:
        for grant in ROLE:
            # A grant about KMS keys by key: each has its own policy.
            keys = expand_resources(grant, names) if grant.purpose.endswith("Key") else []
            for one in [replace(grant, resources=(key,)) for key in keys] or [grant]:
                findings += _check_grant(case, case.role, one, names)
    except ServiceError as error:
        if error.code != MISSING:
            raise
        return  # check_role reported it
    yield from findings or [
        good("the policies of role and keys allow what the job needs; the bucket's is not checked")
    ]


def _check_grant(case: Case, role: str, grant: Grant, names: Names) -> Iterator[Finding]:
    account = case.service.account
    denials = list(_denials(case, role, [grant], names))
    for denied, text in denials:
        put = (
            f"aws iam put-role-policy --role-name {_role_name(role)} --policy-name "
            f"raysm-{grant.purpose}"
        )
        remedy = f"{put} --policy-document {_quote(policy([denied], names))}"
        # A key's own policy may suffice, unless the key is another account's.
        may_suffice = text.endswith(OF_KEY) and grant.resources[0].split(":")[4] == account
        admits = _key_policy_allows(case, denied, "*", role) if may_suffice else False
        if admits is None:
            yield unknown(f"the role may not {text}", remedy)
        elif not admits:
            yield bad(f"the role may not {text.removesuffix(OF_KEY)}", remedy)
    # A policy that names the account leaves the decision to IAM.
    root = f"arn:{case.partition}:iam::{account}:root"
    if (
        not denials
        and grant.purpose.endswith("Key")
        and _key_policy_allows(case, grant, "*", role, root, account) is False
    ):
        yield unknown(
            f"the policy of {grant.resources[0]} allows the job nothing: it names neither the "
            "role nor the account",
            f"have {role} added to it, unless the key has a grant for the role",
        )


def _key_policy_allows(case: Case, grant: Grant, *principals: str) -> bool | None:
    """Return whether a key's own policy allows one of the principals a grant's actions.

    Return None if it is not known.
    """
    try:
        answer = case.call("kms", "get_key_policy", KeyId=grant.resources[0], PolicyName="default")
    except ServiceError:  # not allowed to ask, or only an alias is known
        return None
    # https://docs.aws.amazon.com/kms/latest/developerguide/key-policies.html; AWS's own keys have
    # conditions.
    effects: dict[str, set[str]] = {action: set() for action in grant.actions}
    for statement in json.loads(answer["Policy"])["Statement"]:
        principal = statement.get("Principal", {})
        named = _as_list(principal.get("AWS", ()) if isinstance(principal, Mapping) else principal)
        patterns = [pattern.lower() for pattern in _as_list(statement.get("Action", ()))]
        for action in grant.actions:
            if not set(principals).isdisjoint(named) and any(
                fnmatchcase(action.lower(), one) for one in patterns
            ):
                effects[action].add(
                    statement["Effect"] + ("If" if "Condition" in statement else "")
                )
    if any("Deny" in found or found.isdisjoint({"Allow", "AllowIf"}) for found in effects.values()):
        return False
    return (
        True
        if all("Allow" in found and "DenyIf" not in found for found in effects.values())
        else None
    )


def check_caller(case: Case) -> Iterator[Finding]:
    if case.caller.endswith(":root"):
        yield good("the account's root user may do everything; better use another")
        return
    principal = _principal(case)
    if principal is None:
        yield unknown(f"IAM simulates no policies of {case.caller}")
        return
    names = find_names(case)
    grants = [
        grant
        for grant in USER
        if not grant.is_side and (case.role or ROLE_ARN not in grant.resources)
    ]
    denied = list(_denials(case, principal, grants, names))
    for grant, text in denied:
        statement = json.dumps(policy([grant], names))
        report = unknown if text.endswith(OF_KEY) else bad
        yield report(
            f"you may not {text}", f"have this added to the policies of {principal}: {statement}"
        )
    if not denied:
        yield good("your policies allow to send and follow jobs, and to pass the role")


def _principal(case: Case) -> str | None:
    """Return the ARN whose policies count: of a caller who assumed a role, that role."""
    arn = case.caller
    if ":user/" in arn:
        return arn
    if ":assumed-role/" not in arn:
        return None
    name = arn.rpartition(":assumed-role/")[2].partition("/")[0]
    try:
        # The caller's own ARN lacks the path, which roles of single sign-on have.
        return str(case.call("iam", "get_role", RoleName=name)["Role"]["Arn"])
    except ServiceError:
        return f"arn:{case.partition}:iam::{case.service.account}:role/{name}"


def _trusts(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal", {})
    services = _as_list(principal.get("Service", ())) if isinstance(principal, Mapping) else []
    actions = {action.lower() for action in _as_list(statement.get("Action", ()))}
    allows = statement.get("Effect") == "Allow" and SERVICE in services
    return allows and not actions.isdisjoint({"sts:assumerole", "sts:*", "*"})


def _as_list(item: Any) -> list[Any]:
    """Return a list: IAM takes a single value for a list of one."""
    return [item] if isinstance(item, (str, Mapping)) else list(item)


def _creation(case: Case, name: str) -> str:
    trusted = _quote(trust(case.service.account))
    create = f"aws iam create-role --role-name {name} --assume-role-policy-document {trusted}"
    put = (
        "raysm doctor --on aws --policy role > role.json && aws iam put-role-policy "
        f"--role-name {name}"
    )
    return f"{create} && {put} --policy-name raysm --policy-document file://role.json"


def _role_name(arn: str) -> str:
    return arn.rpartition("/")[2]


def _quote(document: Mapping[str, Any]) -> str:
    return shlex.quote(json.dumps(document))


def _denials(
    case: Case, principal: str, grants: Iterable[Grant], names: Names
) -> Iterator[tuple[Grant, str]]:
    """Yield grants with the actions that a principal may not do, and a sentence about them."""
    # One call for each grant: IAM tries every action of a call on every one of its resources.
    for grant in grants:
        resources = [
            one.replace("*", EXAMPLE) if one != "*" else "*"
            for one in expand_resources(grant, names)
        ]
        if not resources:
            continue
        answer = case.call(
            "iam",
            "simulate_principal_policy",
            PolicySourceArn=principal,
            ActionNames=list(grant.actions),
            ResourceArns=resources,
            # A condition whose key is not given does not hold: what it allows would look denied.
            ContextEntries=[
                {
                    "ContextKeyName": key,
                    "ContextKeyType": "string",
                    "ContextKeyValues": [value.replace("*", EXAMPLE)],
                }
                for operands in grant.conditions.values()
                for key, value in operands.items()
            ],
            # The maximum, so that one page has all.
            MaxItems=1000,
        )
        denied = [item for item in answer["EvaluationResults"] if item["EvalDecision"] != "allowed"]
        if denied:
            actions = tuple(dict.fromkeys(item["EvalActionName"] for item in denied))
            is_explicit = any(item["EvalDecision"] == "explicitDeny" for item in denied)
            # IAM does not simulate a key's own policy, which may admit the role or the user.
            rest = OF_KEY if grant.actions[0].startswith("kms:") else ""
            why = "a policy denies it" if is_explicit else f"no policy allows it{rest}"
            text = f"{', '.join(actions)} on {', '.join(expand_resources(grant, names))}: {why}"
            yield replace(grant, actions=actions), text


def find_names(case: Case) -> Names:
    """Return the names of a case's things.

    A word in capitals stands for what only AWS knows and does not report.
    """
    intent = case.intent
    security = case.intent.security
    # Local data is uploaded into raysm's part of the bucket, which has its own line.
    inputs = [
        uri
        for source in intent.inputs.values()
        for uri in _uris(case, source)
        if uri.startswith("s3://")
    ]
    outputs = [
        uri for uri in (intent.output_uri, intent.checkpoint_uri) if uri and uri.startswith("s3://")
    ]
    # Without credentials the role's ARN still names the account and the partition.
    of_role = (case.role or "").split(":")
    known_partition, known_account = (
        (of_role[1], of_role[4]) if len(of_role) == 6 else ("aws", "ACCOUNT")
    )
    region = _ask(lambda: case.region, "REGION")
    account = _ask(lambda: case.service.account, known_account)
    partition = _ask(lambda: case.partition, known_partition)
    index = None if intent.pip_index is None else CodeArtifact.of(intent.pip_index)
    is_of_service = intent.tracking is not None and place_of(intent.tracking).is_of_service
    mlflow = (str(intent.tracking),) if is_of_service else ()

    bucket = case.service.connection.bucket(lambda: region, lambda: account)

    def repository() -> str:
        image = registry_in(case.image)
        if image is None:
            raise InvalidRequest(f"the image {case.image!r} is not in Amazon ECR")
        return f"arn:{partition}:ecr:{image.region}:{image.account}:repository/{image.name}"

    def key_arn(key: str | None) -> tuple[str, ...]:
        # Policies take neither a bare ID nor an alias, and only KMS knows the key of an alias.
        if key is None or (key.startswith("arn:") and ":alias/" not in key):
            return () if key is None else (key,)
        return (f"arn:{partition}:kms:{region}:{account}:key/{'*' if 'alias/' in key else key}",)

    return {
        "partition": (partition,),
        "region": (region,),
        "account": (account,),
        "project": (intent.project,),
        "bucket": (bucket.name,),
        # raysm creates no bucket that the user named.
        "default_bucket": () if bucket.is_named else (bucket.name,),
        "role": (case.role or f"arn:{partition}:iam::{account}:role/ROLE",),
        "repository": (_ask(repository, UNKNOWN_REPOSITORY),),
        "input_bucket": tuple(dict.fromkeys(split(uri)[0] for uri in inputs)),
        "input_prefix": tuple(uri.removeprefix("s3://") for uri in inputs),
        "output_bucket": tuple(dict.fromkeys(split(uri)[0] for uri in outputs)),
        "output_prefix": tuple(uri.removeprefix("s3://") for uri in outputs),
        "output_key": key_arn(security.output_kms_key),
        "volume_key": key_arn(security.volume_kms_key),
        **{place: case.found_keys.get(place, ()) for place in ("bucket_key", "input_key")},
        "subnet": security.subnets,
        # Grids, tuning and lists of prices are other work than that of one job.
        "other_work": () if case.plan else ("yes",),
        "remote_debug": ("yes",) if security.remote_debug else (),
        "domain": ()
        if index is None
        else (f"{index.arn.partition(':repository/')[0]}:domain/{index.domain}",),
        "package_repository": () if index is None else (str(intent.pip_index),),
        "mlflow": mlflow,
        "mlflow_app": tuple(arn for arn in mlflow if ":mlflow-app/" in arn),
    }


def _uris(case: Case, source: Input) -> tuple[str, ...]:
    """Return the prefixes that the job reads of an input, those of a manifest's objects too."""
    if not source.manifest:
        return (source.uri,)
    return (source.uri, _ask(lambda: manifest_at(source.uri, Storage(case.service)).prefix, ""))


def _ask(ask: Callable[[], str], word: str) -> str:
    try:
        return ask()
    except RaysmError:  # a policy can be printed without credentials
        return word
