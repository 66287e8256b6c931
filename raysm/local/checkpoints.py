"""Checkpoints that survive a job.

As with S3, every instance gets all of them before it starts. While the job runs, files that
instances write there are copied to the store, unfinished ones too, and files that their writer
removes are removed there. All instances share the one store: if two write the same name, the later
one stays.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

from raysm.core.protocol.store import make_folder, replacing
from raysm.local.instance_files import InstanceFiles

Stamp: TypeAlias = tuple[int, int]
"""Modification time in nanoseconds, and size."""


class CheckpointStore(Protocol):
    def fetch(self, folder: Path) -> None:
        """Copy everything into the existing ``folder``."""

    def put(self, path: Path, name: str) -> None:
        """Copy the file ``path`` to ``name``.

        Raise FileNotFoundError if it was removed meanwhile.
        """

    def remove(self, name: str) -> None:
        """Remove ``name`` if it exists."""


class FolderStore:
    def __init__(self, folder: Path, within: Path | None = None) -> None:
        """Use ``folder``, which is made on first use.

        ``within`` is a folder above it that must exist.
        """
        self._folder = folder
        self._within = within

    def fetch(self, folder: Path) -> None:
        make_folder(self._folder, self._within)
        _copy_below(self._folder, folder)

    def put(self, path: Path, name: str) -> None:
        with replacing(self._folder / name, within=self._within) as beside:
            shutil.copy2(path, beside)

    def remove(self, name: str) -> None:
        """Remove one file and the folders that become empty.

        A file may get the name of such a folder.
        """
        path = self._folder / name
        # A folder in the name may have become a file.
        with contextlib.suppress(NotADirectoryError):
            path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._folder:
                return
            try:
                folder.rmdir()
            except OSError:  # not empty, or it does not exist
                return


class CheckpointSync:
    def __init__(self, store: CheckpointStore, instances: Mapping[Path, InstanceFiles]) -> None:
        """Keep the files below folders of ``instances`` in ``store``.

        Each folder comes with the files of its instance.
        """
        self._store = store
        self._instances = dict(instances)
        self._seen: dict[Path, dict[str, Stamp]] = {path: {} for path in instances}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def restore(self) -> None:
        first, *others = self._seen
        self._store.fetch(first)
        # Copy instead of downloading again.
        for path in others:
            _copy_below(first, path)
        # The next collection must not take these files for new ones.
        for path in self._seen:
            self._seen[path] = self._stamps(path)

    def follow(self, every_s: float) -> None:
        """Collect repeatedly in a thread until ``close``.

        So a large checkpoint does not delay a stop.
        """
        self._thread = threading.Thread(
            target=self._run, args=(every_s,), name="checkpoints", daemon=True
        )
        self._thread.start()

    def _run(self, every_s: float) -> None:
        while not self._ending.wait(every_s):
            self.collect()

    def close(self) -> None:
        """Collect for the last time, after all instances have ended.

        Raise the error if that fails.
        """
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self.collect()
        if self._error is not None:
            raise self._error

    def leave(self, folder: Path) -> None:
        """Stop collecting the folder of an instance.

        Files that the store does not have yet are lost.
        """
        with self._lock:
            self._seen.pop(folder, None)

    def remarks(self) -> list[str]:
        """Return a line for each link that the last call of ``collect`` did not follow."""
        return [line for files in self._instances.values() for line in files.remarks()]

    def collect(self) -> None:
        """Copy what changed in the instances since the last call.

        The next call tries again what failed.
        """
        with self._lock:
            self._error = None
            for files in self._instances.values():
                # Links to /opt/ml lead to the instance only once it has ended.
                files.left.clear()
            changes = [change for path in self._seen for change in self._changes(path)]
            # By time, so that the later one of two files of one name stays.
            for stamp, path, name in sorted(changes):
                try:
                    self._store.put(path / name, name)
                except FileNotFoundError:
                    pass  # removed meanwhile; the next call sees that
                except Exception as error:
                    self._error = error
                    continue
                self._seen[path][name] = stamp

    def _changes(self, path: Path) -> list[tuple[Stamp, Path, str]]:
        """Return new and changed files below ``path`` with their stamps.

        Remove from the store what was removed.
        """
        before = self._seen[path]
        try:
            now = self._stamps(path)
        except OSError as error:
            self._error = error
            return []
        for name in before.keys() - now.keys():
            try:
                self._store.remove(name)
            except Exception as error:
                self._error = error
            else:
                del before[name]
        return [(stamp, path, name) for name, stamp in now.items() if before.get(name) != stamp]

    def _stamps(self, folder: Path) -> dict[str, Stamp]:
        stamps = {}
        for path in self._instances[folder].below(folder):
            try:
                stat = path.stat()
                stamps[path.relative_to(folder).as_posix()] = (stat.st_mtime_ns, stat.st_size)
            # The program goes on writing: a listed file may be gone by now, or a file may have
            # replaced its folder.
            except (FileNotFoundError, NotADirectoryError):
                continue
        return stamps


def _copy_below(source: Path, folder: Path) -> None:
    # Not by copytree, which makes the folder again if it was removed meanwhile.
    for at, _, names in os.walk(source, followlinks=True):
        to = folder / Path(at).relative_to(source)
        make_folder(to, within=folder)
        for name in names:
            shutil.copy2(Path(at, name), to / name)
