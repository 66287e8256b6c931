"""Brings local data and the payload to where the service reads them.

What flows in are inputs as the user gives them, what flows out are inputs by URI and the uploads that they need. On
this machine local data stays where it is. On AWS a file or folder goes under a prefix named by its content, so that a
running job never sees it change::

    inputs/DIGEST/…                  the files
    inputs/index/DIGEST-OF-PATH.json where each content of this folder's last upload lies: what has not changed since
                                     is copied inside S3 instead of being sent again

ETags are not relied on: those of objects sent in parts are no digests of the content.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from raysm.client.places import Places
from raysm.client.storage import Storage, file_path, in_parallel
from raysm.contract.store import PARTIAL, files_below, sha256_of
from raysm.errors import InvalidRequest, ServiceError
from raysm.request import Input, Target

__all__ = ["Upload", "carry_out", "locate", "send_folder"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """Local data that has to be in S3 before the job is sent."""

    channel: str
    """The input that it is."""
    root: Path
    """The file or folder."""
    files: Mapping[str, str]
    """Name relative to the prefix, and SHA-256."""
    prefix: str
    """Where they go, with a slash at its end."""
    index: str
    """URI of what the last upload of this path left."""

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(self.path(name).stat().st_size for name in self.files)

    def path(self, name: str) -> Path:
        """Return the local file of ``name``."""
        return self.root if self.root.is_file() else self.root / name


def locate(inputs: Mapping[str, Input], target: Target, places: Places) -> tuple[dict[str, Input], list[Upload]]:
    """Give every input a URI that the service can read; nothing is sent yet.

    Returns:
        The inputs by URI, and what has to be uploaded for them.

    Raises:
        InvalidRequest: Local data is not there, a folder is empty, or a manifest would have to be uploaded.
    """
    located: dict[str, Input] = {}
    uploads: list[Upload] = []
    for channel, source in inputs.items():
        if source.uri.startswith("s3://"):
            located[channel] = source
            continue
        if "://" in source.uri and not source.uri.startswith("file:///"):
            raise InvalidRequest(f"the channel {channel!r} is {source.uri!r}; give s3://…, file:///… or a path")
        path = file_path(source.uri).absolute()
        if not path.exists():
            raise InvalidRequest(f"the channel {channel!r} is {source.uri!r}, and nothing is there: check the path")
        if target.takes_files:
            located[channel] = replace(source, uri=path.as_uri())
            continue
        if source.manifest:
            raise InvalidRequest(
                f"the manifest of the channel {channel!r} is {source.uri!r}, a file of this machine that lists what "
                "lies in S3; bring it there too (aws s3 cp), and give its s3://bucket/key"
            )
        upload = _plan_upload(channel, path, places)
        uploads.append(upload)
        uri = upload.prefix + path.name if path.is_file() else upload.prefix
        located[channel] = replace(source, uri=uri)
    return located, uploads


def _plan_upload(channel: str, root: Path, places: Places) -> Upload:
    # What somebody is still writing is no part of the input: it may be gone before it is sent.
    paths = sorted(path for path in files_below(root) if not path.name.endswith(PARTIAL))
    if not paths:
        raise InvalidRequest(f"the channel {channel!r} is the folder {root}, which holds no files")
    names = [path.name if path == root else path.relative_to(root).as_posix() for path in paths]
    files = dict(zip(names, in_parallel(sha256_of, paths), strict=True))
    # Names and contents alone: a file that was only touched is the same.
    digest = hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()
    return Upload(
        channel=channel,
        root=root,
        files=files,
        prefix=f"{places.inputs()}/{digest[:40]}/",
        index=f"{places.inputs()}/index/{hashlib.sha256(str(root).encode()).hexdigest()[:40]}.json",
    )


def carry_out(upload: Upload, storage: Storage, kms_key: str | None = None) -> int:
    """Bring the files of ``upload`` to their prefix.

    Returns:
        The number of files that were sent; the others were there, or were copied inside S3.
    """
    sizes = {item.name: item.size for item in storage.below(upload.prefix)}
    # Their sizes will do, since the prefix is named by the content.
    missing = [name for name in upload.files if sizes.get(name) != upload.path(name).stat().st_size]
    if not missing:
        return 0
    digests = _index(storage, upload)
    is_sent = in_parallel(lambda name: _bring(upload, name, digests, storage, kms_key), missing)
    index = {digest: upload.prefix + name for name, digest in upload.files.items()}
    # Last, so that it names nothing that did not arrive.
    storage.write(upload.index, json.dumps(index).encode(), kms_key)
    return sum(is_sent)


def _index(storage: Storage, upload: Upload) -> dict[str, str]:
    try:
        index = json.loads(storage.read(upload.index) or b"{}")
    except ValueError:
        # The index only saves time: without a readable one, everything is sent.
        return {}
    return index if isinstance(index, dict) else {}


def _bring(upload: Upload, name: str, index: Mapping[str, str], storage: Storage, kms_key: str | None) -> bool:
    """Copy or send one file; return whether it was sent."""
    target = upload.prefix + name
    source = index.get(upload.files[name])
    # The index may name the very place from which the file was removed.
    if source is not None and source != target:
        try:
            if storage.size(source) == upload.path(name).stat().st_size:
                storage.copy(source, target, kms_key)
                return False
        except (ServiceError, InvalidRequest):
            pass  # it was removed meanwhile, or may not be read: send it
    storage.upload(upload.path(name), target, kms_key)
    return True


def send_folder(folder: Path, prefix: str, storage: Storage, kms_key: str | None = None) -> None:
    """Upload every file of ``folder`` below ``prefix``: the payload of one job."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    in_parallel(lambda path: storage.upload(path, f"{prefix}/{path.relative_to(folder).as_posix()}", kms_key), paths)
