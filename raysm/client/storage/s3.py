"""Objects and files alike, by URI: ``s3://bucket/key`` and ``file:///path``.

The scheme decides, never the target: on this machine the large things are files, the small ones S3 objects.
"""

import concurrent.futures
import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote

from raysm.client.service import Service, translated
from raysm.client.targets import Bucket
from raysm.contract.store import PARTIAL, files_below, put, replacing
from raysm.errors import InvalidRequest, RaysmError, ServiceError

__all__ = [
    "Outdated",
    "Storage",
    "Stored",
    "Versioned",
    "file_path",
    "in_parallel",
    "read_object",
    "read_versioned",
    "split",
    "write_versioned",
]


PARALLEL = 16
"""Transfers at a time: small objects wait for answers, not for bandwidth."""

SMALL = 8 << 20
"""Bytes up to which an object is put in one call; above, boto3 sends it in parts."""

MISSING = ("NoSuchKey", "NoSuchBucket", "404")
"""What S3 answers where there is nothing."""

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """One object or file below a prefix."""

    name: str
    """Relative to the prefix, with ``/``; of the prefix itself, its last part."""
    uri: str
    """The whole."""
    size: int
    """Bytes."""
    version: str
    """Changes when the content does: an ETag, or a time of modification."""
    modified_s: float
    """When it was written, in seconds since the epoch; of an object to the second."""


class Storage:
    """Reads, writes, lists and copies by URI, through a Service."""

    def __init__(self, service: Service) -> None:
        """Keep the service, whose S3 is used."""
        self._service = service

    def read(self, uri: str) -> bytes | None:
        """Return the content, None where there is nothing."""
        if not uri.startswith("s3://"):
            path = file_path(uri)
            return path.read_bytes() if path.is_file() else None
        whole = read_object(self._service, uri)
        return None if whole is None else whole[0]

    def write(self, uri: str, content: bytes, kms_key: str | None = None) -> None:
        """Put ``content`` there, whole or not at all."""
        if not uri.startswith("s3://"):
            put(file_path(uri), content)
            return
        bucket, key = split(uri)
        self._service.call("s3", "put_object", Bucket=bucket, Key=key, Body=content, **_encryption(kms_key))

    def size(self, uri: str) -> int | None:
        """Return the size of one object, None where there is none."""
        bucket, key = split(uri)
        try:
            return int(self._service.call("s3", "head_object", Bucket=bucket, Key=key)["ContentLength"])
        except ServiceError as error:
            # The answer to HEAD has no body, and so often no code but its status.
            if error.code in MISSING:
                return None
            raise

    def below(self, uri: str) -> list[Stored]:
        """Return what lies at ``uri`` and below it, by name.

        ``s3://bucket/prefix`` takes every key that begins so, as SageMaker does; with a slash at its end, a folder.
        """
        return sorted(self.walk(uri), key=lambda stored: stored.name)

    def walk(self, uri: str) -> Iterator[Stored]:
        """Yield what ``below`` returns, while it is listed, in an order that is the same each time."""
        if not uri.startswith("s3://"):
            yield from _files(file_path(uri))
            return
        bucket, prefix = split(uri)
        yield from self._objects(bucket, prefix)

    def walk_from(self, uri: str, first: str) -> Iterator[Stored]:
        """Yield what ``walk`` does of a prefix in S3, but of what is before the object ``first`` hardly any."""
        bucket, prefix = split(uri)
        # S3 begins behind what it is given; what the key begins with is before it, and hardly anything between.
        yield from self._objects(bucket, prefix, StartAfter=split(first)[1][:-1])

    def _objects(self, bucket: str, prefix: str, **begin: str) -> Iterator[Stored]:
        base = prefix[: prefix.rfind("/") + 1]
        for item in self._keys(bucket, prefix, begin):
            # Such an empty object is what the S3 console makes for a folder.
            if not item["Key"].endswith("/"):
                yield Stored(
                    name=item["Key"][len(base) :],
                    uri=f"s3://{bucket}/{item['Key']}",
                    size=item["Size"],
                    version=item["ETag"].strip('"'),
                    modified_s=item["LastModified"].timestamp(),
                )

    def _keys(self, bucket: str, prefix: str, begin: dict[str, str]) -> Iterator[dict[str, Any]]:
        pages = self._service.pages(
            "s3", "list_objects_v2", token="ContinuationToken", Bucket=bucket, Prefix=prefix, **begin
        )
        try:
            for page in pages:
                yield from page.get("Contents", ())
        except ServiceError as error:
            if error.code != "NoSuchBucket":  # before the first job of an account
                raise

    def upload(self, path: Path, uri: str, kms_key: str | None = None) -> None:
        """Upload one file; it is there whole or not at all."""
        bucket, key = split(uri)
        if path.stat().st_size <= SMALL:
            self.write(uri, path.read_bytes(), kms_key)
            return
        with translated(f"upload {path}"):
            self._service.client("s3").upload_file(str(path), bucket, key, ExtraArgs=_encryption(kms_key))

    def copy(self, source: str, target: str, kms_key: str | None = None) -> None:
        """Copy one object inside S3, without it passing through here."""
        from_bucket, from_key = split(source)
        bucket, key = split(target)
        # Not copy_object, which refuses more than 5 GB: boto3's own copies in parts.
        with translated(f"copy {source}"):
            origin = {"Bucket": from_bucket, "Key": from_key}
            self._service.client("s3").copy(origin, bucket, key, ExtraArgs=_encryption(kms_key))

    def folder(self, uri: str) -> list[Stored]:
        """Return what lies below the folder ``uri`` and is whole, by name."""
        return [item for item in self.below(uri.rstrip("/") + "/") if not item.name.endswith(PARTIAL)]

    def bring(self, item: Stored, folder: Path) -> Path:
        """Bring one object or file into ``folder`` under its name; return its path.

        A file of this machine is copied, never linked: an edit of the copy leaves the stored one alone.
        """
        path = folder / _safe(item.name)
        with replacing(path) as beside:
            if item.uri.startswith("s3://"):
                bucket, key = split(item.uri)
                with translated(f"download {item.uri}"):
                    self._service.client("s3").download_file(bucket, key, str(beside))
            else:
                shutil.copyfile(file_path(item.uri), beside)
        return path

    def remove(self, prefix: str) -> None:
        """Remove every object below ``prefix``."""
        bucket, _ = split(prefix)
        in_parallel(
            lambda item: self._service.call("s3", "delete_object", Bucket=bucket, Key=split(item.uri)[1]),
            self.below(prefix.rstrip("/") + "/"),
        )

    def remove_object(self, uri: str) -> None:
        """Remove one object; harmless where there is none."""
        bucket, key = split(uri)
        self._service.call("s3", "delete_object", Bucket=bucket, Key=key)

    def bucket_region(self, bucket: str) -> str | None:
        """Return where a bucket lies; None where there is none."""
        try:
            answer = self._service.call("s3", "head_bucket", Bucket=bucket)
        except ServiceError as error:
            if error.code in ("404", "NoSuchBucket"):
                return None
            raise
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = answer.get("BucketRegion") or headers.get("x-amz-bucket-region")
        # Older botocores tell neither: what answered is taken to lie here.
        return str(region or self._service.region)

    def ensure_bucket(self, bucket: Bucket, region: str) -> None:
        """Make the bucket where it is not there; one that the user named has to be there.

        Args:
            bucket: Which, and whose.
            region: Where it is made.

        Raises:
            ServiceError: It belongs to another account, is not there, or may not be made.
        """
        # A default name can be guessed: nothing is put into a bucket of that name in another account.
        expected = {"ExpectedBucketOwner": bucket.owner} if bucket.owner else {}
        try:
            self._service.call("s3", "head_bucket", Bucket=bucket.name, **expected)
            return
        except ServiceError as error:
            if bucket.is_named and error.code in ("403", "AccessDenied"):
                return  # a user with write access alone may not ask for it: the upload will tell
            if bucket.is_named and error.code in ("404", "NoSuchBucket"):
                raise ServiceError(
                    f"the bucket {bucket.name!r} does not exist: check AWS(bucket=…), or make it", code=error.code
                ) from error
            if error.code in ("403", "AccessDenied"):
                raise ServiceError(
                    f"the bucket {bucket.name!r} belongs to another account, or these credentials may not use it; give "
                    "AWS(bucket=…)",
                    code=error.code,
                ) from error
            if error.code not in ("404", "NoSuchBucket"):
                raise
        # S3 refuses the name of this region as a constraint: it stands for none.
        place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            self._service.call("s3", "create_bucket", Bucket=bucket.name, **place)
        except ServiceError as error:
            if error.code != "BucketAlreadyOwnedByYou":  # another process of this account was quicker
                raise


def in_parallel(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Return ``function`` of each, in order; the first error ends it."""
    with concurrent.futures.ThreadPoolExecutor(PARALLEL, thread_name_prefix="raysm transfer") as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            # Leaving the pool waits for what has begun; the rest must not begin.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def split(uri: str) -> tuple[str, str]:
    """Return bucket and key of ``s3://bucket/key``.

    Raises:
        InvalidRequest: It is no such URI.
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not uri.startswith("s3://") or not bucket:
        raise InvalidRequest(f"{uri!r} is not s3://bucket/key")
    return bucket, key


def file_path(uri: str) -> Path:
    """Return the path of a ``file:///`` URI, or of what is a path already."""
    # ``Path.as_uri`` quotes blanks, and all that is not ASCII.
    return Path(unquote(uri.removeprefix("file://"))) if uri.startswith("file://") else Path(uri).expanduser()


def read_object(service: Service, uri: str) -> tuple[bytes, Mapping[str, Any]] | None:
    """Return an object of S3, and GetObject's answer; None where there is none.

    Raises:
        ServiceError: It cannot be read.
    """
    bucket, key = split(uri)
    try:
        answer = service.call("s3", "get_object", Bucket=bucket, Key=key)
    except ServiceError as error:
        if error.code in MISSING:
            return None
        raise
    # The call is over with the answer's head: its body comes by the same connection, which may break.
    with translated(f"read {uri}"):
        return bytes(answer["Body"].read()), answer


def _files(root: Path) -> Iterator[Stored]:
    for path in files_below(root):
        with contextlib.suppress(FileNotFoundError):  # it was removed while the folder was listed
            stat = path.stat()
            yield Stored(
                name=path.name if path == root else path.relative_to(root).as_posix(),
                uri=path.absolute().as_uri(),
                size=stat.st_size,
                version=f"{stat.st_mtime_ns}-{stat.st_size}",
                modified_s=stat.st_mtime,
            )


def _safe(name: str) -> str:
    """Refuse a key that would leave the folder: others who may write to the bucket must not write here."""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute() or "\\" in name:
        raise ServiceError(f"the object {name!r} has a name that leads out of its folder; it is not downloaded")
    return name


def _encryption(kms_key: str | None) -> dict[str, Any]:
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}


# 409 where another write was under way at the same moment, 404 where the object that was to be replaced is gone.
REFUSED = ("PreconditionFailed", "412", "ConditionalRequestConflict", "NoSuchKey")
"""Codes that say that the object is not as the writer has read it."""


class Outdated(RaysmError):
    """Another process has written or removed it: nothing was written."""


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
    import email.utils

    # Both moments are of one clock, the service's: those of two machines may be an hour apart.
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if date is None:
        return 0.0
    return float((email.utils.parsedate_to_datetime(date) - answer["LastModified"]).total_seconds())
