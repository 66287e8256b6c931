"""Checkpoints of trials on the head's disk, which trials on all instances write and read through an actor.

SageMaker gives instances no shared folder. Files travel in pieces, so that memory stays bounded.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from raysm.instance.ray_internals import BACKPRESSURE, spare_options
from raysm.instance.work.folders import UNDER_WAY, read_pieces, write_pieces
from raysm.instance.work.nodes import only_on

CALLS_AT_ONCE = 8
"""Calls that the actor answers at a time, so that trials wait for the disk and not for each
other."""

PARTIAL = ".partial"


class HeadFiles:
    """An actor on the head that serves the folders below ``root``, by their paths relative to it."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def ready(self) -> None: ...

    def write(self, folder: str, name: str, piece: bytes) -> None:
        target = self._at(folder + PARTIAL) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab") as file:
            file.write(piece)

    def commit(self, folder: str) -> None:
        partial = self._at(folder + PARTIAL)
        partial.mkdir(parents=True, exist_ok=True)  # without files
        partial.rename(self._at(folder))

    def read(self, folder: str) -> Iterator[tuple[str, bytes]]:
        yield from read_pieces(self._at(folder))

    def _at(self, path: str) -> Path:
        at = (self._root / path).resolve()
        if not at.is_relative_to(self._root.resolve()):
            raise ValueError(f"{path} is outside of {self._root}")
        return at


def serve_files(root: Path, node_id: str) -> Any:
    options = {
        "num_cpus": 0,
        "max_concurrency": CALLS_AT_ONCE,
        "scheduling_strategy": only_on(node_id),
    }
    actor = ray.remote(HeadFiles).options(**options).remote(str(root))
    # Wait, so that an actor that cannot start fails the sweep and not its first trial.
    ray.get(actor.ready.remote())
    return actor


def upload(files: Any, folder: Path, name: str) -> None:
    """Copy a local folder to the head as ``name``, which nothing else uses. It appears there once it is complete."""
    for file, piece in read_pieces(folder):
        ray.get(files.write.remote(name, file, piece))
    ray.get(files.commit.remote(name))


def download(files: Any, name: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Without backpressure a whole checkpoint would pile up in the head's object store.
    options = spare_options(BACKPRESSURE, {"_generator_backpressure_num_objects": UNDER_WAY})
    stream = files.read.options(num_returns="streaming", **options).remote(name)
    write_pieces((ray.get(piece) for piece in stream), folder)
