"""Writing large files: at a place of their own, and a full disk said for what it is."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from raysm.errors import NoRoom

__all__ = ["full_disk_is_no_room", "settle", "write_at"]


@contextlib.contextmanager
def full_disk_is_no_room(path: Path, activity: str = "") -> Iterator[None]:
    """Say ``NoRoom`` of a disk that becomes full while the block writes.

    Args:
        path: The file.
        activity: What the disk became full of, ``rows 0 to 9 were recorded``; empty is that the file was written.

    Raises:
        NoRoom: The disk became full, or the user's quota was used up, which is the same to him.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoRoom(f"the disk of {path.parent} became full while {activity or f'{path.name} was written'}") from error


def write_at(descriptor: int, position: int, data: memoryview) -> None:
    """Write all of ``data`` at a byte of an open file, without the file's own position: several threads may."""
    while data:
        # A signal, or a disk that is nearly full, may end a write early.
        count = os.pwrite(descriptor, data, position)
        data, position = data[count:], position + count


def settle(descriptor: int, start: int, stop: int) -> None:
    """Bring these bytes of an open file to the disk, and let them leave the page cache: nobody reads them soon."""
    # macOS has neither.
    if hasattr(os, "posix_fadvise"):
        # First: pages that are not on the disk yet stay in the cache, whatever is advised.
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)
