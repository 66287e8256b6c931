"""A job's inputs: data frames and arrays are written, local files uploaded, manifests read."""

import contextlib
import hashlib
import json
import os.path
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from raysm.core.client.storage.places import Places
from raysm.core.client.storage.s3 import Storage, Stored, file_path, in_parallel
from raysm.core.protocol.file_uri import uri_of
from raysm.core.protocol.home import private_folder
from raysm.core.protocol.job_api import InputManifest
from raysm.core.protocol.names import DATA_FRAME
from raysm.core.protocol.store import files_below, is_unfinished, sha256_of
from raysm.core.protocol.tensors import as_numpy
from raysm.core.request import Input, Target
from raysm.core.request.file_systems import file_system_at
from raysm.errors import InvalidInput, InvalidRequest, option, used_by

SAVED = "inputs"
"""The folder, below raysm's home, of data that were given from memory."""
MAX_KEY_BYTES = 900
"""Limit of a file's name, with its folders: S3 takes keys of 1,024 bytes, of which the prefix needs
some."""
KEPT_S = 30 * 24 * 3600
CLASSES = (
    ("numpy", "ndarray"),
    ("torch", "Tensor"),
    ("pandas", "DataFrame"),
    ("polars", "DataFrame"),
)
"""Packages and their classes that can be inputs; they are not imported here."""


def objects_of(source: Input, storage: Storage) -> Iterator[Stored]:
    if not source.manifest:
        yield from storage.walk(source.uri)
        return
    manifest = manifest_at(source.uri, storage)
    missing = set(manifest.names)
    for stored in _listed(manifest.prefix, sorted(missing, key=str.encode), storage):
        missing.discard(stored.name)
        yield stored
    if missing:
        raise InvalidInput(
            f"of {len(set(manifest.names))} objects that the manifest {source.uri} lists "
            f"{len(missing)} are not there, {manifest.prefix}{min(missing)} first; write it anew"
        )


def manifest_at(uri: str, storage: Storage) -> InputManifest:
    content = storage.read(uri)
    if content is None:
        raise InvalidInput(f"there is no manifest at {uri}; check the address")
    return InputManifest.of(content, uri)


def _listed(prefix: str, names: Sequence[str], storage: Storage) -> Iterator[Stored]:
    if not prefix.startswith("s3://"):
        for name in names:
            for stored in storage.walk(str(file_path(prefix) / name)):
                yield replace(stored, name=name)
        return
    uris = {prefix + name: name for name in names}
    # A listing has a thousand objects in one call, and most manifests list neighbours: HEAD would
    # be a call for each.
    for stored in storage.walk(os.path.commonprefix(list(uris))):
        if stored.uri in uris:
            yield replace(stored, name=uris.pop(stored.uri))
        if not uris:
            return


def is_data(item: object) -> bool:
    return _package(item) is not None


def _package(item: object) -> str | None:
    for package, name in CLASSES:
        # The object's class exists only if its package is imported.
        kind = getattr(sys.modules.get(package), name, None)
        if kind is not None and isinstance(item, kind):
            return package
    return None


def save(channel: str, item: Any, home: Path, id_columns: Sequence[str] = ()) -> Path:
    """Save data as ``.npy`` or Parquet in a file named ``channel``; equal content is the same file.

    ``id_columns`` name the rows; they may be levels of a pandas index. Data that would lose
    something are refused: a pandas index with information, a mask, Python objects.
    """
    inputs = private_folder(home, SAVED)
    for old in inputs.iterdir():
        # Another process may just have removed it.
        with contextlib.suppress(FileNotFoundError):
            if time.time() - old.stat().st_mtime > KEPT_S:
                shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=inputs) as scratch:
        folder = Path(scratch)
        match _package(item):
            case "pandas":
                file = _save_table(channel, _pandas_table(channel, item, id_columns), folder)
            case "polars":
                file = _save_table(channel, item.to_arrow(), folder)
            case "torch":
                file = _save_array(channel, _numpy_array(channel, item), folder)
            case _:
                file = _save_array(channel, item, folder)
        kept = inputs / sha256_of(file)[:40] / file.name
        kept.parent.mkdir(exist_ok=True)
        # The folder's time says when a job was last given the file.
        kept.parent.touch()
        file.replace(kept)
    return kept


def _save_array(channel: str, array: Any, folder: Path) -> Path:
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise InvalidInput(
            f"the input {channel!r} is a masked array; "
            "give numbers for what is masked: array.filled(…)"
        )
    file = folder / f"{channel}.npy"
    try:
        np.save(file, array, allow_pickle=False)
    except ValueError as error:
        raise InvalidInput(
            f"the input {channel!r} is an array of {array.dtype}; give numbers: "
            "array.astype('float32')"
        ) from error
    return file


def _numpy_array(channel: str, tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise InvalidInput(
            f"the input {channel!r} is a tensor with the layout "
            f"{tensor.layout}; give tensor.to_dense()"
        )
    try:
        return as_numpy(tensor)
    except (RuntimeError, TypeError) as error:  # a quantized tensor, or one of the device meta
        raise InvalidInput(
            f"the input {channel!r} is a tensor without plain numbers "
            f"({error}); give tensor.float()"
        ) from error


def _save_table(channel: str, table: Any, folder: Path) -> Path:
    import pyarrow.parquet as pq

    file = folder / f"{channel}.parquet"
    # This replaces pandas' own metadata, which differ between its versions.
    pq.write_table(table.replace_schema_metadata({DATA_FRAME: channel}), file)
    return file


def _pandas_table(channel: str, frame: Any, id_columns: Sequence[str]) -> Any:
    import pandas as pd

    with used_by("a data frame as an input"):
        import pyarrow as pa
    if frame.columns.nlevels > 1:
        raise InvalidInput(
            f"the input {channel!r} has columns of several levels; give each column one name"
        )
    index = frame.index
    names = list(frame.index.names)
    keeps_index = names != [None] and all(name in id_columns for name in names)
    # The default index 0, 1, 2 … has no information.
    is_default = (
        isinstance(index, pd.RangeIndex)
        and index.name is None
        and (index.start, index.step) == (0, 1)
    )
    if not keeps_index and not is_default:
        named = "without a name" if names == [None] else ", ".join(map(repr, names))
        give = "frame.reset_index(names='id')" if names == [None] else "the frame as it is"
        column = option("id_column", "id" if names == [None] else names[0])
        raise InvalidInput(
            f"the data frame of the input {channel!r} has an index {named} that is not 0, 1, "
            f"2 … (it begins with {index[:1].tolist()}), which would be lost; if it names the "
            f"rows, give {give} and {column}; if not, give frame.reset_index(drop=True)"
        )
    try:
        return pa.Table.from_pandas(
            frame.reset_index() if keeps_index else frame, preserve_index=False
        )
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidInput(
            f"the data frame of the input {channel!r} cannot be saved: {error}"
        ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    channel: str
    root: Path
    files: Mapping[str, str]
    """SHA-256 of each file, by its name relative to the prefix."""
    prefix: str

    @property
    def size(self) -> int:
        return sum(self.path(name).stat().st_size for name in self.files)

    def path(self, name: str) -> Path:
        return self.root if self.root.is_file() else self.root / name


def locate(
    inputs: Mapping[str, Input], target: Target, places: Places
) -> tuple[dict[str, Input], list[Upload]]:
    located: dict[str, Input] = {}
    uploads: list[Upload] = []
    for channel, source in inputs.items():
        if source.uri.startswith("s3://") or file_system_at(source.uri) is not None:
            located[channel] = source
            continue
        if "://" in source.uri and not source.uri.startswith("file:///"):
            raise InvalidRequest(
                f"the channel {channel!r} is {source.uri!r}; "
                "give s3://…, efs://…, fsx://…, file:///… or a path"
            )
        path = file_path(source.uri).absolute()
        if not path.exists():
            raise InvalidRequest(
                f"the channel {channel!r} is {source.uri!r}, and nothing is there: check the path"
            )
        if target.takes_files:
            located[channel] = replace(source, uri=uri_of(path))
            continue
        if source.manifest:
            raise InvalidRequest(
                f"the manifest of the channel {channel!r} is {source.uri!r}, "
                "a file of this machine that lists what lies in S3; "
                "bring it there too (aws s3 cp), and give its s3://bucket/key"
            )
        upload = _plan_upload(channel, path, places)
        uploads.append(upload)
        located[channel] = replace(
            source, uri=upload.prefix + (path.name if path.is_file() else "")
        )
    return located, uploads


def _plan_upload(channel: str, root: Path, places: Places) -> Upload:
    # A file that is still being written may be gone before it is sent.
    paths = sorted(path for path in files_below(root) if not is_unfinished(path.name))
    if not paths:
        raise InvalidRequest(f"the channel {channel!r} is the folder {root}, which holds no files")
    names = [path.name if path == root else path.relative_to(root).as_posix() for path in paths]
    for name in names:
        _check_key(channel, name)
    files = dict(zip(names, in_parallel(sha256_of, paths), strict=True))
    # Names and contents alone: a file that was only touched is the same.
    digest = hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()
    return Upload(
        channel=channel, root=root, files=files, prefix=f"{places.inputs()}/{digest[:40]}/"
    )


def _check_key(channel: str, name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(
            f"the channel {channel!r} has the file {os.fsencode(name)!r}, "
            "whose name is not UTF-8, as names in S3 must be; rename it"
        ) from None
    if size > MAX_KEY_BYTES:
        raise InvalidRequest(
            f"the channel {channel!r} has the file {name[:80]!r}…, whose name has {size} bytes; "
            f"S3 takes about {MAX_KEY_BYTES}; give it a shorter one"
        )


def carry_out(upload: Upload, storage: Storage, kms_key: str | None = None) -> int:
    sizes = {item.name: item.size for item in storage.below(upload.prefix)}
    # The prefix is named by the content, so comparing sizes is enough.
    missing = [name for name in upload.files if sizes.get(name) != upload.path(name).stat().st_size]
    in_parallel(
        lambda name: storage.upload(upload.path(name), upload.prefix + name, kms_key), missing
    )
    return len(missing)
