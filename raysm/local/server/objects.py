"""Objects by URI, the download of a job's channels, and the upload of its outputs.

``s3://bucket/key`` is in moto; ``file:///path`` is a file of this machine, and can replace any
``s3://`` URI.
"""

import contextlib
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from raysm.core.protocol.job_api import InputManifest
from raysm.core.protocol.store import make_folder, replacing
from raysm.core.request.file_systems import FileSystem, file_system_at
from raysm.errors import InvalidInput, InvalidRequest
from raysm.local.checkpoints import CheckpointStore, FolderStore
from raysm.local.instance_files import InstanceFiles
from raysm.local.local_job import LocalJob
from raysm.local.preparation import local_path
from raysm.local.server.definitions import Definition, Output, Source
from raysm.local.server.moto_services import MotoServices

COMPRESSION = 1
"""Level of gzip for archives: the fastest, because they are read once, on this machine."""


def is_file(uri: str) -> bool:
    return uri.startswith("file://")


def join(prefix: str, *parts: str) -> str:
    return "/".join([prefix.rstrip("/"), *parts])


class NotForS3(InvalidInput):
    """The name of a file cannot be part of a key in S3."""


class _Object(NamedTuple):
    bucket: str
    key: str
    size: int
    name: str
    """Relative to the URI that was asked for."""


class Objects:
    def __init__(
        self, moto: MotoServices, results: Path | None = None, file_systems: Path | None = None
    ) -> None:
        """Use moto's S3.

        ``results``, the home's existing folder of results, must not be made again.
        ``file_systems`` has the folders that stand for file systems.
        """
        self._moto = moto
        self._results = results
        self._file_systems = file_systems

    @property
    def _s3(self) -> Any:
        return self._moto.client("s3")

    def local(self, uri: str) -> Path:
        return local_path("", uri)

    def mounted(self, mounted: FileSystem) -> Path:
        """Return the folder of this machine that stands for one of a file system.

        Raises:
            InvalidInput: It is not there.
        """
        assert self._file_systems is not None
        root = self._file_systems / mounted.id
        folder = root / mounted.path
        if not root.is_dir():
            raise InvalidInput(
                f"nothing stands for the file system {mounted.id} on this machine; "
                f"make {root}, or a link of this name to a folder of yours"
            )
        if not folder.is_dir():
            raise InvalidInput(f"{root}, which stands for {mounted.id}, has no {mounted.path}")
        return folder

    def checkpoints(self, uri: str) -> CheckpointStore:
        if not is_file(uri):
            return S3Store(self, uri)
        folder = self.local(uri)
        return FolderStore(folder, self._within(folder))

    def _within(self, path: Path) -> Path | None:
        """Return the folder above ``path`` that must exist.

        A home that was deleted must not come back.
        """
        return (
            self._results
            if self._results is not None and path.is_relative_to(self._results)
            else None
        )

    def download(self, uri: str, folder: Path) -> None:
        objects = list(self._below(uri))
        if not objects:
            raise InvalidInput(
                f"No S3 objects found under S3 URL {uri!r}; check the bucket and the prefix"
            )
        self._download(objects, folder)

    def download_listed(self, uri: str, folder: Path) -> None:
        """Download the objects that the manifest at ``uri`` lists into the new ``folder``.

        The files have the names of the objects.
        """
        manifest = InputManifest.of(self._read_manifest(uri), uri)
        if not is_file(manifest.prefix):
            self._download(list(self._list_objects(manifest)), folder)
            return
        base = self.local(manifest.prefix)
        folder.mkdir(exist_ok=True)
        for name in manifest.names:
            source = base / name
            path = _place_below(folder, name, base / name)
            if not source.is_file():
                raise InvalidInput(f"{uri} lists {source}, which is not a file")
            make_folder(path.parent, within=folder)
            # A copy, because a link in the folder would lead nowhere in an instance.
            shutil.copy2(source, path)

    def _read_manifest(self, uri: str) -> bytes:
        if is_file(uri):
            path = self.local(uri)
            if not path.is_file():
                raise InvalidInput(f"there is no manifest at {path}")
            return path.read_bytes()
        bucket, key = _split(uri)
        with _translated(uri):
            return bytes(self._s3.get_object(Bucket=bucket, Key=key)["Body"].read())

    def fetch(self, uri: str, folder: Path) -> None:
        # With the slash, so that checkpoints of run-10 are not those of run-1.
        self._download(list(self._below(uri.rstrip("/") + "/")), folder)

    def _download(self, objects: list[_Object], folder: Path) -> None:
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
            for page in self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=prefix
            ):
                for item in page.get("Contents", []):
                    key = item["Key"]
                    size = item["Size"]
                    # A key that ends with a slash stands for an empty folder.
                    if not key.endswith("/"):
                        yield _Object(bucket, key, size, _relative(key, prefix))

    def _list_objects(self, manifest: InputManifest) -> Iterator[_Object]:
        for name in manifest.names:
            bucket, key = _split(manifest.prefix + name)
            with _translated(manifest.prefix + name):
                size = self._s3.head_object(Bucket=bucket, Key=key)["ContentLength"]
            yield _Object(bucket, key, size, name)

    def upload(
        self,
        path: Path,
        uri: str,
        kms_key: str | None = None,
        *,
        name: str = "",
        is_ours: bool = True,
    ) -> None:
        """Store a file at ``uri``, or as the file ``name`` below it; ``is_ours`` lets it be moved.

        Raises:
            NotForS3: S3 takes no such name.
        """
        if is_file(uri):
            # A name is no part of a URI: ``?``, ``#``, ``%`` and ``..`` mean nothing in it.
            target = self.local(uri) / name
            within = self._within(target)
            make_folder(target.parent, within)
            if is_ours:
                with contextlib.suppress(OSError):  # another file system
                    path.replace(target)
                    return
            with replacing(target, within=within) as beside:
                shutil.copy2(path, beside)
            return
        bucket, key = _split_below(uri, name)
        extra = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else None
        # Not upload_file, whose own error hides that of S3.
        with _translated(uri), path.open("rb") as file:
            self._s3.upload_fileobj(file, bucket, key, ExtraArgs=extra)

    def remove(self, uri: str, name: str) -> None:
        bucket, key = _split_below(uri, name)
        with _translated(uri):
            self._s3.delete_object(Bucket=bucket, Key=key)


class S3Store:
    def __init__(self, objects: Objects, uri: str) -> None:
        self._objects = objects
        self._uri = uri

    def fetch(self, folder: Path) -> None:
        self._objects.fetch(self._uri, folder)

    def put(self, path: Path, name: str) -> None:
        self._objects.upload(path, self._uri, name=name)

    def remove(self, name: str) -> None:
        self._objects.remove(self._uri, name)


def _place_below(folder: Path, name: str, source: object) -> Path:
    relative = PurePosixPath(name)
    # S3 allows ``..`` in a key.
    if relative.is_absolute() or ".." in relative.parts:
        raise InvalidInput(f"the object {source} has a name that leads out of its channel")
    return folder / relative


def _split(uri: str) -> tuple[str, str]:
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise InvalidInput(f"{uri!r} is neither s3://bucket/key nor file:///path")
    return bucket, key


def _split_below(uri: str, name: str) -> tuple[str, str]:
    bucket, key = _split(join(uri, name) if name else uri)
    try:
        key.encode()
    except UnicodeEncodeError:
        raise NotForS3(
            f"the name {os.fsencode(name)!r} is not UTF-8, as names in S3 must be; rename it"
        ) from None
    # Only here: moto finds no key with a line break, S3 does.
    if "\n" in key:
        raise NotForS3(
            f"the name {name!r} has a line break, which the embedded S3 cannot keep; rename it"
        )
    return bucket, key


def _relative(key: str, prefix: str) -> str:
    """Return a key's name below a prefix, which need not end with a folder."""
    if key == prefix:
        return PurePosixPath(key).name
    # S3 matches text: the prefix ``data/pa`` finds ``data/part-1``, whose name is ``part-1``.
    start = len(prefix) if key[len(prefix)] == "/" else prefix.rfind("/") + 1
    return key[start:].lstrip("/")


@contextlib.contextmanager
def _translated(uri: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        details = error.response["Error"]
        raise InvalidInput(f"{uri}: {details['Code']}: {details['Message']}") from error


def download_channels(
    objects: Objects, sources: Sequence[Source], folder: Path
) -> dict[str, tuple[Path, bool]]:
    """Download the channels that are in S3 into ``folder``.

    Return each channel's path, and whether the job owns it.
    """
    places: dict[str, tuple[Path, bool]] = {}
    for number, source in enumerate(sources):
        if is_file(source.uri) and not source.manifest:
            places[source.name] = (objects.local(source.uri), False)
            continue
        # Not by its name: a Processing input's may be any text, such as ``../..``.
        place = folder / str(number)
        folder.mkdir(exist_ok=True)
        try:
            mounted = file_system_at(source.uri)
            if mounted is not None:
                places[source.name] = (objects.mounted(mounted), False)
                continue
            bring_to = objects.download_listed if source.manifest else objects.download
            bring_to(source.uri, place)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"Data download failed: channel {source.name!r}: {error}"
            ) from error
        places[source.name] = (place, True)
    return places


def upload_order(job: LocalJob, chance: Random) -> list[str]:
    """Return the instances in random order, because AWS promises none.

    The last upload of a name stays. See the developer guide, "Amazon SageMaker AI Training Storage
    Folders": names of files must not clash.
    """
    hosts = list(job.instances)
    chance.shuffle(hosts)
    return hosts


def upload(
    objects: Objects,
    definition: Definition,
    instances: Sequence[InstanceFiles],
    scratch: Path,
    say: Callable[[str], None],
    *,
    failed: bool,
) -> None:
    """Upload the outputs of the instances.

    ``say`` receives a line about each file that is left out.
    """
    for output in definition.outputs:
        # SageMaker does not upload the model of a job that failed.
        if failed and output.unless_failed:
            continue
        try:
            collect(objects, output, instances, scratch, say, definition.kms_key)
        except (InvalidRequest, OSError) as error:
            # A failed job already has a more useful reason.
            if not failed:
                raise InvalidRequest(f"Artifact upload failed: {error}") from error


def exit_message(job: LocalJob) -> str | None:
    return next(filter(None, map(job.reason, job.instances)), None)


def collect(
    objects: Objects,
    output: Output,
    instances: Sequence[InstanceFiles],
    scratch: Path,
    say: Callable[[str], None],
    kms_key: str | None,
) -> None:
    files: dict[str, Path] = {}
    for instance in instances:
        folder = instance.base / output.place
        files |= {path.relative_to(folder).as_posix(): path for path in instance.below(folder)}
        for line in instance.remarks():
            say(line)
    files = dict(sorted(files.items()))
    if not output.archive:
        links = {name for name, path in files.items() if _is_behind_link(name, path)}
        # Copy files behind links first, because their targets are moved next.
        for name in sorted(files, key=lambda name: name not in links):
            try:
                objects.upload(
                    files[name], output.uri, kms_key, name=name, is_ours=name not in links
                )
            except NotForS3 as error:
                say(f"raysm: a file of {output.place} was not uploaded: {error}")
        return
    if not files and not output.even_empty:
        return
    archive = scratch / f"{output.place.name}.tar.gz"
    # With the targets of links, whose paths mean nothing elsewhere.
    with tarfile.open(archive, "w:gz", compresslevel=COMPRESSION, dereference=True) as tar:
        for name, path in files.items():
            tar.add(path, name, recursive=False)
    objects.upload(archive, output.uri, kms_key)
    archive.unlink(missing_ok=True)


def _is_behind_link(name: str, path: Path) -> bool:
    above = path.parents[: len(PurePosixPath(name).parts) - 1]
    return any(part.is_symlink() for part in (path, *above))
