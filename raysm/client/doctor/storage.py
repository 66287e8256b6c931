"""Checks of the bucket, the inputs, the KMS keys and the image."""

import secrets
from collections.abc import Iterator
from pathlib import Path

from raysm.client.account.images import registry_in
from raysm.client.doctor.case import Case, Finding, bad, good, unknown
from raysm.client.storage.s3 import Storage, file_path, split
from raysm.errors import ServiceError


def check_bucket(case: Case) -> Iterator[Finding]:
    """Yield whether the bucket exists in the job's region and can be written, by writing a small object."""
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


def _try_writing(case: Case) -> Finding:
    storage, key = Storage(case.service), case.intent.security.output_kms_key
    uri = f"{case.service.places.root}/doctor/{secrets.token_hex(8)}"
    try:
        storage.write(uri, b"written by raysm doctor", key)
    except ServiceError as error:
        # Bad, not unknown: jobs are sent by the same call.
        if error.is_transient:
            raise
        with_key = f", or to use the key {key}" if key else ""
        remedy = f"have s3:PutObject on its prefix raysm/ allowed to you{with_key}: raysm doctor --policy user"
        return bad(f"{case.bucket.name} cannot be written: {error.problem}", remedy)
    bucket, name = split(uri)
    try:
        case.call("s3", "delete_object", Bucket=bucket, Key=name)
    except ServiceError as error:
        return unknown(
            f"{case.bucket.name} can be written, but {uri} cannot be removed: {error.problem}", f"aws s3 rm {uri}"
        )
    return good(f"{case.bucket.name} is in {case.region} and can be written")


def check_inputs(case: Case) -> Iterator[Finding]:
    """Yield whether the data of each channel exists, in the job's region."""
    for channel, source in case.intent.inputs.items():
        if source.uri.startswith("s3://"):
            yield _check_input(case, channel, source.uri)
        # Results of other jobs are found by the plan.
        elif not source.uri.startswith("job:"):
            path = Path(file_path(source.uri))
            exists = good(f"{channel}: {path}")
            yield exists if path.exists() else bad(f"{channel}: there is nothing at {path}", "name an existing path")


def _check_input(case: Case, channel: str, uri: str) -> Finding:
    bucket, prefix = split(uri)
    region = Storage(case.service).bucket_region(bucket)
    if region is None:
        return bad(f"{channel}: there is no bucket {bucket}", "check its name")
    if region != case.region:
        copy = f"aws s3 sync {uri} s3://BUCKET-IN-{case.region}/ --source-region {region} --region {case.region}"
        return bad(f"{channel}: {bucket} is in {region}, the job runs in {case.region}", copy)
    # One key is enough: a listing of millions would take minutes.
    if not case.call("s3", "list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1).get("Contents"):
        return bad(f"{channel}: there is nothing at {uri}", f"aws s3 ls {uri} lists what there is")
    return good(f"{channel}: {uri}")


def check_keys(case: Case) -> Iterator[Finding]:
    """Yield whether each KMS key can be used."""
    security = case.intent.security
    for key in dict.fromkeys(key for key in (security.volume_kms_key, security.output_kms_key) if key):
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
            yield bad(f"{key} is {metadata['KeyState']}", f"aws kms enable-key --key-id {metadata['KeyId']}")


def check_image(case: Case) -> Iterator[Finding]:
    """Yield whether the image is in Amazon ECR, in the job's region."""
    if case.service.target.image is None and case.intent.cluster is None:
        yield unknown("no image is given, and AWS's own depends on the instances", "--image URI, or --instance-type")
        return
    uri = case.image
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
    image_id = {"imageDigest": digest} if digest else {"imageTag": tag.removeprefix(":") or "latest"}
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
