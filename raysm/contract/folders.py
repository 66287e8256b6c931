"""Folders that are made below one that has to be there, and the files that are in one.

``mkdir(parents=True)`` makes whatever lacks, also what somebody has just removed, or moved away to make another in its
place: who writes below a folder that is not his own to make names the one above which he makes nothing.
"""

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["files_below", "make_folder"]


def make_folder(folder: Path, within: Path | None) -> None:
    """Make ``folder``, and what lacks between it and ``within``.

    Args:
        folder: Is ``within``, or lies below it; may be there.
        within: Is never made; None makes all that lacks.

    Raises:
        FileNotFoundError: ``within`` is not there; where ``folder`` is ``within``, nobody looks.
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
