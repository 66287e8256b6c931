"""The files of the server's records: written whole, and written again later if the disk was full."""

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

from raysm.contract.store import put

__all__ = ["RecordFiles"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Unwritten:
    title: str
    content: str
    within: Path


class RecordFiles:
    """Writes the files of records; every method may be called from any thread."""

    def __init__(self) -> None:
        """Begin with nothing to write."""
        self._lock = threading.Lock()
        self._unwritten: dict[Path, _Unwritten] = {}

    def write(self, path: Path, content: str, within: Path) -> None:
        """Write ``content`` to ``path``, readable by this user only.

        Args:
            path: Made or replaced.
            content: All of it.
            within: A folder above ``path`` that is never made.

        Raises:
            OSError: The disk is full, or ``within`` does not exist.
        """
        with self._lock:
            put(path, content, mode=0o600, within=within)
            self._unwritten.pop(path, None)

    def write_or_retry(self, title: str, path: Path, content: str, within: Path) -> None:
        """Write ``content`` as ``write`` does; if that fails, log it and have ``retry`` write it.

        Args:
            title: What the record is of, for the log: ``training job a``.
            path: As in ``write``, and so the others.
            content: All of it.
            within: A folder above ``path``.
        """
        try:
            self.write(path, content, within)
        except FileNotFoundError as error:
            # The folder was deleted, and must not come back.
            LOG.warning("the record of the %s was not written: %s", title, error)
        except OSError as error:
            LOG.warning("the record of the %s was not written, and will be tried again: %s", title, error)
            with self._lock:
                self._unwritten[path] = _Unwritten(title, content, within)

    def forget(self, folder: Path) -> None:
        """Do not write the files below ``folder`` again: their record was deleted."""
        with self._lock:
            self._unwritten = {path: one for path, one in self._unwritten.items() if not path.is_relative_to(folder)}

    def retry(self) -> None:
        """Write the files again that could not be written."""
        with self._lock:
            for path, one in list(self._unwritten.items()):
                try:
                    put(path, one.content, mode=0o600, within=one.within)
                except FileNotFoundError:
                    pass
                except OSError:
                    continue
                else:
                    # The first warning may be missing: the log is usually on the same disk.
                    LOG.warning("the record of the %s, which a full disk had refused, is written now", one.title)
                del self._unwritten[path]

    def unwritten(self) -> list[str]:
        """Return what the records are of that could not be written so far."""
        with self._lock:
            return [one.title for one in self._unwritten.values()]
