"""Checkpoints of trials on the head's disk, which trials on all instances write and read through an actor.

SageMaker gives instances no shared folder.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from raysm.workloads.nodes import only_on

PIECE_BYTES = 8 << 20
"""Files travel in pieces of this size, so memory stays bounded for checkpoints of any size."""

CALLS_AT_ONCE = 8
"""Calls that the actor answers at a time, so that trials wait for the disk and not for each other."""

PARTIAL = ".partial"
"""Suffix of a folder that is still being written."""


class HeadFiles:
    """An actor on the head that serves the folders below ``root``. All paths are relative to it."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def ready(self) -> None: ...

    def write(self, path: str, offset: int, content: bytes | None) -> None:
        """Write a piece of a file at ``offset``; None creates a folder."""
        target = self._at(path)
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(content)

    def commit(self, folder: str) -> None:
        """Give a folder that was written under its partial name its own name."""
        self._at(folder + PARTIAL).rename(self._at(folder))

    def files(self, folder: str) -> list[tuple[str, int | None]]:
        """Return the paths inside ``folder`` with their sizes; the size of a folder is None."""
        at = self._at(folder)
        return [
            (path.relative_to(at).as_posix(), None if path.is_dir() else path.stat().st_size)
            for path in sorted(at.rglob("*"))
        ]

    def read(self, path: str, offset: int) -> bytes:
        with self._at(path).open("rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES)

    def _at(self, path: str) -> Path:
        at = (self._root / path).resolve()
        if not at.is_relative_to(self._root.resolve()):
            raise ValueError(f"{path} is outside of {self._root}")
        return at


def serve_files(root: Path, node_id: str) -> Any:
    """Start the actor on the node ``node_id``, for files below ``root``; return its handle."""
    options = {"num_cpus": 0, "max_concurrency": CALLS_AT_ONCE, "scheduling_strategy": only_on(node_id)}
    actor = ray.remote(HeadFiles).options(**options).remote(str(root))
    # Wait, so that an actor that cannot start fails the sweep and not its first trial.
    ray.get(actor.ready.remote())
    return actor


def upload(files: Any, folder: Path, name: str) -> None:
    """Copy a local folder to the head as ``name``. It appears there once it is complete."""
    partial = name + PARTIAL
    _call(files.write, partial, 0, None)
    for path in sorted(folder.rglob("*")):
        target = f"{partial}/{path.relative_to(folder).as_posix()}"
        if path.is_dir():
            _call(files.write, target, 0, None)
            continue
        for offset, piece in _pieces(path):
            _call(files.write, target, offset, piece)
    _call(files.commit, name)


def download(files: Any, name: str, folder: Path) -> None:
    """Copy the folder ``name`` from the head into the local ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path, size in _call(files.files, name):
        target = folder / path
        if size is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            while file.tell() < size:
                file.write(_call(files.read, f"{name}/{path}", file.tell()))


def _call(method: Any, *arguments: Any) -> Any:
    return ray.get(method.remote(*arguments))


def _pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    offset = 0
    with path.open("rb") as file:
        # An empty file is one empty piece.
        while (piece := file.read(PIECE_BYTES)) or not offset:
            yield offset, piece
            offset += len(piece)
            if not piece:
                break
