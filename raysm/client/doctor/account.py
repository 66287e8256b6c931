"""Checks of the AWS configuration, instance types, quotas, the plan, and the session-manager-plugin."""

import difflib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from raysm.client.account.quotas import listed_quotas
from raysm.client.checks import instance_types
from raysm.client.doctor.case import Case, Finding, bad, good, one_suffices, unknown
from raysm.client.targets.aws import AWS_HOSTS
from raysm.client.tunnel.plugin import PluginAccess
from raysm.contract.service_model import may_be_newer
from raysm.errors import MissingDependency, ServiceError

SERVICES = ("sagemaker", "s3", "logs", "sts")
"""The services that every job needs."""

REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")


def check_endpoints(case: Case) -> Iterator[Finding]:
    """Yield whether calls go to AWS: AWS_ENDPOINT_URL, left in a shell, silently sends them elsewhere."""
    urls = {name: str(case.service.client(name).meta.endpoint_url) for name in SERVICES}
    strange = {name: url for name, url in urls.items() if not (urlsplit(url).hostname or "").endswith(AWS_HOSTS)}
    if not strange:
        yield good("calls go to AWS")
        return
    shown = ", ".join(f"{name} to {url}" for name, url in strange.items())
    yield bad(
        f"calls do not go to AWS: {shown}",
        "unset AWS_ENDPOINT_URL AWS_ENDPOINT_URL_SAGEMAKER AWS_ENDPOINT_URL_S3, and endpoint_url of the profile",
    )


def check_region(case: Case) -> Iterator[Finding]:
    """Yield whether a region is set, and exists."""
    import boto3

    try:
        region = case.region
    except ServiceError as error:
        yield bad(error.problem, error.remedy)
        return
    session = boto3.Session(region_name="us-east-1")
    regions = [
        name
        for partition in session.get_available_partitions()
        for name in session.get_available_regions("sagemaker", partition)
    ]
    near = difflib.get_close_matches(region, regions, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else "aws configure set region REGION"
    if region in regions:
        yield good(region)
    elif not REGION.fullmatch(region):
        yield bad(f"{region!r} is not a region", hint)
    else:
        yield unknown(f"{region} is not among the regions that this boto3 knows", f"{hint} pip install -U boto3")


def check_credentials(case: Case) -> Iterator[Finding]:
    """Yield who calls."""
    try:
        yield good(case.caller)
    except ServiceError as error:
        # A network that is down says nothing about the credentials.
        if error.is_transient:
            raise
        yield bad(error.problem, error.remedy or "aws configure, aws sso login, or --profile NAME")


def check_types(case: Case) -> Iterator[Finding]:
    """Yield whether the installed botocore knows the instance types."""
    import botocore

    types: Any = instance_types(case.api)
    for name in dict.fromkeys(name for choice in case.intent.choices for name in choice):
        near = difflib.get_close_matches(name, types, n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        if name in types:
            yield good(f"{name} is an instance type of {case.api.title} jobs")
        elif not may_be_newer(("InstanceType",), name):
            yield bad(f"{name!r} is no instance type", f"{hint}write ml.FAMILY.SIZE, ml.m5.large for example")
        else:
            yield unknown(f"{name} is not known to botocore {botocore.__version__}", f"{hint}pip install -U boto3")


def check_quotas(case: Case) -> Iterator[Finding]:
    """Yield whether the account's quotas suffice. They count all jobs of the account, also those that run already."""
    intent, kind = case.intent, f"{case.api.kind} job"
    if not intent.size:
        yield unknown("no instance type was given", "--instance-type TYPE --instances N, or --for job.json")
        return
    if intent.cluster is not None and intent.cluster.training_plan is not None:
        yield unknown("the capacity of a training plan is reserved: no on-demand quota applies")
        return
    capacity = f"spot {kind}" if intent.limits.spot else kind
    choices: list[dict[str, float]] = []
    for choice in intent.choices:
        needs: dict[str, float] = {f"{name} for {capacity} usage": count for name, count in choice.items()}
        if intent.cluster is not None and intent.cluster.keep_alive_s:
            needs |= {f"{name} for {case.api.kind} warm pool usage": count for name, count in choice.items()}
        choices.append(needs)
    # Not every account lists these.
    common: dict[str, float] = {
        f"Number of instances across all {capacity}s": intent.size,
        f"Maximum number of instances per {capacity}": intent.size,
        f"Longest run time for a {kind}": intent.limits.max_runtime_s,
    }
    names = {*common, *(name for needs in choices for name in needs)}
    quotas: dict[str, dict[str, Any]] = {}
    for quota in listed_quotas(case.service):
        if quota["QuotaName"] in names:
            # The values that apply to the account come before AWS's defaults.
            quotas.setdefault(quota["QuotaName"], quota)
        if quotas.keys() == names:
            break
    yield from one_suffices(
        [[_compare(case, name, amount, quotas.get(name)) for name, amount in needs.items()] for needs in choices]
    )
    for name, amount in common.items():
        if name in quotas:
            yield _compare(case, name, amount, quotas[name])


def _compare(case: Case, name: str, amount: float, quota: dict[str, Any] | None) -> Finding:
    if quota is None:
        return unknown(f"Service Quotas lists no quota {name!r} in {case.region}", "check the instance type")
    text = f"{name}: {quota['Value']:.0f}, the job takes {amount:.0f}"
    request = (
        "aws service-quotas request-service-quota-increase --service-code sagemaker "
        f"--quota-code {quota['QuotaCode']} --desired-value {amount:.0f} --region {case.region}"
    )
    return good(text) if quota["Value"] >= amount else bad(text, request)


def check_plan(case: Case) -> Iterator[Finding]:
    """Yield whether the Create call can be made, if the job is fully known."""
    if case.plan is not None:
        yield good(f"{case.plan().api.create} keeps to the API's rules")


def check_tunnel(case: Case) -> Iterator[Finding]:
    """Yield whether tunnels and shells can be opened from this machine."""
    try:
        PluginAccess(case.service).check()
    except MissingDependency as error:
        yield bad(error.problem, error.remedy, needed=False)
        return
    yield good("AWS's session-manager-plugin is installed: tunnels, shells and dashboards of jobs can be opened")
