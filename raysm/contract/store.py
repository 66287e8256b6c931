"""Write files that are either whole or absent, make folders below a given one, and list files.

A file is written beside its final name and then renamed. The service uploads checkpoints while they are written, so
files there that are larger than a few lines also carry a digest of their own.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raysm.errors import InvalidConfig


def make_folder(folder: Path, within: Path | None) -> None:
    """Make ``folder``, and what lacks between it and ``within``.

    Args:
        folder: Is ``within``, or lies below it; may be there.
        within: Is never made; None makes all that lacks.

    Raises:
        FileNotFoundError: ``within`` does not exist; not checked if ``folder`` is ``within``.
        ValueError: ``folder`` does not lie there.
    """
    if within is None:
        folder.mkdir(parents=True, exist_ok=True)
        return
    for name in folder.relative_to(within).parts:
        within = within / name
        # One by one, and no look before: what is removed between the look and the making would be made after all.
        within.mkdir(exist_ok=True)


def files_below(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, in an order that is the same on every machine, or the one file that ``root`` is.

    Those behind a link are among them, of a file as of a folder, as ``aws s3 cp`` has it: a folder of data often is
    links to where there was room. Sockets and links that lead nowhere are none.

    Raises:
        OSError: A folder cannot be read for another reason than that it is closed to this user, or gone.
    """
    if root.is_file():
        yield root
    else:
        yield from _files_below(root, frozenset())


def _files_below(folder: Path, above: frozenset[tuple[int, int]]) -> Iterator[Path]:
    try:
        status = os.stat(folder)
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    # Removed meanwhile, or closed to this user, as os.walk has it. Of no other error: a folder that cannot be read for
    # want of file descriptors would be one without files, and what is missing there be removed elsewhere.
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    # A link to a folder that it lies in would be followed for ever.
    if (status.st_dev, status.st_ino) in above:
        return
    # Of most the folder itself says what they are; only a link has to be looked behind.
    yield from (Path(entry) for entry in entries if entry.is_file(follow_symlinks=False) or os.path.isfile(entry))
    for entry in entries:
        if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry)):
            yield from _files_below(Path(entry), above | {(status.st_dev, status.st_ino)})


CHUNK_BYTES = 1 << 20

PARTIAL = ".partial"
"""Suffix of a file that is still being written; readers pass over it."""

UNFINISHED = re.compile(rf"\..+\.[0-9a-f]{{8}}{re.escape(PARTIAL)}", re.DOTALL)
"""The names that ``replacing`` gives; a user's own ``download.partial`` does not match."""

OPEN = 0o666
"""Mode of a file that is no secret, less what the umask takes away, as of any file that a program makes."""


class Unfinished:
    """A new file beside ``path``, which takes its place once it is whole.

    Attributes:
        beside: The file that is written.
    """

    def __init__(self, path: Path, mode: int = OPEN, within: Path | None = None) -> None:
        """Make the file, and its folder; ``mode`` and ``within`` as in ``replacing``."""
        make_folder(path.parent, within)
        self._path = path
        self.beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
        # Not by tempfile, whose files are 0600 whatever the umask says: colleagues could not read a result.
        os.close(os.open(self.beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))

    def place(self) -> None:
        """Bring it to the disk and rename it: a crash leaves what was there before, or the new file."""
        self._settle()
        self.beside.replace(self._path)

    def place_first(self) -> None:
        """Bring it to the disk, and to its place unless another process was first, whose file stays."""
        self._settle()
        # No rename: it would replace a file that another process placed meanwhile.
        with contextlib.suppress(FileExistsError):
            os.link(self.beside, self._path)

    def _settle(self) -> None:
        # A read handle is enough: fsync is about the file, and the writer has closed its handle.
        with self.beside.open("rb") as written:
            os.fsync(written.fileno())

    def remove(self) -> None:
        """Remove it, unless it was placed."""
        self.beside.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing(path: Path, mode: int = OPEN, within: Path | None = None) -> Iterator[Path]:
    """Yield a new file beside ``path``; rename it to ``path`` at the end, or remove it if the body raised.

    Args:
        path: The file that is made or replaced.
        mode: Its mode, from the first byte on; of a secret ``0o600``. The umask may take bits away.
        within: A folder above it that is never made: without it there is a FileNotFoundError. None makes all that lack.
    """
    unfinished = Unfinished(path, mode, within)
    try:
        yield unfinished.beside
        unfinished.place()
    except BaseException:
        # On Ctrl-C too: it would never be removed otherwise.
        unfinished.remove()
        raise


@contextlib.contextmanager
def removed_if_torn(path: Path) -> Iterator[None]:
    """Remove ``path`` if the body, which writes it, raises; its readers know by its content whether it is whole.

    What kills the process leaves it torn.
    """
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed left below ``folder`` of files that they were writing."""
    for at, _, names in os.walk(folder):
        for name in names:
            if UNFINISHED.fullmatch(name):
                # Another user's file, or already gone.
                with contextlib.suppress(OSError):
                    Path(at, name).unlink()


def put(path: Path, content: bytes | str, mode: int = OPEN, within: Path | None = None) -> None:
    """Write ``content`` to ``path`` atomically; ``mode`` and ``within`` as in ``replacing``."""
    with replacing(path, mode, within) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)


def put_first(path: Path, content: bytes | str, mode: int = OPEN) -> None:
    """Write ``content`` to ``path`` atomically, unless it is there: of several processes the first one's stays."""
    unfinished = Unfinished(path, mode)
    try:
        unfinished.beside.write_bytes(content.encode() if isinstance(content, str) else content)
        unfinished.place_first()
    finally:
        unfinished.remove()


def read_json(path: Path) -> Any:
    """Read a JSON file from another source.

    Raises:
        InvalidConfig: It is absent, unreadable, not UTF-8, or not JSON; one line that names the file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidConfig(f"{path} is missing") from None
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError:
        raise InvalidConfig(f"{path} is nested too deeply to be a configuration file") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, and integers of more digits than Python reads
        raise InvalidConfig(f"{path} is not JSON: {error}") from error


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, hex, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
