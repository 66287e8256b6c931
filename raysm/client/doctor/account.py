"""Where the calls go, and as whom: endpoints, region, credentials, and how new the service model here is."""

import difflib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from raysm.client.doctor.case import Case
from raysm.client.doctor.finding import Finding, bad, good, unknown
from raysm.client.service_model_check import instance_types
from raysm.client.targets.aws import AWS_HOSTS
from raysm.contract.service_model import may_be_newer
from raysm.errors import ServiceError

__all__ = ["look_at_credentials", "look_at_endpoints", "look_at_region", "look_at_types"]

SERVICES = ("sagemaker", "s3", "logs", "sts")
"""Without any of which no job is sent or followed."""

REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")


def look_at_endpoints(case: Case) -> Iterator[Finding]:
    """Yield whether calls go to AWS: AWS_ENDPOINT_URL, left in a shell, sends them elsewhere without a word."""
    urls = {name: str(case.service.client(name).meta.endpoint_url) for name in SERVICES}
    strange = {name: url for name, url in urls.items() if not (urlsplit(url).hostname or "").endswith(AWS_HOSTS)}
    if not strange:
        yield good("calls go to AWS")
        return
    # With one variable all of them go to the same place.
    shown = ", ".join(f"{', '.join(n for n in strange if strange[n] == url)} to {url}" for url in {*strange.values()})
    yield bad(
        f"calls do not go to AWS: {shown}",
        "unset AWS_ENDPOINT_URL AWS_ENDPOINT_URL_SAGEMAKER AWS_ENDPOINT_URL_S3, and endpoint_url of the profile",
    )


def look_at_region(case: Case) -> Iterator[Finding]:
    """Yield whether a region is set, and is one."""
    try:
        region = case.region
    except ServiceError as error:
        text, _, remedy = str(error).partition("; ")
        yield bad(text, remedy or "give --region, or run aws configure set region REGION")
        return
    regions = _regions()
    near = difflib.get_close_matches(region, regions, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else "aws configure set region REGION"
    if region in regions:
        yield good(region)
    elif not REGION.fullmatch(region):
        yield bad(f"{region!r} is not a region", hint)
    else:
        yield unknown(f"{region} is not among the regions that this boto3 knows", f"{hint} pip install -U boto3")


def _regions() -> list[str]:
    import boto3

    session = boto3.Session(region_name="us-east-1")
    return [
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("sagemaker", partition)
    ]


def look_at_credentials(case: Case) -> Iterator[Finding]:
    """Yield who calls."""
    try:
        yield good(case.caller)
    except ServiceError as error:
        # A network that is down says nothing of the credentials.
        if error.is_transient:
            raise
        text, _, remedy = str(error).partition("; ")
        yield bad(text, remedy or "aws configure, aws sso login, or --profile NAME")


def look_at_types(case: Case) -> Iterator[Finding]:
    """Yield whether the service model here knows the instance types."""
    import botocore

    types: Any = instance_types(case.api)
    # All of a choice: the service refuses a request of which it does not know one.
    for name in dict.fromkeys(name for choice in case.intent.choices for name in choice):
        near = difflib.get_close_matches(name, types, n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        if name in types:
            yield good(f"{name} is an instance type of {case.api.title} jobs")
        elif not may_be_newer(("InstanceType",), name):
            yield bad(f"{name!r} is no instance type", f"{hint}write ml.FAMILY.SIZE, ml.m5.large for example")
        else:
            # AWS adds types more often than people update botocore.
            yield unknown(f"{name} is not known to botocore {botocore.__version__}", f"{hint}pip install -U boto3")
