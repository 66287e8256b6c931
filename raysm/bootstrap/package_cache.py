"""Packages that pip brought, kept where a warm pool keeps what its next job may want.

What flows in are a folder that outlives the job and what was asked for, what flows out is a folder of packages that an
earlier job on this instance installed for the very same. Nothing in it is trusted to be whole: a file that has changed,
is missing or was added since makes it worthless. The folder is no wall: a job of the same role could write both the
packages and the list.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raysm.bootstrap.log import remark
from raysm.contract.store import put, read_json
from raysm.errors import InvalidConfig

__all__ = ["PackageCache", "key_of"]

OWN = "raysm-packages"
"""Its folder in the warm pool's, which user code may use as well."""
PARTIAL = "partial-"
FILES = "files.json"
SITE = "site"
MOST = 3
"""Most sets of packages: the newest; torch alone may have gigabytes."""


def key_of(request: Any) -> str:
    """Return a name for what pip would install: equal names, equal packages.

    Args:
        request: JSON of all that was asked for. Counted with it are this Python, the platform, and what the image has,
            because pip brings only what is missing there.
    """
    image = sorted({f"{item.name}=={item.version}" for item in importlib.metadata.distributions()})
    whole = [request, sys.version, sysconfig.get_platform(), sys.prefix, image]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]


class PackageCache:
    """The sets of packages of one instance's warm pool."""

    def __init__(self, folder: Path) -> None:
        """Use a folder that outlives the job."""
        self._folder = folder / OWN

    def find(self, key: str) -> Path | None:
        """Return the packages that were kept under ``key``, if they are as they were then; else forget them."""
        entry = self._folder / key
        try:
            expected = read_json(entry / FILES)
        except InvalidConfig:
            return None
        if expected == _state_of(entry / SITE):
            with contextlib.suppress(OSError):
                os.utime(entry / FILES)  # the oldest is the one that was not used for longest
            return entry / SITE
        remark("packages of an earlier job of this warm pool were changed since; installing them anew")
        shutil.rmtree(entry, ignore_errors=True)
        return None

    @contextlib.contextmanager
    def fill(self, key: str) -> Iterator[Path]:
        """Yield a folder to install into; without an error it is kept under ``key``.

        Raises:
            OSError: The folder cannot be written.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Before pip brings the new set, and not after: gigabytes of old ones may lie where it needs room.
        self._make_room()
        entry = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=self._folder))
        try:
            yield entry / SITE
            # Last, and the rename after it: an entry without its list is none.
            put(entry / FILES, json.dumps(_state_of(entry / SITE)))
            # A rename replaces no folder that has something in it.
            shutil.rmtree(self._folder / key, ignore_errors=True)
            entry.rename(self._folder / key)
        # A stop too: it ends pip in the middle, and what is there by then is not whole.
        except BaseException:
            shutil.rmtree(entry, ignore_errors=True)
            raise

    def packages(self, key: str) -> Path:
        """Return where the packages of ``key`` lie once they are kept."""
        return self._folder / key / SITE

    def _make_room(self) -> None:
        """Remove what a job that was killed has left, and the sets that were not used for longest."""
        entries = list(self._folder.iterdir())
        whole = [entry for entry in entries if not entry.name.startswith(PARTIAL) and (entry / FILES).exists()]
        whole.sort(key=lambda entry: (entry / FILES).stat().st_mtime, reverse=True)
        # One less than are kept: the new set comes on top.
        for entry in set(entries) - set(whole[: MOST - 1]):
            shutil.rmtree(entry, ignore_errors=True)


def _state_of(site: Path) -> dict[str, list[int]]:
    """Return size and time of change of every file; not of bytecode, which Python writes as it likes, and checks."""
    state = {}
    for folder, subfolders, names in os.walk(site):
        subfolders[:] = [name for name in subfolders if name != "__pycache__"]
        for name in names:
            status = os.stat(os.path.join(folder, name), follow_symlinks=False)
            state[os.path.relpath(os.path.join(folder, name), site)] = [status.st_size, status.st_mtime_ns]
    return state
