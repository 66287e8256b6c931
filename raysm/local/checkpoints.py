"""Checkpoints that survive a job.

As with S3, every instance gets all of them before it starts; while the job runs, what instances write there goes to
the store, unfinished files too, and what the instance that wrote it removes is removed there. All instances share the
one store: two that write the same name overwrite each other, and the later one stays.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from raysm.contract.store import files_below, make_folder, replacing

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

    def __init__(self, folder: Path, within: Path | None = None) -> None:
        """Take the folder, which is made when it is first needed.

        Args:
            folder: Of this machine.
            within: A folder above it that is never made; None makes all that lacks.
        """
        self._folder, self._within = folder, within

    def fetch(self, folder: Path) -> None:
        """Copy all files."""
        make_folder(self._folder, self._within)
        _copy_below(self._folder, folder)

    def put(self, path: Path, name: str) -> None:
        """Copy one file."""
        with replacing(self._folder / name, within=self._within) as beside:
            shutil.copy2(path, beside)

    def remove(self, name: str) -> None:
        """Remove one file, and the folders that are empty without it: a file may come in their place."""
        path = self._folder / name
        # What was a folder of the name may be a file by now.
        with contextlib.suppress(NotADirectoryError):
            path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._folder:
                return
            try:
                folder.rmdir()
            except OSError:  # not empty, or not there
                return


class CheckpointSync:
    """Keeps a store and the instances' own checkpoint folders together."""

    def __init__(self, store: CheckpointStore, instances: Sequence[Path]) -> None:
        """Take the store, and the folder of each instance, which is there."""
        self._store = store
        self._seen: dict[Path, dict[str, Stamp]] = {path: {} for path in instances}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def restore(self) -> None:
        """Give each instance what the store holds; call it before they start."""
        first: Path | None = None
        for path in self._seen:
            if first is None:
                # Once: the others get copies of what one has, not a download each.
                self._store.fetch(path)
                first = path
            else:
                _copy_below(first, path)
            # What was brought is known already, and not taken for new by the next collection.
            self._seen[path] = _stamps(path)

    def follow(self, every_s: float) -> None:
        """Collect again and again, in a thread, until ``close``: a large checkpoint must not hold up a stop."""
        self._thread = threading.Thread(target=self._run, args=(every_s,), name="checkpoints", daemon=True)
        self._thread.start()

    def _run(self, every_s: float) -> None:
        while not self._ending.wait(every_s):
            self.collect()

    def close(self) -> None:
        """Collect for the last time; nothing of the instances runs any more.

        Raises:
            Exception: What the store raised last about something that it does not have even now.
        """
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self.collect()
        if self._error is not None:
            raise self._error

    def leave(self, folder: Path) -> None:
        """Look at the folder of an instance no more: what the store does not have of it by now is lost."""
        with self._lock:
            self._seen.pop(folder, None)

    def collect(self) -> None:
        """Take over what changed in the instances since the last call.

        What fails is tried again by the next call: a full disk may have room then.
        """
        with self._lock:
            self._collect()

    def _collect(self) -> None:
        self._error = None
        changes = [change for path in self._seen for change in self._changes(path)]
        # By time: where two instances wrote one name, the later one comes last, and stays.
        for stamp, path, name in sorted(changes):
            try:
                self._store.put(path / name, name)
            except FileNotFoundError:
                pass  # removed again meanwhile: the next call sees that
            except Exception as error:
                self._error = error
                continue
            self._seen[path][name] = stamp

    def _changes(self, path: Path) -> list[tuple[Stamp, Path, str]]:
        """Return what is new or changed below ``path`` with its stamp; carry out what was removed."""
        before = self._seen[path]
        try:
            now = _stamps(path)
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


def _copy_below(source: Path, folder: Path) -> None:
    """Copy what lies in ``source`` into ``folder``, which is there."""
    # Not by copytree, which makes the folder, and all above it, where it was removed meanwhile.
    for at, _, names in os.walk(source, followlinks=True):
        to = folder / Path(at).relative_to(source)
        make_folder(to, within=folder)
        for name in names:
            shutil.copy2(Path(at, name), to / name)


def _stamps(folder: Path) -> dict[str, Stamp]:
    stamps = {}
    for path in files_below(folder):
        try:
            stat = path.stat()
            stamps[path.relative_to(folder).as_posix()] = (stat.st_mtime_ns, stat.st_size)
        # The program goes on writing: what was listed may be gone by now, or a file stand where its folder was.
        except (FileNotFoundError, NotADirectoryError):
            continue
    return stamps
