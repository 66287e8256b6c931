"""Write and read the files of one checkpoint: each rank writes its part.

The format is that of ``torch.distributed.checkpoint``. The files ``__<rank>_0.distcp`` hold named
tensors and small objects; ``.metadata`` says where each piece of each tensor is, so that another
number of workers, or another mode, reads what it needs. If several ranks have an entry, the lowest
rank writes it: the running statistics of a batch norm differ a little from rank to rank.

A checkpoint comes from a bucket that others may write to, so reading one runs no code of it: only
the classes that a checkpoint needs are unpickled.
"""

import io
import pickle
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import WriteResult

from raysm.core.protocol.store import sha256_of
from raysm.errors import InvalidRequest
from raysm.features.training.cluster.checkpoint.manifest import FileRecord

METADATA = ".metadata"

METADATA_CLASSES = {
    *(
        ("torch.distributed.checkpoint.metadata", name)
        for name in (
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    ),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
}
"""Module and name of the classes in that file, beside torch's data types."""

Stager = DefaultStager


def stager() -> Stager:
    cuda = torch.cuda.is_available()
    return DefaultStager(
        StagingOptions(
            # Shared memory is for staging in another process; here a copy into plain memory is
            # enough, and /dev/shm stays free.
            use_pinned_memory=cuda,
            use_shared_memory=False,
            use_async_staging=False,
            use_non_blocking_copy=cuda,
        )
    )


def save(
    state: dict[str, Any],
    folder: Path,
    *,
    group: "dist.ProcessGroup | None",
    staging: Stager,
    complete: Callable[[Mapping[str, FileRecord]], None],
) -> "Future[Any]":
    """Copy ``state`` and write it in the background.

    Every rank must call it, after the previous save has ended. Nothing else may use the gloo
    ``group`` meanwhile. ``complete`` gets all files on rank 0, once they are on disk.
    """
    _hush_single_process(group)
    writer = _DigestingWriter(folder, complete)
    planner = DefaultSavePlanner(dedup_save_to_lowest_rank=True)
    saving = async_save(
        state, storage_writer=writer, planner=planner, process_group=group, async_stager=staging
    )
    return saving if isinstance(saving, Future) else saving.upload_completion


class _Written(list[WriteResult]):
    files: dict[str, FileRecord]


class _DigestingWriter(FileSystemWriter):
    def __init__(self, folder: Path, complete: Callable[[Mapping[str, FileRecord]], None]) -> None:
        super().__init__(folder)
        self._folder = folder
        self._complete = complete

    def write_data(
        self, plan: SavePlan, planner: SavePlanner
    ) -> "torch.futures.Future[list[WriteResult]]":
        # The rank that wrote a file computes its digest, because the file is still in that
        # instance's page cache.
        try:
            written = _Written(super().write_data(plan, planner).value())
        except RuntimeError as error:
            # Torch's writer fails at its own check of the file's length after the disk has refused
            # a write.
            if isinstance(error.__context__, OSError):
                refused = error.__context__
                raise OSError(refused.errno, refused.strerror, str(self._folder)) from None
            raise
        written.files = {
            name: self._record(name)
            for name in {item.storage_data.relative_path for item in written}
        }
        done: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        done.set_result(written)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        # Torch passes on the very lists that write_data returned, with their attributes.
        files: dict[str, FileRecord] = {}
        for written in results:
            files |= written.files  # type: ignore[attr-defined]
        self._complete(files | {METADATA: self._record(METADATA)})

    def _record(self, name: str) -> FileRecord:
        path = self._folder / name
        return FileRecord(bytes=path.stat().st_size, sha256=sha256_of(path))


def entries(folder: Path) -> set[str]:
    return set(_metadata(folder).state_dict_metadata)


def plan(state: dict[str, Any], folder: Path) -> tuple[set[str], set[str], set[str]]:
    """Return what reading ``state`` needs: files, entries, and all entries of the checkpoint."""
    metadata = _metadata(folder)
    planner = DefaultLoadPlanner()
    planner.set_up_planner(state, metadata, is_coordinator=False)
    saved_keys = set(metadata.state_dict_metadata)
    needed_keys = set(planner.state_dict)
    if needed_keys - saved_keys:
        raise InvalidRequest(describe_missing(needed_keys - saved_keys, saved_keys))
    try:
        # The planner knows what a shape mismatch is in every mode, cut tensors included.
        items = planner.create_local_plan().items
    except ValueError as error:  # "Size mismatch between saved [3] and current: [4] for weight"
        raise InvalidRequest(str(error)) from error
    return (
        {metadata.storage_data[item.storage_index].relative_path for item in items},
        needed_keys,
        saved_keys,
    )


def describe_missing(missing: Collection[str], saved_keys: Collection[str]) -> str:
    part, entry = _most_telling(missing, saved_keys)
    if entry is None:
        return f"it was saved without a {part}, and this training has one"
    return f"it has no {entry}, which the {part} of this training has"


def describe_extra(extra: Collection[str], needed_keys: Collection[str]) -> str:
    part, entry = _most_telling(extra, needed_keys)
    if entry is None:
        return f"it was saved with a {part}, and this training has none"
    return f"it has {entry}, which the {part} of this training does not have"


def _most_telling(names: Collection[str], others: Collection[str]) -> tuple[str, str | None]:
    """Return the model, optimizer or scheduler of an entry, and the entry.

    The entry is None if ``others`` have none of that part at all. Such a part is preferred, because
    a scheduler also adds entries to the optimizer.
    """
    known = {name.partition(".")[0] for name in others}
    for entry in sorted(names):
        part = entry.partition(".")[0]
        if part not in known:
            return part, None
    entry = min(names)
    return entry.partition(".")[0], entry


def load(state: dict[str, Any], folder: Path, *, group: "dist.ProcessGroup | None") -> None:
    _hush_single_process(group)
    try:
        load_shards(
            state, storage_reader=_Reader(folder), planner=_LoadPlanner(), process_group=group
        )
    except CheckpointException as error:
        for cause, _ in error.failures.values():
            if isinstance(cause, InvalidRequest):
                raise cause from None
        raise


class _Reader(FileSystemReader):
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        metadata = _metadata(Path(self.path))
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _LoadPlanner(DefaultLoadPlanner):
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        # Torch unpickles any class, so first check that this entry consists of harmless ones.
        try:
            with torch.serialization.safe_globals(_numbers_of_numpy()):
                torch.load(value, weights_only=True)
        except pickle.UnpicklingError as error:
            raise InvalidRequest(
                f"the checkpoint's {read_item.dest_index.fqn} holds an object that may run code "
                f"when it is read: {error}. If you trust the checkpoint, call "
                "torch.serialization.add_safe_globals([…]) with its class before training.prepare"
            ) from error
        value.seek(0)
        super().load_bytes(read_item, value)


def _numbers_of_numpy() -> list[Any]:
    if "numpy" not in sys.modules:
        return []
    import numpy as np

    scalar: Any = np.float64(0).__reduce__()[0]
    return [
        scalar,
        np.dtype,
        *(type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["Float"]),
    ]


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or (module, name) in METADATA_CLASSES:
            return super().find_class(module, name)
        raise InvalidRequest(
            f"the checkpoint's {METADATA} names {module}.{name}, which torch does not write there: "
            "it was tampered with, or another version of torch wrote it; remove the checkpoint, or "
            "continue with that version"
        )


def _metadata(folder: Path) -> Metadata:
    with (folder / METADATA).open("rb") as file:
        metadata: Metadata = _MetadataUnpickler(file).load()
    return metadata


def _hush_single_process(group: "dist.ProcessGroup | None") -> None:
    if group is None:
        # For the rest of the process, because another thread warns later.
        warnings.filterwarnings(
            "ignore", message="torch.distributed is disabled, unavailable or uninitialized"
        )
