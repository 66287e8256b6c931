"""Objects by URI: ``s3://bucket/key`` in moto, and ``file:///path`` of this machine wherever AWS takes ``s3://``."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from botocore.exceptions import ClientError

from raysm.contract.job_api import InputManifest
from raysm.contract.store import make_folder, replacing
from raysm.errors import InvalidInput
from raysm.local.channels import local_path
from raysm.local.checkpoints import CheckpointStore, FolderStore
from raysm.local.server.moto_services import MotoServices

__all__ = ["Objects", "S3Store", "is_file", "join"]


def is_file(uri: str) -> bool:
    """Whether ``uri`` names something of this machine's file system."""
    return uri.startswith("file://")


def join(prefix: str, *parts: str) -> str:
    """Return the URI below ``prefix``."""
    return "/".join([prefix.rstrip("/"), *parts])


@dataclass(frozen=True, slots=True)
class _Object:
    """One object of S3."""

    bucket: str
    key: str
    size: int
    name: str
    """Relative to what was asked for."""


class Objects:
    """Reads and writes objects."""

    def __init__(self, moto: MotoServices, results: Path | None = None) -> None:
        """Take what is behind.

        Args:
            moto: The services, of which S3 is used.
            results: The home's folder of what jobs leave, which is there; None is of no home.
        """
        self._moto, self._results = moto, results

    @property
    def _s3(self) -> Any:
        return self._moto.client("s3")

    def local(self, uri: str) -> Path:
        """Return the path that a ``file://`` URI names."""
        return local_path("", uri)

    def checkpoints(self, uri: str) -> CheckpointStore:
        """Return what keeps checkpoints below ``uri``."""
        if not is_file(uri):
            return S3Store(self, uri)
        folder = self.local(uri)
        return FolderStore(folder, self._within(folder))

    def _within(self, path: Path) -> Path | None:
        """Return the folder above ``path`` that is not made with it."""
        # A home that was deleted is not to come back by its last jobs; what else a request names is its own affair.
        return self._results if self._results is not None and path.is_relative_to(self._results) else None

    def download(self, uri: str, folder: Path) -> None:
        """Bring all objects that begin with ``uri`` into ``folder``, under their names relative to it.

        Args:
            uri: ``s3://bucket/prefix``.
            folder: Is made; what it lies in is there.

        Raises:
            InvalidInput: There is nothing; or a name would lead out of the folder.
        """
        objects = list(self._below(uri))
        if not objects:
            raise InvalidInput(f"No S3 objects found under S3 URL {uri!r}; check the bucket and the prefix")
        self._bring(objects, folder)

    def download_listed(self, uri: str, folder: Path) -> None:
        """Bring what the manifest at ``uri`` lists into ``folder``, under the names that it has there.

        Args:
            uri: ``s3://bucket/key`` or ``file:///path``, as what it lists.
            folder: Is made; what it lies in is there.

        Raises:
            InvalidInput: It is no manifest, or lists what is not there; or a name would lead out of the folder.
        """
        manifest = InputManifest.of(self._content(uri), uri)
        if not is_file(manifest.prefix):
            self._bring(list(self._listed(manifest)), folder)
            return
        base = self.local(manifest.prefix)
        folder.mkdir(exist_ok=True)
        for name in manifest.names:
            source, path = base / name, _place_below(folder, name, base / name)
            if not source.is_file():
                raise InvalidInput(f"{uri} lists {source}, and no file is there")
            make_folder(path.parent, within=folder)
            # A copy: a link in the folder would lead out of it where an instance has no other of this machine.
            shutil.copy2(source, path)

    def _content(self, uri: str) -> bytes:
        if is_file(uri):
            path = self.local(uri)
            if not path.is_file():
                raise InvalidInput(f"there is no manifest at {path}")
            return path.read_bytes()
        bucket, key = _split(uri)
        with _translated(uri):
            return bytes(self._s3.get_object(Bucket=bucket, Key=key)["Body"].read())

    def fetch(self, uri: str, folder: Path) -> None:
        """Bring what lies below the folder ``uri``, which may be nothing."""
        # With the slash: else the checkpoints of run-10 would come along with those of run-1.
        self._bring(list(self._below(uri.rstrip("/") + "/")), folder)

    def _bring(self, objects: list[_Object], folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for item in objects:
            path = _place_below(folder, item.name, f"s3://{item.bucket}/{item.key}")
            make_folder(path.parent, within=folder)
            with path.open("wb") as file:
                for chunk in self._moto.open_object(item.bucket, item.key, item.size):
                    file.write(chunk)

    def _below(self, uri: str) -> Iterator[_Object]:
        bucket, prefix = _split(uri)
        with _translated(uri):
            for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
                for item in page.get("Contents", []):
                    key, size = item["Key"], item["Size"]
                    # A key that ends with a slash stands for an empty folder.
                    if not key.endswith("/"):
                        yield _Object(bucket, key, size, _relative(key, prefix))

    def _listed(self, manifest: InputManifest) -> Iterator[_Object]:
        for name in manifest.names:
            bucket, key = _split(manifest.prefix + name)
            with _translated(manifest.prefix + name):
                # The manifest does not say it, and a large object is read by its size in parts.
                size = self._s3.head_object(Bucket=bucket, Key=key)["ContentLength"]
            yield _Object(bucket, key, size, name)

    def upload(self, path: Path, uri: str, kms_key: str | None = None, *, is_ours: bool = True) -> None:
        """Put the file ``path`` at ``uri``: into S3 in parts; a ``file://`` by renaming it, if that can be.

        Args:
            path: The file.
            uri: Of the object.
            kms_key: Encrypts it in S3.
            is_ours: Whether it may be renamed: what lies behind a link may be the user's own, or have another name.
        """
        if is_file(uri):
            target = self.local(uri)
            within = self._within(target)
            make_folder(target.parent, within)
            # A link would be moved as a link: to what is soon removed, or to the user's own file.
            if is_ours and not path.is_symlink():
                with contextlib.suppress(OSError):  # another file system
                    path.replace(target)
                    return
            with replacing(target, within=within) as beside:
                shutil.copy2(path, beside)
            return
        bucket, key = _split(uri)
        extra = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else None
        with _translated(uri):
            self._s3.upload_file(str(path), bucket, key, ExtraArgs=extra)

    def remove(self, uri: str) -> None:
        """Remove an object of S3; harmless if it is not there."""
        bucket, key = _split(uri)
        with _translated(uri):
            self._s3.delete_object(Bucket=bucket, Key=key)


class S3Store:
    """Checkpoints below a prefix of S3."""

    def __init__(self, objects: Objects, uri: str) -> None:
        """Take the prefix."""
        self._objects = objects
        self._uri = uri

    def fetch(self, folder: Path) -> None:
        """Download all."""
        self._objects.fetch(self._uri, folder)

    def put(self, path: Path, name: str) -> None:
        """Upload one file."""
        self._objects.upload(path, join(self._uri, name))

    def remove(self, name: str) -> None:
        """Delete one object."""
        self._objects.remove(join(self._uri, name))


def _place_below(folder: Path, name: str, source: object) -> Path:
    """Return where an object of this name goes."""
    relative = PurePosixPath(name)
    # Keys of S3 are any text: ``..`` is a name there, and a way out here.
    if relative.is_absolute() or ".." in relative.parts:
        raise InvalidInput(f"the object {source} has a name that leads out of its channel")
    return folder / relative


def _split(uri: str) -> tuple[str, str]:
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise InvalidInput(f"{uri!r} is neither s3://bucket/key nor file:///path")
    return bucket, key


def _relative(key: str, prefix: str) -> str:
    """Return a key's name below a prefix, which need not end where a folder does."""
    if key == prefix:
        return PurePosixPath(key).name
    # S3 matches text, not folders: of ``data/pa``, which finds ``data/part-1``, the name is ``part-1``.
    if prefix.endswith("/") or not prefix or key[len(prefix)] == "/":
        return key[len(prefix) :].lstrip("/")
    return key[prefix.rfind("/") + 1 :]


@contextlib.contextmanager
def _translated(uri: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        details = error.response["Error"]
        raise InvalidInput(f"{uri}: {details['Code']}: {details['Message']}") from error
