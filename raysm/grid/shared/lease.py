"""The lease that all machines share: who may send jobs of a grid, told by one object of S3.

What flows in are wishes to write the head, what flows out is that it is written, or that somebody else has the grid. No
clock of one machine is compared with that of another: the holder counts the seconds since its own last write, and who
wants to take over asks S3 how old that write is.
"""

import dataclasses
import logging
import secrets
from collections.abc import Callable
from typing import Any

from raysm.client.conditional import Outdated, Versioned
from raysm.errors import RaysmError, ServiceError
from raysm.grid.database import LeaseLost
from raysm.grid.shared.head import Head, read_head
from raysm.grid.shared.objects import Objects

__all__ = ["HEAD", "LEASE_S", "RENEW_S", "SURE_S", "SharedLease", "Unreachable"]

HEAD = "head.json"
"""Name of the object."""

RENEW_S = 10.0
"""Seconds after which the holder writes again: as often as a controller makes a step in any case."""

SURE_S = 20.0
"""Seconds since its last write for which the holder sends jobs and stops them; then it has to hear of S3 first."""

LEASE_S = 35.0
"""Seconds of silence after which another one may take over. S3 tells moments to the second, a Create that was begun at
the last moment takes a few: 15 of them lie between the two."""


_log = logging.getLogger("raysm")


class Unreachable(RaysmError):
    """The lease cannot be renewed: nothing may be sent until it is; nobody has taken it yet, as far as is known."""


class SharedLease:
    """The lease of one controller.

    Attributes:
        head: As it was last written or read here.
    """

    head: Head

    def __init__(self, objects: Objects, owner: str, elapsed: Callable[[], float]) -> None:
        """Take where the head lies, whose lease it is, and a clock that never runs slow; nothing is read yet."""
        self._objects = objects
        self._owner = owner
        self._holder = secrets.token_hex(8)
        self._elapsed = elapsed
        self._version: str | None = None
        self._written_s = 0.0
        # In memory, and with each try: a write whose answer was lost may be there.
        self._serial = 0

    @property
    def silence_s(self) -> float:
        """Seconds since the lease was last sure."""
        return self._elapsed() - self._written_s

    @property
    def holder(self) -> str:
        """What tells this controller from all others in the head."""
        return self._holder

    def take(self, sleep: Callable[[float], Any] | None = None, is_gone: Callable[[Head], bool] | None = None) -> None:
        """Become the grid's one controller on all machines.

        Args:
            sleep: How to wait for the lease of a controller that may be gone; None does not wait.
            is_gone: Whether the controller that wrote a head is known to have ended; None knows of none.

        Raises:
            LeaseLost: Another one has it.
            ServiceError: S3 does not answer.
        """
        read = self._objects.read(HEAD)
        if read is None:
            self._write(Head(run="", owner=self._owner, holder=self._holder, fence=1, is_held=True, serial=0), None)
            return
        head = read_head(read.content)
        if head.is_held and not (is_gone is not None and is_gone(head)):
            self._outwait(read, head, sleep)
        self._serial = head.serial
        mine: dict[str, Any] = {"owner": self._owner, "holder": self._holder, "fence": head.fence + 1, "is_held": True}
        self._write(dataclasses.replace(head, **mine), read.version)

    def _outwait(self, read: Versioned, head: Head, sleep: Callable[[float], Any] | None) -> None:
        """Return once the time of a head's holder is over; who is alive writes meanwhile."""
        refusal = LeaseLost(f"the grid in {self._objects.place} is run by {head.owner}; it lets go when it ends")
        # Waited for here at most so long: a server that does not tell its own moment would never let anybody in.
        left_s = LEASE_S - read.age_s
        if left_s > 0 and sleep is not None:
            _log.warning("%s; whether it is gone shows within %.0f s", refusal, left_s)
        while left_s > 0:
            if sleep is None:
                raise refusal
            pause_s = min(RENEW_S / 2, left_s)
            sleep(pause_s)
            left_s -= pause_s
            again = self._objects.read(HEAD)
            if again is None or again.version != read.version:
                raise refusal

    def write(self, **changes: Any) -> None:
        """Renew it, with what is new in the head.

        Raises:
            LeaseLost: Another one has taken it.
            ServiceError: S3 does not answer; whether it is written is not known.
        """
        self._write(dataclasses.replace(self.head, **changes), self._version)

    def release(self, **changes: Any) -> None:
        """Let another one take it at once; as ``write``."""
        self.write(is_held=False, **changes)

    def _write(self, head: Head, version: str | None) -> None:
        began_s = self._elapsed()
        self._serial += 1
        head = dataclasses.replace(head, serial=self._serial)
        try:
            version = self._objects.replace(HEAD, head.content(), version)
        except Outdated:
            version = self._settled(head)
        self.head, self._version = head, version
        # Since before the call: on its way it may have been written at any moment.
        self._written_s = began_s

    def _settled(self, head: Head) -> str:
        """Return the version of a head that was refused, although nobody but this one has written."""
        read = self._objects.read(HEAD)
        current = None if read is None else read_head(read.content)
        if read is None or current is None or (current.holder, current.fence) != (head.holder, head.fence):
            owner = "nobody" if current is None else current.owner
            raise LeaseLost(f"the grid in {self._objects.place} is run by {owner}: this process lets go of it")
        if current == head:
            return read.version
        # An earlier write of this one's was carried out, and its answer lost: it is the one to write over.
        try:
            return self._objects.replace(HEAD, head.content(), read.version)
        except Outdated as error:
            raise ServiceError(f"{self._objects.place} is written by several at once", is_transient=True) from error
