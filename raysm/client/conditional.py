"""Objects of S3 that several write to: each write is carried out only if nobody else has written meanwhile.

What flows in is a URI and the version that the writer has read, what flows out is the new one, or ``Outdated``. S3
takes ``If-None-Match: *`` and ``If-Match: ETAG`` at PutObject
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).
"""

import email.utils
from dataclasses import dataclass
from typing import Any

from raysm.client.service import Service
from raysm.client.storage import read_object, split
from raysm.errors import RaysmError, ServiceError

__all__ = ["Outdated", "Versioned", "read_versioned", "write_versioned"]

# 409 where another write was under way at the same moment, 404 where the object that was to be replaced is gone.
REFUSED = ("PreconditionFailed", "412", "ConditionalRequestConflict", "NoSuchKey")
"""Codes that say that the object is not as the writer has read it."""


class Outdated(RaysmError):
    """Somebody else has written it, or removed it: nothing was written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Versioned:
    """An object as it was read."""

    content: bytes
    """The whole of it."""
    version: str
    """Its ETag: two writes of the same content have the same one."""
    age_s: float
    """Seconds since it was written, by the service's own clock; to the second."""


def read_versioned(service: Service, uri: str) -> Versioned | None:
    """Return an object with its version; None where there is none.

    Raises:
        ServiceError: It cannot be read.
    """
    whole = read_object(service, uri)
    if whole is None:
        return None
    content, answer = whole
    return Versioned(content=content, version=answer["ETag"], age_s=_age_s(answer))


def write_versioned(service: Service, uri: str, content: bytes, version: str | None, kms_key: str | None = None) -> str:
    """Write an object if it is as it was read; return its new version.

    Args:
        service: Whose S3 it is.
        uri: ``s3://bucket/key``.
        content: The whole of it.
        version: What was read; None is that there was none.
        kms_key: Encrypts it.

    Raises:
        Outdated: It is not; or an earlier call of this writer, whose answer was lost, has written it.
        ServiceError: It cannot be written.
    """
    bucket, key = split(uri)
    condition: dict[str, Any] = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
    if kms_key:
        condition |= {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key}
    try:
        return str(service.call("s3", "put_object", Bucket=bucket, Key=key, Body=content, **condition)["ETag"])
    except ServiceError as error:
        if error.code in REFUSED:
            raise Outdated(f"{uri} was written by another process") from error
        raise


def _age_s(answer: Any) -> float:
    # Both moments are of one clock, the service's: those of two machines may be an hour apart.
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if date is None:
        return 0.0
    return float((email.utils.parsedate_to_datetime(date) - answer["LastModified"]).total_seconds())
