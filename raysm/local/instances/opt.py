"""An instance's own ``/opt/ml``, without making anything in this machine's ``/opt``.

A folder of the instance is mounted over ``/opt``. It has the instance's ``ml`` and this machine's
other entries.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from raysm.core.protocol.store import make_folder

Mount = tuple[str, str, str, str]
"""Kind (``bind``, ``bind_if_possible``, ``bind_readonly``, ``noexec``, ``overlay``, ``mkdir``, or a
file system's type), source, target, options."""

OPT = Path("/opt")


def own_opt(opt: Path, staging: Path, ml: Sequence[Mount]) -> list[Mount]:
    """Make the folder ``staging``; return the mounts that replace ``opt`` by it, ``ml`` among them."""
    staging.mkdir()
    mounts: list[Mount] = []
    for entry in sorted(entry for entry in opt.iterdir() if entry.name != "ml"):
        target = staging / entry.name
        if entry.is_symlink():
            # mount would follow the link.
            target.symlink_to(os.readlink(entry))
            continue
        make_mount_point(entry, target, within=staging)
        # An entry that cannot be mounted, such as a broken network drive, must not keep every job
        # from starting.
        mounts.append(("bind_if_possible", str(entry), str(target), ""))
    (staging / "ml").mkdir()
    return [*mounts, *ml, ("bind", str(staging), str(opt), "")]


def make_mount_point(source: Path, target: Path, within: Path) -> None:
    """Make ``target`` a folder or a file, as ``source`` is, below the existing folder ``within``."""
    if source.is_dir():
        make_folder(target, within)
    else:
        make_folder(target.parent, within)
        target.touch()
