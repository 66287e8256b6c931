"""Files and folders that other users of the machine cannot read."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from raysm.contract.paths import Paths
from raysm.contract.store import put

__all__ = ["private_tempdir", "private_folder", "private_token"]


def private_folder(paths: Paths) -> Path:
    """Make a folder that others cannot read, among this instance's own things."""
    paths.scratch.mkdir(parents=True, exist_ok=True)
    # mkdtemp makes it 0700 at once: a chmod afterwards leaves a moment for others.
    return Path(tempfile.mkdtemp(prefix="raysm-", dir=paths.scratch))


@contextlib.contextmanager
def private_tempdir(paths: Paths) -> Iterator[Path]:
    """Yield a private folder that is gone afterwards."""
    folder = private_folder(paths)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def private_token(token_file: Path, paths: Paths) -> Path:
    """Return a file of the token that only its owner can read.

    A download from S3 forgets modes, and a channel may be read-only or owned by somebody else: then it is a copy.
    """
    with contextlib.suppress(OSError):
        if _is_private(token_file):
            return token_file
        token_file.chmod(0o600)
        if _is_private(token_file):
            return token_file
    copy = private_folder(paths) / token_file.name
    put(copy, token_file.read_bytes(), mode=0o600)
    return copy


def _is_private(path: Path) -> bool:
    status = path.stat()
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
