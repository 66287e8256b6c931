"""Checkpoints that survive a job: a folder of this machine plays the checkpoint URI.

As with S3, every instance gets the whole folder before it starts; while the job runs, what instances write there goes
to the folder, and what the instance that wrote it removes is removed there. All instances share the one folder: two
that write the same name overwrite each other, and the later one stays.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from raysm.contract.store import PARTIAL, replacing

__all__ = ["CheckpointSync"]

Stamp: TypeAlias = tuple[int, int]
"""Modification time in nanoseconds, and size."""


class CheckpointSync:
    """Keeps ``folder`` and the instances' own checkpoint folders together."""

    def __init__(self, folder: Path, instances: Sequence[Path]) -> None:
        """Take the folder that survives, and the folder of each instance."""
        self._folder = folder
        self._seen: dict[Path, Mapping[str, Stamp]] = {path: {} for path in instances}

    def restore(self) -> None:
        """Give each instance what the folder holds; call it before they start."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._seen:
            shutil.copytree(self._folder, path, dirs_exist_ok=True)
            self._seen[path] = _stamps(path)

    def collect(self) -> None:
        """Take over what changed in the instances since the last call."""
        changes = [change for path in self._seen for change in self._changes(path)]
        for _, path, name in sorted(changes):
            try:
                with replacing(self._folder / name) as beside:
                    shutil.copy2(path / name, beside)
            except FileNotFoundError:
                continue  # removed again meanwhile: the next call sees that

    def _changes(self, path: Path) -> list[tuple[int, Path, str]]:
        """Return what is new or changed below ``path`` with its time; carry out what was removed."""
        before, now = self._seen[path], _stamps(path)
        self._seen[path] = now
        for name in before.keys() - now.keys():
            (self._folder / name).unlink(missing_ok=True)
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
