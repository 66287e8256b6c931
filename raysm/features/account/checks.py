"""Checks before a job is sent to AWS. They follow AWS's documentation.

None of them was run on AWS.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from raysm.core import features
from raysm.core.client.checks import instance_types
from raysm.core.client.cuda import find_build, find_mismatch, needed_cuda
from raysm.core.client.images import cuda_of, has_ray, is_of_aws, registry_in
from raysm.core.client.service import list_quotas
from raysm.core.client.storage.s3 import Storage, file_path, split
from raysm.core.client.targets.aws import AWS_HOSTS
from raysm.core.protocol.instance_types import gpu_of, supports_efa
from raysm.core.protocol.service_model import may_be_newer
from raysm.core.request.file_systems import file_system_at
from raysm.errors import InvalidRequest, MissingDependency, ServiceError
from raysm.features.account.case import (
    Case,
    Finding,
    State,
    bad,
    good,
    one_suffices,
    unknown,
)
from raysm.features.account.network import check_groups, check_subnets
from raysm.features.account.permissions import check_caller, check_role, check_role_policy

SERVICES = ("sagemaker", "s3", "logs", "sts")

REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+")


def check_endpoints(case: Case) -> Iterator[Finding]:
    """Yield whether calls go to AWS: AWS_ENDPOINT_URL silently sends them elsewhere."""
    urls = {name: str(case.service.client(name).meta.endpoint_url) for name in SERVICES}
    strange = {
        name: url
        for name, url in urls.items()
        if not (urlsplit(url).hostname or "").endswith(AWS_HOSTS)
    }
    if not strange:
        yield good("calls go to AWS")
        return
    shown = ", ".join(f"{name} to {url}" for name, url in strange.items())
    yield bad(
        f"calls do not go to AWS: {shown}",
        "unset AWS_ENDPOINT_URL AWS_ENDPOINT_URL_SAGEMAKER AWS_ENDPOINT_URL_S3, and endpoint_url "
        "of the profile",
    )


def check_region(case: Case) -> Iterator[Finding]:
    import boto3

    try:
        region = case.region
    except ServiceError as error:
        yield bad(error.problem, error.remedy)
        return
    session = boto3.Session(region_name="us-east-1")
    partitions = session.get_available_partitions()
    if any(
        region in session.get_available_regions("sagemaker", partition) for partition in partitions
    ):
        yield good(region)
    elif not REGION.fullmatch(region):
        yield bad(f"{region!r} is not a region", "aws configure set region REGION")
    else:
        yield unknown(
            f"{region} is not among the regions that this boto3 knows",
            "check its name, or pip install -U boto3",
        )


def check_credentials(case: Case) -> Iterator[Finding]:
    try:
        yield good(case.caller)
    except ServiceError as error:
        # A network that is down says nothing about the credentials.
        if error.is_transient:
            raise
        yield bad(error.problem, error.remedy or "aws configure, aws sso login, or --profile NAME")


def check_types(case: Case) -> Iterator[Finding]:
    import botocore

    types: Any = instance_types(case.api)
    for name in dict.fromkeys(name for choice in case.intent.choices for name in choice):
        if name in types:
            yield good(f"{name} is an instance type of {case.api.title} jobs")
        elif not may_be_newer(("InstanceType",), name):
            yield bad(
                f"{name!r} is no instance type", "write ml.FAMILY.SIZE, ml.m5.large for example"
            )
        else:
            yield unknown(
                f"{name} is not known to botocore {botocore.__version__}",
                "check its name, or pip install -U boto3",
            )


def check_cuda(case: Case) -> Iterator[Finding]:
    """Yield whether the CUDA of the image, or of a required torch, is for the GPUs of the types."""
    intent = case.intent
    types = dict.fromkeys(name for choice in intent.choices for name in choice)
    for name in types:
        gpu = gpu_of(name)
        if gpu is None:
            continue
        needs = f"{name} has {gpu.name} GPUs, which need {needed_cuda(gpu)}"
        build = find_build(name, case.image, intent.requirements, map(Path, intent.wheels))
        mismatch = find_mismatch(name, build)
        if mismatch is not None:
            is_fatal = mismatch.is_certain and intent.cluster and not intent.cluster.allow_cpu
            yield bad(mismatch.problem, mismatch.remedy, needed=bool(is_fatal))
        elif build is None:
            text = f"{needs}; which CUDA the job has is not known"
            # Nor can it be, of many images: the instance looks.
            yield replace(unknown(text), needed=False)
        else:
            yield good(f"{needs}, and {build.source} has it")


def check_efa(case: Case) -> Iterator[Finding]:
    """Yield whether the image has NCCL's plugin for the network EFA, without which TCP is used."""
    types = dict.fromkeys(name for choice in case.intent.choices for name in choice)
    names = [name for name in types if supports_efa(name)]
    if not names or case.intent.size == 1:
        return
    have = f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} EFA"
    if is_of_aws(case.image) and cuda_of(case.image) is not None:
        yield good(f"{have}, and {case.image} has its plugin for NCCL, aws-ofi-nccl")
        return
    finding = unknown(
        f"{have}; whether {case.image} has its plugin for NCCL, aws-ofi-nccl, is not known",
        "build on AWS's PyTorch image (raysm image --gpu prints how), or install EFA: "
        "--build-arg EFA_INSTALLER=latest of containers/Dockerfile",
    )
    # NCCL uses TCP without it.
    yield replace(finding, needed=False)


def check_quotas(case: Case) -> Iterator[Finding]:
    """Yield whether the account's quotas suffice.

    Quotas count all jobs of the account, also those that run already.
    """
    intent = case.intent
    kind = f"{case.api.kind} job"
    if not intent.size:
        yield unknown(
            "no instance type was given", "--instance-type TYPE --instances N, or --for job.json"
        )
        return
    if intent.cluster is not None and any(
        each.training_plan for each in intent.cluster.preferences
    ):
        yield unknown("the capacity of a training plan is reserved: no on-demand quota applies")
        return
    capacity = f"spot {kind}" if intent.limits.spot else kind
    choices: list[dict[str, float]] = []
    for choice in intent.choices:
        needs: dict[str, float] = {
            f"{name} for {capacity} usage": count for name, count in choice.items()
        }
        if intent.cluster is not None and intent.cluster.keep_alive_s:
            needs |= {
                f"{name} for {case.api.kind} warm pool usage": count
                for name, count in choice.items()
            }
        choices.append(needs)
    common: dict[str, float] = {
        f"Number of instances across all {capacity}s": intent.size,
        f"Maximum number of instances per {capacity}": intent.size,
        f"Longest run time for a {kind}": intent.limits.max_runtime_s,
    }
    names = {*common, *(name for needs in choices for name in needs)}
    quotas: dict[str, dict[str, Any]] = {}
    for quota in list_quotas(case.service):
        if quota["QuotaName"] in names:
            # The values that apply to the account come before AWS's defaults.
            quotas.setdefault(quota["QuotaName"], quota)
        if quotas.keys() == names:
            break
    yield from one_suffices(
        [
            [_compare(case, name, amount, quotas.get(name)) for name, amount in needs.items()]
            for needs in choices
        ]
    )
    for name, amount in common.items():
        if name in quotas:
            yield _compare(case, name, amount, quotas[name])


def _compare(case: Case, name: str, amount: float, quota: dict[str, Any] | None) -> Finding:
    if quota is None:
        return unknown(
            f"Service Quotas lists no quota {name!r} in {case.region}", "check the instance type"
        )
    text = f"{name}: {quota['Value']:.0f}, the job takes {amount:.0f}"
    request = (
        "aws service-quotas request-service-quota-increase --service-code sagemaker "
        f"--quota-code {quota['QuotaCode']} --desired-value {amount:.0f} --region {case.region}"
    )
    return good(text) if quota["Value"] >= amount else bad(text, request)


def check_plan(case: Case) -> Iterator[Finding]:
    if case.plan is not None:
        yield good(f"{case.plan().api.create} keeps to the API's rules")
    if case.intent.size:
        hours = case.intent.size * case.intent.limits.max_runtime_s / 3600
        yield good(
            f"a job with these options takes up to {hours:,.1f} instance-hours; --max-runtime "
            "limits the time"
        )


def check_tunnel(case: Case) -> Iterator[Finding]:
    access = features.offered("access_on_aws")
    if access is None:
        return
    try:
        access(case.service).check()
    except MissingDependency as error:
        yield bad(error.problem, error.remedy, needed=False)
        return
    yield good(
        "AWS's session-manager-plugin is installed: tunnels, shells and dashboards of jobs can be "
        "opened"
    )


def check_bucket(case: Case) -> Iterator[Finding]:
    """Yield whether the bucket is in the job's region, and can be written, by a small object."""
    name = case.bucket.name
    region = Storage(case.service).bucket_region(name)
    if region is None and case.bucket.is_named:
        yield bad(f"there is no bucket {name}", f"aws s3 mb s3://{name} --region {case.region}")
    elif region is None:
        yield good(f"{name} does not exist yet: the first job makes it")
    elif region != case.region:
        yield bad(
            f"{name} is in {region}, the job runs in {case.region}",
            f"name a bucket of {case.region} (--bucket), or run there: --region {region}",
        )
    else:
        yield _try_writing(case)
        yield _check_lifecycle(case)


def _check_lifecycle(case: Case) -> Finding:
    try:
        rules = case.call("s3", "get_bucket_lifecycle_configuration", Bucket=case.bucket.name)[
            "Rules"
        ]
    except ServiceError as error:
        if error.code != "NoSuchLifecycleConfiguration":
            raise
        rules = []
    if any(
        rule["Status"] == "Enabled" and "AbortIncompleteMultipartUpload" in rule for rule in rules
    ):
        return good(f"{case.bucket.name} removes the parts of uploads that were cut off")
    remedy = (
        "add AbortIncompleteMultipartUpload to its lifecycle: the command stands in "
        "docs/explanation/security.md"
    )
    return bad(
        f"{case.bucket.name} keeps, and bills, the parts of uploads that were cut off",
        remedy,
        needed=False,
    )


def _try_writing(case: Case) -> Finding:
    storage = Storage(case.service)
    key = case.intent.security.output_kms_key
    uri = f"{case.service.places.root}/doctor/{secrets.token_hex(8)}"
    try:
        answer = storage.write(uri, b"written by raysm doctor", key)
    except ServiceError as error:
        # Bad, not unknown: jobs are sent by the same call.
        if error.is_transient:
            raise
        with_key = f", or to use the key {key}" if key else ""
        remedy = (
            f"have s3:PutObject on its prefix raysm/ allowed to you{with_key}: raysm doctor "
            "--policy user"
        )
        return bad(f"{case.bucket.name} cannot be written: {error.problem}", remedy)
    if key is None:
        case.note_key("bucket_key", answer)
    bucket, name = split(uri)
    try:
        case.call("s3", "delete_object", Bucket=bucket, Key=name)
    except ServiceError as error:
        return unknown(
            f"{case.bucket.name} can be written, but {uri} cannot be removed: {error.problem}",
            f"aws s3 rm {uri}",
        )
    return good(f"{case.bucket.name} is in {case.region} and can be written")


def check_inputs(case: Case) -> Iterator[Finding]:
    for channel, source in case.intent.inputs.items():
        if source.uri.startswith("s3://"):
            yield _check_input(case, channel, source.uri)
        elif file_system_at(source.uri) is not None:
            yield unknown(f"{channel}: only a job in its VPC can see {source.uri}")
        # Results of other jobs are found by the plan.
        elif not source.uri.startswith("job:"):
            path = Path(file_path(source.uri))
            exists = good(f"{channel}: {path}")
            yield (
                exists
                if path.exists()
                else bad(f"{channel}: there is nothing at {path}", "name an existing path")
            )


def _check_input(case: Case, channel: str, uri: str) -> Finding:
    bucket, prefix = split(uri)
    region = Storage(case.service).bucket_region(bucket)
    if region is None:
        return bad(f"{channel}: there is no bucket {bucket}", "check its name")
    if region != case.region:
        copy = (
            f"aws s3 sync {uri} s3://BUCKET-IN-{case.region}/ --source-region {region} "
            f"--region {case.region}"
        )
        return bad(f"{channel}: {bucket} is in {region}, the job runs in {case.region}", copy)
    # One key is enough: a listing of millions would take minutes.
    objects = case.call("s3", "list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1).get(
        "Contents"
    )
    if not objects:
        return bad(f"{channel}: there is nothing at {uri}", f"aws s3 ls {uri} lists what there is")
    try:
        case.note_key(
            "input_key", case.call("s3", "head_object", Bucket=bucket, Key=objects[0]["Key"])
        )
    except ServiceError as error:
        if not error.code.startswith(DENIALS):
            raise
        return unknown(
            f"{channel}: {uri} exists; whether a KMS key encrypts it is not known: {error.problem}"
        )
    return good(f"{channel}: {uri}")


def check_keys(case: Case) -> Iterator[Finding]:
    security = case.intent.security
    for key in dict.fromkeys(
        key for key in (security.volume_kms_key, security.output_kms_key) if key
    ):
        try:
            metadata = case.call("kms", "describe_key", KeyId=key)["KeyMetadata"]
        except ServiceError as error:
            if error.code != "NotFoundException":
                raise
            yield bad(f"there is no key {key} in {case.region}", "name a key of the job's region")
            continue
        if metadata["KeyState"] == "Enabled":
            yield good(f"{key} is enabled")
        else:
            yield bad(
                f"{key} is {metadata['KeyState']}",
                f"aws kms enable-key --key-id {metadata['KeyId']}",
            )


def check_image(case: Case) -> Iterator[Finding]:
    if case.service.target.image is None and case.intent.cluster is None:
        yield unknown(
            "no image is given, and AWS's own depends on the instances",
            "--image URI, or --instance-type",
        )
        return
    uri = case.image
    intent = case.intent
    if intent.security.isolation and not has_ray(uri, intent.wheels):
        text = f"{uri} has no Ray, and security.isolation leaves no way to install it"
        yield bad(
            text,
            "name an image that has it (raysm image prints how to build one), or add its wheels: "
            "--wheel",
        )
    repository = registry_in(uri)
    if repository is None:
        yield bad(
            f"{uri} is not in Amazon ECR, the only place from which SageMaker takes images",
            f"docker push it to ACCOUNT.dkr.ecr.{case.region}.amazonaws.com/NAME:TAG",
        )
        return
    if repository.region != case.region:
        yield bad(
            f"{uri} is in {repository.region}, the job runs in {case.region}",
            f"name the image of {case.region}, or copy it there: docker pull, tag and push",
        )
        return
    tag, _, digest = uri.removeprefix(f"{repository.host}/{repository.name}").partition("@")
    image_id = (
        {"imageDigest": digest} if digest else {"imageTag": tag.removeprefix(":") or "latest"}
    )
    where = f"--registry-id {repository.account} --region {case.region}"
    try:
        # The call by which the role pulls the image.
        answer = case.call(
            "ecr",
            "batch_get_image",
            registryId=repository.account,
            repositoryName=repository.name,
            imageIds=[image_id],
        )
    except ServiceError as error:
        if error.code != "RepositoryNotFoundException":
            raise
        yield bad(
            f"there is no repository {repository.name} of {repository.account} in {case.region}",
            f"aws ecr describe-repositories {where} lists the repositories",
        )
        return
    listing = f"aws ecr list-images --repository-name {repository.name} {where} lists the images"
    yield good(uri) if answer.get("images") else bad(f"there is no image {uri}", listing)


DENIALS = ("AccessDenied", "UnauthorizedOperation", "AuthorizationError", "Forbidden", "403")
"""Error codes of a caller who may not ask begin with one of these."""

MAX_TEXT = 300  # characters of an error: a proxy may answer with a whole page


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check; ``look`` yields its findings."""

    name: str
    look: Callable[[Case], Iterator[Finding]]
    asks: bool = True


CHECKS = (
    Check(name="region", look=check_region, asks=False),
    Check(name="endpoint", look=check_endpoints, asks=False),
    # Not skipped without credentials, since this check says so.
    Check(name="credentials", look=check_credentials, asks=False),
    Check(name="role", look=check_role),
    Check(name="bucket", look=check_bucket),
    Check(name="inputs", look=check_inputs),
    # After the bucket and the inputs, whose KMS keys the role needs.
    Check(name="role's rights", look=check_role_policy),
    Check(name="your rights", look=check_caller),
    Check(name="keys", look=check_keys),
    Check(name="image", look=check_image),
    Check(name="instance type", look=check_types, asks=False),
    Check(name="CUDA", look=check_cuda, asks=False),
    Check(name="EFA", look=check_efa, asks=False),
    Check(name="quota", look=check_quotas),
    Check(name="subnets", look=check_subnets),
    Check(name="groups", look=check_groups),
    Check(name="plan", look=check_plan),
    Check(name="tunnel", look=check_tunnel, asks=False),
)
"""All checks, in the order in which problems are best fixed."""


def examine(case: Case) -> Iterator[Finding]:
    has_credentials = True
    for check in CHECKS:
        if check.asks and not has_credentials:
            yield replace(unknown("could not look without credentials"), name=check.name)
            continue
        for finding in run_check(check, case):
            if check.look is check_credentials:
                has_credentials = finding.state is State.GOOD
            yield finding


def run_check(check: Check, case: Case) -> Iterator[Finding]:
    """Yield the findings of a check; an error that stops it is its last finding.

    A refused question is no defect: many users may run jobs and may not ask IAM or Service Quotas
    about them.
    """
    try:
        for finding in check.look(case):
            yield replace(finding, name=check.name)
    except (InvalidRequest, MissingDependency) as error:
        yield replace(bad(error.problem, error.remedy), name=check.name)
    except ServiceError as error:
        text = " ".join(error.problem.split())
        remedy = error.remedy
        if error.code.startswith(DENIALS):
            remedy = (
                "ask someone who may, or add the doctor's own permissions: raysm doctor "
                "--policy user"
            )
        shown = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
        yield replace(unknown(f"could not look: {shown}", remedy), name=check.name)
