"""Short-lived folders with short names, whose owner holds a lock on them.

What a killed owner left is swept when the next folder is made: the kernel released its lock. The lock is on the folder
itself (``flock``), so that there is no moment at which a folder lives without one that a sweeper could mistake.
"""

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

__all__ = ["PREFIX", "Scratch", "sweep"]

PREFIX = "raysm-"


def _parent() -> Path:
    # Sockets lie in there, whose paths have at most 104 characters on macOS, where gettempdir() alone takes half.
    short = Path("/tmp")
    return short if os.access(short, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


class Scratch:
    """A folder that lives as long as this object, or this process; a context manager.

    Attributes:
        path: The folder, readable by its owner alone.
    """

    def __init__(self, parent: Path | None = None, prefix: str = PREFIX) -> None:
        """Make it, and sweep dead ones.

        Args:
            parent: Where; None is the system's folder for temporary files.
            prefix: How its name begins; of those that begin so, the dead ones are swept.
        """
        parent = parent or _parent()
        sweep(parent, prefix)
        self._lock: int | None = None
        # A sweep of somebody else's may find the new folder before it is locked here, and remove it.
        while self._lock is None:
            self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
            self._lock = _lock(self.path)

    def close(self) -> None:
        """Remove it; harmless when repeated."""
        if self._lock is None:
            return
        # While it is still locked: no sweep comes in between.
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _lock(folder: Path) -> int | None:
    """Lock ``folder`` and return the descriptor; None if somebody else has it, or removed it meanwhile."""
    import fcntl  # absent on Windows, where this module has to be importable for the words that refuse it

    try:
        # A link in a folder that all may write to can be anybody's, and lead anywhere.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.lstat(folder)):
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


def sweep(parent: Path, prefix: str = PREFIX) -> list[Path]:
    """Remove the folders below ``parent`` whose owners died; return them.

    Only folders of this user, with this prefix, that nobody has locked; links in them are removed, not followed.
    """
    swept = []
    # The whole name, as __init__ makes it: a user's own "raysm-notes" begins like ours.
    ours = re.compile(re.escape(prefix) + r"\d+-[a-z0-9_]{8}")
    for folder in parent.iterdir():
        with contextlib.suppress(OSError):
            if not ours.fullmatch(folder.name) or os.lstat(folder).st_uid != os.getuid():
                continue
            handle = _lock(folder)
            if handle is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(handle)
                swept.append(folder)
    return swept
