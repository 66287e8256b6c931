"""Checkpoints that survive a job.

As with S3, every instance gets all of them before it starts; while the job runs, what instances write there goes to
the store, and what the instance that wrote it removes is removed there. All instances share the one store: two that
write the same name overwrite each other, and the later one stays.
"""

import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from raysm.contract.store import PARTIAL, replacing

__all__ = ["CheckpointStore", "CheckpointSync", "FolderStore"]

Stamp: TypeAlias = tuple[int, int]
"""Modification time in nanoseconds, and size."""


class CheckpointStore(Protocol):
    """Where checkpoints are kept."""

    def fetch(self, folder: Path) -> None:
        """Bring everything into ``folder``, which is there."""

    def put(self, path: Path, name: str) -> None:
        """Take over the file ``path`` under ``name``.

        Raises:
            FileNotFoundError: It was removed meanwhile.
        """

    def remove(self, name: str) -> None:
        """Remove ``name``; harmless if it is not there."""


class FolderStore:
    """A folder of this machine plays the checkpoint URI."""

    def __init__(self, folder: Path) -> None:
        """Take the folder; it is made when it is first needed."""
        self._folder = folder

    def fetch(self, folder: Path) -> None:
        """Copy all files."""
        self._folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self._folder, folder, dirs_exist_ok=True)

    def put(self, path: Path, name: str) -> None:
        """Copy one file."""
        with replacing(self._folder / name) as beside:
            shutil.copy2(path, beside)

    def remove(self, name: str) -> None:
        """Remove one file."""
        (self._folder / name).unlink(missing_ok=True)


class CheckpointSync:
    """Keeps a store and the instances' own checkpoint folders together."""

    def __init__(self, store: CheckpointStore, instances: Sequence[Path]) -> None:
        """Take the store, and the folder of each instance."""
        self._store = store
        self._seen: dict[Path, Mapping[str, Stamp]] = {path: {} for path in instances}
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def restore(self) -> None:
        """Give each instance what the store holds; call it before they start."""
        first: Path | None = None
        for path in self._seen:
            path.mkdir(parents=True, exist_ok=True)
            if first is None:
                self._store.fetch(path)
                first = path
            else:
                shutil.copytree(first, path, dirs_exist_ok=True)
            self._seen[path] = _stamps(path)

    def follow(self, every_s: float) -> None:
        """Collect again and again, in a thread, until ``close``: a large checkpoint must not hold up a stop."""
        self._thread = threading.Thread(target=self._run, args=(every_s,), name="checkpoints", daemon=True)
        self._thread.start()

    def _run(self, every_s: float) -> None:
        try:
            while not self._ending.wait(every_s):
                self.collect()
        except BaseException as error:
            self._error = error

    def close(self) -> None:
        """Collect for the last time; nothing of the instances runs any more.

        Raises:
            BaseException: What the store raised when it was to keep something.
        """
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        self.collect()

    def collect(self) -> None:
        """Take over what changed in the instances since the last call."""
        changes = [change for path in self._seen for change in self._changes(path)]
        for _, path, name in sorted(changes):
            try:
                self._store.put(path / name, name)
            except FileNotFoundError:
                continue  # removed again meanwhile: the next call sees that

    def _changes(self, path: Path) -> list[tuple[int, Path, str]]:
        """Return what is new or changed below ``path`` with its time; carry out what was removed."""
        before, now = self._seen[path], _stamps(path)
        self._seen[path] = now
        for name in before.keys() - now.keys():
            self._store.remove(name)
        return [(stamp[0], path, name) for name, stamp in now.items() if before.get(name) != stamp]


def _stamps(folder: Path) -> dict[str, Stamp]:
    found = {}
    for path in folder.rglob("*"):
        try:
            if path.is_file() and not path.name.endswith(PARTIAL):
                stat = path.stat()
                found[path.relative_to(folder).as_posix()] = (stat.st_mtime_ns, stat.st_size)
        except FileNotFoundError:
            continue
    return found
