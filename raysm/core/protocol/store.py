"""Write files that are either whole or absent, make folders below a given one, and list files.

A file is written beside its final name and then renamed. The service uploads checkpoints while they
are written, so files there that are larger than a few lines also carry a digest of their own.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from raysm.errors import InvalidConfig


def make_folder(folder: Path, within: Path | None) -> None:
    """Create ``folder`` and its missing parents, but never ``within``, a parent that must exist."""
    if within is None:
        folder.mkdir(parents=True, exist_ok=True)
        return
    for name in folder.relative_to(within).parts:
        within = within / name
        # One by one without a check before: a folder that was removed meanwhile must not be created
        # again.
        within.mkdir(exist_ok=True)


def files_below(root: Path, may_follow: Callable[[Path], bool] | None = None) -> Iterator[Path]:
    """Yield the files below a folder, in the same order on every machine.

    If ``root`` is a file, yield it.

    Links to files and folders are followed, as ``aws s3 cp`` does, if ``may_follow`` allows it.
    Sockets and broken links are skipped.

    Raises:
        OSError: A folder cannot be read, although it exists and this user may read it.
    """
    if root.is_file():
        yield root
    else:
        yield from _files_below(root, frozenset(), may_follow)


def _files_below(
    folder: Path, above: frozenset[tuple[int, int]], may_follow: Callable[[Path], bool] | None
) -> Iterator[Path]:
    try:
        status = os.stat(folder)
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    # os.walk ignores these errors too. Others are raised: a folder that cannot be read for lack of
    # file descriptors would look empty, and a caller might remove the copies of its files.
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    # Otherwise a link to a parent folder would be followed forever.
    if (status.st_dev, status.st_ino) in above:
        return
    if may_follow is not None:
        entries = [entry for entry in entries if not entry.is_symlink() or may_follow(Path(entry))]
    yield from (
        Path(entry)
        for entry in entries
        if entry.is_file(follow_symlinks=False) or os.path.isfile(entry)
    )
    for entry in entries:
        if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry)):
            yield from _files_below(
                Path(entry), above | {(status.st_dev, status.st_ino)}, may_follow
            )


PARTIAL = ".partial"
"""Suffix of a file that is still being written; readers skip it."""
UNFINISHED = re.compile(rf"\..+\.[0-9a-f]{{8}}{re.escape(PARTIAL)}", re.DOTALL)
"""The names that ``replacing`` chooses; a user's own ``download.partial`` does not match."""
LONG_NAME = 200
"""Bytes of a name to which a suffix of ours still fits: file systems take 255."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
OPEN = 0o666
"""Mode of a file that is not secret, before the umask."""


def is_unfinished(name: str) -> bool:
    """Return whether ``replacing`` has not yet renamed the file ``name``.

    ``name`` may be below folders.
    """
    return UNFINISHED.fullmatch(name.rpartition("/")[2]) is not None


class Unfinished:
    def __init__(self, path: Path, mode: int = OPEN, within: Path | None = None) -> None:
        make_folder(path.parent, within)
        self._path = path
        # By characters, of at most four bytes each: macOS refuses names with a part of one.
        name = (
            path.name if len(os.fsencode(path.name)) <= LONG_NAME else path.name[: LONG_NAME // 4]
        )
        self.beside = path.with_name(f".{name}.{secrets.token_hex(4)}{PARTIAL}")
        # tempfile would set the mode 0600, so that colleagues could not read a result.
        os.close(os.open(self.beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))

    def place(self) -> None:
        """Flush it to the disk and rename it: a crash leaves the old file or the new one."""
        self.settle()
        self.beside.replace(self._path)

    def settle(self) -> None:
        with self.beside.open("rb") as written:
            os.fsync(written.fileno())

    def remove(self) -> None:
        self.beside.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing(path: Path, mode: int = OPEN, within: Path | None = None) -> Iterator[Path]:
    """Yield a new file beside ``path``; rename it to ``path`` at the end.

    If the body raised, remove it.

    The mode holds from the first byte on, before the umask; ``within`` as in ``make_folder``.
    """
    unfinished = Unfinished(path, mode, within)
    try:
        yield unfinished.beside
        unfinished.place()
    except BaseException as error:
        unfinished.remove()
        # A write that fails has no name, and its reader would look for the cause on another disk.
        if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def removed_if_torn(path: Path) -> Iterator[None]:
    """Remove ``path`` if the body, which writes it, raises.

    A killed process leaves it torn, so readers must check.
    """
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path) -> None:
    for at, _, names in os.walk(folder):
        for name in names:
            if is_unfinished(name):
                # Another user's file, or already gone.
                with contextlib.suppress(OSError):
                    Path(at, name).unlink()


def put(path: Path, content: bytes | str, mode: int = OPEN, within: Path | None = None) -> None:
    """Write ``content`` to ``path`` atomically; ``mode`` and ``within`` as in ``replacing``."""
    with replacing(path, mode, within) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)


def put_first(path: Path, content: bytes | str, mode: int = OPEN) -> None:
    """Write ``content`` to ``path`` atomically, unless it exists: the first process wins."""
    unfinished = Unfinished(path, mode)
    try:
        unfinished.beside.write_bytes(content.encode() if isinstance(content, str) else content)
        unfinished.settle()
        # A rename would replace a file that another process has placed meanwhile.
        with contextlib.suppress(FileExistsError):
            os.link(unfinished.beside, path)
    finally:
        unfinished.remove()


def read_json(path: Path) -> Any:
    """Read a JSON file from another source.

    Raises:
        InvalidConfig: It is absent, unreadable, not UTF-8, or not JSON.
    """
    try:
        # In a folder that others may write, it could be a pipe, whose reader waits for ever.
        if path.exists() and not path.is_file():
            raise InvalidConfig(f"{path} is not a file")
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidConfig(f"{path} is missing") from None
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError:
        raise InvalidConfig(f"{path} is nested too deeply to be a configuration file") from None
    # JSONDecodeError, UnicodeDecodeError, and integers of more digits than Python reads.
    except ValueError as error:
        raise InvalidConfig(f"{path} is not JSON: {error}") from error


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
