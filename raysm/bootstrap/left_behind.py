"""Files that user code left in its working folder, which end with the instance."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from raysm.bootstrap.instance import Instance
from raysm.contract.names import STATE

__all__ = ["warn_of_lost_files"]

LISTED = 5
"""So many files are named; of more, their number is told."""

CACHE = "__pycache__"


def warn_of_lost_files(instance: Instance, since_s: float) -> str | None:
    """Return a warning that names the files that the script left in its working folder; None where it left none.

    Args:
        instance: This instance, whose user code has ended.
        since_s: When the instance began, seconds since the epoch: older files are the source's own.
    """
    workload, paths = instance.request.workload, instance.environment.paths
    # With in_state it is a link to the state folder, which is kept.
    names = [] if paths.working.is_symlink() else list(_written_since(paths.working, since_s))
    if workload.entry_script is not None:
        names += _written_since(instance.payload.source, since_s)
    if not names:
        return None
    listed = ", ".join(sorted(names)[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")
    kept = ["results to $SM_MODEL_DIR"]
    if instance.environment.has_checkpoints:
        kept.append(f"checkpoints to ${STATE}")
    in_state = "; or use --in-state" if hasattr(workload, "in_state") and instance.environment.has_checkpoints else ""
    return (
        f"warning: files in the working folder of {instance.name} are lost now: {listed}; write "
        f"{' and '.join(kept)}{in_state}"
    )


def _written_since(folder: Path, since_s: float) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != CACHE]
        for name in files:
            path = Path(root, name)
            status = path.lstat()
            # A link leads to the source or to a channel, of which nothing is lost.
            if stat.S_ISREG(status.st_mode) and status.st_mtime >= since_s:
                yield path.relative_to(folder).as_posix()
