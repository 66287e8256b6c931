"""Files that are either whole or absent: written beside, then renamed.

Where the service takes over all files while they are written, among the checkpoints, whatever is larger than a few
lines says by a digest of its own whether it is whole, and gets no other name meanwhile.
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

from raysm.contract.folders import make_folder
from raysm.errors import InvalidConfig

__all__ = [
    "OPEN",
    "PARTIAL",
    "Unfinished",
    "put",
    "put_first",
    "read_json",
    "remove_unfinished",
    "removed_if_torn",
    "replacing",
    "sha256_of",
]

CHUNK_BYTES = 1 << 20

PARTIAL = ".partial"
"""Suffix of a file that is still being written; readers pass over it."""

UNFINISHED = re.compile(rf"\..+\.[0-9a-f]{{8}}{re.escape(PARTIAL)}", re.DOTALL)
"""The whole names that ``replacing`` gives: a user's own ``download.partial`` is none."""

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
        # No rename: it would replace what came there since anybody looked.
        with contextlib.suppress(FileExistsError):
            os.link(self.beside, self._path)

    def _settle(self) -> None:
        # A handle that only reads will do: what is synchronised is the file, and whoever wrote it has closed his.
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
        # A stop and Ctrl-C too: nobody else would ever remove it.
        unfinished.remove()
        raise


@contextlib.contextmanager
def removed_if_torn(path: Path) -> Iterator[None]:
    """Remove ``path`` if the body, which writes it, raises; whoever reads it knows by its content whether it is whole.

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
                # Somebody else's, or gone meanwhile: nobody reads it.
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
    """Read a JSON file that somebody else wrote.

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
