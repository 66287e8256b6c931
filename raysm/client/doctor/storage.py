"""Where data lies: the bucket of payloads and results, the inputs, and the keys that encrypt them."""

import secrets
from collections.abc import Iterator
from pathlib import Path

from raysm.client.doctor.case import Case
from raysm.client.doctor.finding import Finding, bad, good, unknown
from raysm.client.storage import Storage, file_path, split
from raysm.errors import ServiceError

__all__ = ["look_at_bucket", "look_at_inputs", "look_at_keys"]


def look_at_bucket(case: Case) -> Iterator[Finding]:
    """Yield whether the bucket is there, in the job's region, and can be written: by writing a small object."""
    name = case.bucket.name
    region = Storage(case.service).bucket_region(name)
    if region is None and case.bucket.is_named:
        yield bad(f"there is no bucket {name}", f"aws s3 mb s3://{name} --region {case.region}")
    elif region is None:
        yield good(f"{name} is not there yet: the first job makes it")
    elif region != case.region:
        yield bad(
            f"{name} lies in {region}, the job runs in {case.region}",
            f"name a bucket of {case.region} (--bucket), or run there: --region {region}",
        )
    else:
        yield _try_writing(case)


def _try_writing(case: Case) -> Finding:
    storage, key = Storage(case.service), case.intent.security.output_kms_key
    uri = f"{case.service.places.root}/doctor/{secrets.token_hex(8)}"
    try:
        # With the job's key: one that may not be used refuses the write of the payload, too.
        storage.write(uri, b"written by raysm doctor", key)
    except ServiceError as error:
        # Not "could not look": a job is sent by the same call, which is what was refused.
        if error.is_transient:
            raise
        with_key = f", or to use the key {key}" if key else ""
        remedy = f"have s3:PutObject on its prefix raysm/ allowed to you{with_key}: raysm doctor --policy user"
        return bad(f"{case.bucket.name} cannot be written: {error}", remedy)
    bucket, name = split(uri)
    try:
        case.call("s3", "delete_object", Bucket=bucket, Key=name)
    except ServiceError as error:
        return unknown(f"{case.bucket.name} can be written, but {uri} cannot be removed: {error}", f"aws s3 rm {uri}")
    return good(f"{case.bucket.name} lies in {case.region} and can be written")


def look_at_inputs(case: Case) -> Iterator[Finding]:
    """Yield of each channel whether its data is there, and in the job's region."""
    for channel, source in case.intent.inputs.items():
        if source.uri.startswith("s3://"):
            yield from _look_at_input(case, channel, source.uri)
        # What another job left is found by the plan, which asks for that job.
        elif not source.uri.startswith("job:"):
            path = Path(file_path(source.uri))
            yield (
                good(f"{channel}: {path}")
                if path.exists()
                else bad(f"{channel}: there is nothing at {path}", "name what is there")
            )


def _look_at_input(case: Case, channel: str, uri: str) -> Iterator[Finding]:
    bucket, prefix = split(uri)
    region = Storage(case.service).bucket_region(bucket)
    if region is None:
        yield bad(f"{channel}: there is no bucket {bucket}", "check its name")
        return
    if region != case.region:
        copy = f"aws s3 sync {uri} s3://BUCKET-IN-{case.region}/ --source-region {region} --region {case.region}"
        yield bad(f"{channel}: {bucket} lies in {region}, the job runs in {case.region}", copy)
        return
    # One key is enough: a listing of millions would take minutes.
    if not case.call("s3", "list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1).get("Contents"):
        yield bad(f"{channel}: nothing lies at {uri}", f"aws s3 ls {uri} shows what does")
        return
    yield good(f"{channel}: {uri}")


def look_at_keys(case: Case) -> Iterator[Finding]:
    """Yield of each KMS key whether it can be used."""
    for key in case.keys:
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
