"""Links that an instance made to paths below its ``/opt/ml``, which on this machine lies elsewhere.

What flows in is the folder of an instance that has ended, what changes are its links: so that what they lead to is
found from here, as the instance found it.
"""

import contextlib
import os
from pathlib import Path

__all__ = ["relink"]

INPUT = "input"
"""Below the base folder: nothing is collected of it, and it may hold a million files."""


def relink(base: Path, inside: Path) -> None:
    """Have absolute links below ``base`` lead to where it lies, which the instance called ``inside``."""
    for at, folders, names in os.walk(base):
        if Path(at) == base:
            folders[:] = [name for name in folders if name != INPUT]
        for path in (Path(at, name) for name in (*folders, *names)):
            if not path.is_symlink():
                continue
            target = path.readlink()
            if target.is_relative_to(inside) and ".." not in target.parts:
                # Of a container's root, where this process is not: then it stays, and leads nowhere.
                with contextlib.suppress(OSError):
                    path.unlink()
                    path.symlink_to(base / target.relative_to(inside))
