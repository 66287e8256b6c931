"""The user's own files that a job was linked to: whether something changed them while it ran.

Where nothing can be mounted, a script that opens a linked file for writing changes the user's own: that is not to
happen in silence. What flows in are linked channels, what flows out are sentences for the job's log.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from raysm.contract.store import files_below
from raysm.local.job_spec import Channel

__all__ = ["Originals"]

Stamp: TypeAlias = tuple[int, int, int]
"""Inode, modification time in nanoseconds, size."""

MOST_SHOWN = 5
"""Files that a sentence names; the others it counts."""


class Originals:
    """The files of linked channels, as they were."""

    def __init__(self, channels: Iterable[Channel]) -> None:
        """Look at every file of the channels."""
        self._before = {
            channel.name: {path: _stamp(path) for path in files_below(channel.source)} for channel in channels
        }

    def complaints(self) -> list[str]:
        """Return a sentence for each channel of which something was changed or removed since."""
        return [
            f"raysm: the input of channel {name!r} was changed while the job ran, and it is linked, not copied: "
            f"{_shown(changed)}; a result that read it may be of either content. Write to SM_MODEL_DIR instead"
            for name, files in self._before.items()
            if (changed := [path for path, stamp in files.items() if _stamp(path) != stamp])
        ]


def _stamp(path: Path) -> Stamp | None:
    try:
        status = os.stat(path)
    # Removed, or not to be seen any more: it differs from what was there.
    except OSError:
        return None
    # The inode too: a file that was replaced by rename may bring its time and size along.
    return status.st_ino, status.st_mtime_ns, status.st_size


def _shown(paths: list[Path]) -> str:
    more = f" and {len(paths) - MOST_SHOWN} more" if len(paths) > MOST_SHOWN else ""
    return ", ".join(str(path) for path in sorted(paths)[:MOST_SHOWN]) + more
