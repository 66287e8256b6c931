"""Objects and files by URI, ``s3://bucket/key`` and ``file:///path``: read, write, list and delete.

The scheme decides, not the target: with the embedded SageMaker large things are files and small
ones S3 objects.
"""

import concurrent.futures
import contextlib
import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeVar

from raysm.core.client.service import Service, translated
from raysm.core.client.targets.connection import Bucket
from raysm.core.protocol.file_uri import SCHEME, path_of, uri_of
from raysm.core.protocol.store import files_below, is_unfinished, put, replacing
from raysm.errors import InvalidPayload, InvalidRequest, RaysmError, ServiceError

PARALLEL = 16
"""Transfers at a time: small objects wait for answers, not for bandwidth."""

SMALL = 8 << 20
"""Files up to this many bytes are put in one call; boto3 sends larger ones in parts."""

MISSING = ("NoSuchKey", "NoSuchBucket", "404")
"""S3's codes for an object that does not exist; the answer to HEAD has no body, so its status is
the code."""

# 409: another write was under way at the same moment. 404: the object to replace is gone.
REFUSED = ("PreconditionFailed", "412", "ConditionalRequestConflict", "NoSuchKey")
"""Codes of a conditional write whose object has changed."""

OF_THE_NAME = (
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.EILSEQ,
    errno.EINVAL,
)
"""Errors of a file that come from its name: too long, that of another file's folder, or signs that
the disk refuses."""
MAX_NAMED = 5

_log = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    name: str
    """Relative to the prefix, with ``/``; the last part of the prefix if that is the object
    itself."""
    uri: str
    size: int
    version: str
    """Changes with the content: an ETag, or a time of modification."""
    modified_s: float


class Unnameable(ServiceError):
    """An object was not fetched, because no file here can have its name."""


class Outdated(RaysmError):
    """Another process wrote or deleted the object; nothing was written."""


class TooLarge(InvalidPayload):
    """The object is larger than what raysm writes there: someone else wrote it. It was not read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Versioned:
    content: bytes
    version: str
    age_s: float
    """Whole seconds since it was written, by S3's clock."""


class Storage:
    def __init__(self, service: Service) -> None:
        self._service = service

    def read(self, uri: str, max_bytes: int | None = None) -> bytes | None:
        """Return an object or file; None if it does not exist.

        Raises:
            TooLarge: It has more than ``max_bytes``.
        """
        if not uri.startswith("s3://"):
            path = file_path(uri)
            if not path.is_file():
                return None
            if max_bytes is not None and path.stat().st_size > max_bytes:
                raise _too_large(uri, path.stat().st_size, max_bytes)
            return path.read_bytes()
        found = _get_object(self._service, uri, max_bytes)
        return None if found is None else found[0]

    def write(self, uri: str, content: bytes, kms_key: str | None = None) -> Mapping[str, Any]:
        """Write an object or file; return S3's answer, empty for a file."""
        if not uri.startswith("s3://"):
            put(file_path(uri), content)
            return {}
        bucket, key = split(uri)
        options = _encryption(kms_key)
        answer: Mapping[str, Any] = self._service.call(
            "s3", "put_object", Bucket=bucket, Key=key, Body=content, **options
        )
        return answer

    def size(self, uri: str) -> int | None:
        bucket, key = split(uri)
        try:
            return int(
                self._service.call("s3", "head_object", Bucket=bucket, Key=key)["ContentLength"]
            )
        except ServiceError as error:
            if error.code in MISSING:
                return None
            raise

    def below(self, uri: str) -> list[Stored]:
        """Return everything at and below ``uri``, by name.

        As in SageMaker, ``s3://bucket/prefix`` takes every key that begins so; with a slash at its
        end, a folder.
        """
        return sorted(self.walk(uri), key=lambda stored: stored.name)

    def folder(self, uri: str) -> list[Stored]:
        return [item for item in self.below(uri.rstrip("/") + "/") if not is_unfinished(item.name)]

    def has_files(self, uri: str) -> bool:
        return next(self.walk(uri), None) is not None

    def walk(self, uri: str) -> Iterator[Stored]:
        if not uri.startswith("s3://"):
            yield from _files(file_path(uri))
            return
        bucket, prefix = split(uri)
        base = prefix[: prefix.rfind("/") + 1]
        try:
            place = {"Bucket": bucket, "Prefix": prefix}
            for page in self._service.pages(
                "s3", "list_objects_v2", token="ContinuationToken", **place
            ):
                for item in page.get("Contents", ()):
                    # The S3 console creates such an empty object for a folder.
                    if not item["Key"].endswith("/"):
                        yield Stored(
                            name=item["Key"][len(base) :],
                            uri=f"s3://{bucket}/{item['Key']}",
                            size=item["Size"],
                            version=item["ETag"].strip('"'),
                            modified_s=item["LastModified"].timestamp(),
                        )
        except ServiceError as error:
            if error.code != "NoSuchBucket":  # before the first job of an account
                raise

    def upload(self, path: Path, uri: str, kms_key: str | None = None) -> None:
        bucket, key = split(uri)
        if path.stat().st_size <= SMALL:
            self.write(uri, path.read_bytes(), kms_key)
            return
        with translated(f"upload {path}"):
            more = {"ExtraArgs": _encryption(kms_key), **self._transfers()}
            self._service.client("s3").upload_file(str(path), bucket, key, **more)

    def bring_all(self, items: Sequence[Stored], folder: Path) -> None:
        """Fetch objects.

        A warning names those that no file here can have the name of; all others arrive.
        """

        def bring(item: Stored) -> str | None:
            try:
                self.bring(item, folder)
            except Unnameable as error:
                return str(error)
            return None

        refused = sorted(filter(None, in_parallel(bring, items)))
        if refused:
            more = f"; and {len(refused) - MAX_NAMED} more" if len(refused) > MAX_NAMED else ""
            _log.warning(
                "%d of %d files were not fetched to %s: %s%s",
                len(refused),
                len(items),
                folder,
                "; ".join(refused[:MAX_NAMED]),
                more,
            )

    def bring(self, item: Stored, folder: Path) -> Path:
        """Fetch an object to its name below ``folder``.

        Raises:
            Unnameable: No file of this machine can have its name, or the name leads out of the
                folder.
        """
        # Others may write to the bucket: their keys must not lead to other folders of this machine.
        if leads_out(item.name):
            raise Unnameable(f"the object {item.name!r} has a name that leads out of its folder")
        try:
            return self._bring(item, folder / item.name)
        except ValueError as error:  # a zero byte
            raise Unnameable(f"the object {item.name!r} cannot be a file here: {error}") from error
        except OSError as error:
            if error.errno not in OF_THE_NAME:
                raise
            raise Unnameable(
                f"the object {item.name!r} cannot be a file here: {error.strerror}"
            ) from error

    def _bring(self, item: Stored, path: Path) -> Path:
        with replacing(path) as beside:
            if item.uri.startswith("s3://"):
                bucket, key = split(item.uri)
                with translated(f"download {item.uri}"):
                    self._service.client("s3").download_file(
                        bucket, key, str(beside), **self._transfers()
                    )
            else:
                # Not a link: an edit of the copy must leave the stored file alone.
                shutil.copyfile(file_path(item.uri), beside)
        return path

    def _transfers(self) -> dict[str, Any]:
        if self._service.target.is_billed:
            return {}
        from boto3.s3.transfer import TransferConfig

        # On large machines boto3 would take AWS's client in C, which opens connections of its own
        # and checks no owner.
        return {"Config": TransferConfig(preferred_transfer_client="classic")}

    def remove(self, prefix: str) -> None:
        in_parallel(lambda item: self.remove_object(item.uri), self.below(prefix.rstrip("/") + "/"))

    def remove_object(self, uri: str) -> None:
        bucket, key = split(uri)
        self._service.call("s3", "delete_object", Bucket=bucket, Key=key)

    def bucket_region(self, bucket: str) -> str | None:
        try:
            answer = self._service.call("s3", "head_bucket", Bucket=bucket)
        except ServiceError as error:
            if error.code in MISSING:
                return None
            raise
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = answer.get("BucketRegion") or headers.get("x-amz-bucket-region")
        # Older botocores return neither: a bucket that answers is taken to be in this region.
        return str(region or self._service.region)

    def ensure_bucket(self, bucket: Bucket, region: str) -> None:
        # A default name can be guessed: nothing is put into a bucket of that name in another
        # account.
        expected = {"ExpectedBucketOwner": bucket.owner} if bucket.owner else {}
        try:
            self._service.call("s3", "head_bucket", Bucket=bucket.name, **expected)
            return
        except ServiceError as error:
            if error.code in ("403", "AccessDenied"):
                if bucket.is_named:
                    return  # a user with write access alone may not ask: the upload will tell
                text = (
                    f"the bucket {bucket.name!r} belongs to another account, "
                    "or these credentials may not use it"
                )
                raise ServiceError(f"{text}; give AWS(bucket=…)", code=error.code) from error
            if error.code not in MISSING:
                raise
            if bucket.is_named:
                text = f"the bucket {bucket.name!r} does not exist: check AWS(bucket=…), or make it"
                raise ServiceError(text, code=error.code) from error
        # S3 refuses this region's name as a constraint.
        place = (
            {}
            if region == "us-east-1"
            else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        )
        try:
            self._service.call("s3", "create_bucket", Bucket=bucket.name, **place)
        except ServiceError as error:
            # Another process of this account was quicker.
            if error.code != "BucketAlreadyOwnedByYou":
                raise


def in_parallel(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Return ``function(item)`` of each item, in order; the first error ends it."""
    with concurrent.futures.ThreadPoolExecutor(
        PARALLEL, thread_name_prefix="raysm transfer"
    ) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            # Leaving the pool waits for running transfers; the others must not start.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def split(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not uri.startswith("s3://") or not bucket:
        raise InvalidRequest(f"{uri!r} is not s3://bucket/key")
    return bucket, key


def leads_out(name: str) -> bool:
    """Return whether a name, relative to a folder, is not that of something below the folder."""
    path = PurePosixPath(name)
    is_below = bool(path.parts) and ".." not in path.parts and not path.is_absolute()
    return not is_below or (os.name == "nt" and not is_name_on_windows(name))


def is_name_on_windows(name: str) -> bool:
    """Return whether Windows takes a name as it is.

    Other names are devices, streams or folders, or lose their last characters.
    """
    return all(
        not PureWindowsPath(part).is_reserved()
        and not re.search(r'[<>:"|?*\\\x00-\x1f]|[. ]$', part)
        for part in name.split("/")
    )


def file_path(uri: str) -> Path:
    return path_of(uri) if uri.startswith(SCHEME) else Path(uri).expanduser()


def _files(root: Path) -> Iterator[Stored]:
    for path in files_below(root):
        with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
            stat = path.stat()
            yield Stored(
                name=path.name if path == root else path.relative_to(root).as_posix(),
                uri=uri_of(path),
                size=stat.st_size,
                version=f"{stat.st_mtime_ns}-{stat.st_size}",
                modified_s=stat.st_mtime,
            )


def _encryption(kms_key: str | None) -> dict[str, Any]:
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}


def _too_large(uri: str, size: int, max_bytes: int) -> TooLarge:
    return TooLarge(
        f"{uri} has {size:,} bytes, but raysm writes at most {max_bytes:,} there; it was not read"
    )


def _get_object(
    service: Service, uri: str, max_bytes: int | None = None
) -> tuple[bytes, Mapping[str, Any]] | None:
    bucket, key = split(uri)
    try:
        answer = service.call("s3", "get_object", Bucket=bucket, Key=key)
    except ServiceError as error:
        if error.code in MISSING:
            return None
        raise
    if max_bytes is not None and answer["ContentLength"] > max_bytes:
        answer["Body"].close()
        raise _too_large(uri, answer["ContentLength"], max_bytes)
    # The body arrives after the call has returned, by a connection that may break.
    with translated(f"read {uri}"):
        return bytes(answer["Body"].read()), answer


def read_versioned(service: Service, uri: str, max_bytes: int | None = None) -> Versioned | None:
    """Return an object with its version.

    Raises:
        TooLarge: It has more than ``max_bytes``; nothing was read.
    """
    found = _get_object(service, uri, max_bytes)
    if found is None:
        return None
    import email.utils  # 9 ms

    content, answer = found
    # Both times are S3's: the clocks of two machines may differ by an hour.
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    age_s = 0.0
    if date is not None:
        age_s = float(
            (email.utils.parsedate_to_datetime(date) - answer["LastModified"]).total_seconds()
        )
    return Versioned(content=content, version=answer["ETag"], age_s=age_s)


def write_versioned(
    service: Service, uri: str, content: bytes, version: str | None, kms_key: str | None = None
) -> str:
    """Write an object unless it has changed since it was read as ``version``.

    ``version`` is None if there was no object. Returns the new version.

    Raises Outdated if it has changed, or an earlier call of this writer, whose answer was lost, has
    written it.
    """
    bucket, key = split(uri)
    options = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
    options |= _encryption(kms_key)
    try:
        return str(
            service.call("s3", "put_object", Bucket=bucket, Key=key, Body=content, **options)[
                "ETag"
            ]
        )
    except ServiceError as error:
        if error.code in REFUSED:
            raise Outdated(f"{uri} was written by another process") from error
        raise
