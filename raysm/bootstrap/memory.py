"""The peak of this instance's memory, sampled once a second; see ``PeakMemory`` for what it counts."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from raysm.bootstrap.children import descendants

__all__ = ["PeakMemory", "used_bytes"]

INTERVAL_S = 1.0
STATUS_BYTES = 8192
"""More than ``/proc/PID/status`` has."""


class PeakMemory:
    """The largest sum of the memory of this process and its descendants that a once-a-second look has seen.

    Counted are the anonymous memory of every process (what it allocated; pages that a fork shares count in each), and
    once the largest shared memory that any one of them maps, which is Ray's object store. Not counted are pages of
    mapped files and the rest of the page cache, because the kernel takes them back when memory is wanted: a matrix
    that is mapped, not read, costs nothing here. A peak of less than a second may be missed.
    """

    def __init__(self, look: Callable[[], int] | None = None) -> None:
        """Begin at zero; ``look`` returns the bytes in use now, None is the sum described above."""
        self._look = look or (lambda: used_bytes([os.getpid(), *descendants(os.getpid())]))
        self.bytes = 0
        """The peak so far; 0 where the system does not say (macOS)."""

    def sample(self) -> None:
        """Look once; a look that fails is passed over, because no figure is worth a job."""
        with contextlib.suppress(Exception):
            self.bytes = max(self.bytes, self._look())

    async def run(self) -> None:
        """Look every second until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(INTERVAL_S)


def used_bytes(processes: Iterable[int], root: Path = Path("/")) -> int:
    """Return the anonymous memory of ``processes`` and the largest shared memory that one of them maps."""
    private = 0
    shared = 0
    for process in processes:
        try:
            # As bytes: the kernel cuts a process's name at 15 of them, in the middle of a letter too.
            with open(f"{root}/proc/{process}/status", "rb", buffering=0) as file:
                status = file.read(STATUS_BYTES)
        except OSError:
            continue  # it has ended meanwhile
        private += _kib(status, b"\nRssAnon:") * 1024
        shared = max(shared, _kib(status, b"\nRssShmem:") * 1024)
    return private + shared


def _kib(status: bytes, name: bytes) -> int:
    value = status.partition(name)[2].split(None, 1)[:1]
    return int(value[0]) if value else 0
