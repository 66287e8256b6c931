"""The lease that all machines share: one object in S3 names the current copy of a grid's store, and its controller.

Each write of that object is conditional on what the writer has read (``If-Match``), so of two machines one learns that
it was late. Clocks of different machines are never compared: the holder counts the seconds since its own last write,
and a machine that wants to take over asks S3 for the age of that write.
"""

import dataclasses
import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raysm.client.service import Service
from raysm.client.storage.s3 import Outdated, Storage, Versioned, read_versioned, write_versioned
from raysm.errors import InvalidConfig, RaysmError, ServiceError
from raysm.grid.database import LeaseLost

HEAD = "head.json"
"""Name of the object that holds the lease."""

FORMAT = 2
"""Format of the object; raysm reads no other."""

RENEW_S = 10.0
"""Seconds after which the holder renews the lease, about once per step."""

SURE_S = 20.0
"""Seconds since its last write for which the holder sends and stops jobs; after that it renews the lease first."""

LEASE_S = 35.0
"""Seconds without a write after which another machine may take over. This is 15 seconds more than SURE_S: S3's times
are whole seconds, and a Create that starts at the last moment takes a few."""

_log = logging.getLogger("raysm")


class Objects:
    """A folder in S3 that several machines write to. Every call may raise ``ServiceError``.

    Attributes:
        place: The folder's URI, for messages.
    """

    def __init__(self, service: Service, place: str, kms_key: str | None = None) -> None:
        """Use the folder with this URI, without a final slash, and this key to encrypt objects."""
        self.place = place
        self._service = service
        self._storage = Storage(service)
        self._kms_key = kms_key

    def make_bucket(self) -> None:
        """Create the bucket if it is raysm's default one and does not exist."""
        self._storage.ensure_bucket(self._service.bucket, self._service.region)

    def read(self, name: str) -> Versioned | None:
        """Return an object, or None."""
        return read_versioned(self._service, self._uri(name))

    def replace(self, name: str, content: bytes, version: str | None) -> str:
        """Write an object if it still has this version, or does not exist if None; return its new version.

        Raises:
            Outdated: It has another version.
        """
        return write_versioned(self._service, self._uri(name), content, version, self._kms_key)

    def put(self, name: str, content: bytes) -> None:
        """Write an object under a name that no other machine uses."""
        self._storage.write(self._uri(name), content, self._kms_key)

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with ``prefix``, sorted."""
        return [item.uri.removeprefix(f"{self.place}/") for item in self._storage.below(self._uri(prefix))]

    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""
        self._storage.remove_object(self._uri(name))

    def _uri(self, name: str) -> str:
        return f"{self.place}/{name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """The content of the object: who runs the grid, and which copy of its store is current."""

    run: str
    """``GridRecord.run``, which identifies the grid among those of its name; empty before its first copy."""
    owner: str
    """Machine and process of the last controller, for messages."""
    holder: str
    """Random name of that controller, since two containers can have equal machine names, processes and start times."""
    fence: int
    """Number of the lease; each machine that takes over adds one."""
    is_held: bool
    """False after the controller has released the lease. After LEASE_S without a write it is free in any case."""
    serial: int
    """Number of the write; without it, equal contents would have the same ETag and hide a write between them."""
    number: int = 0
    """Number of the copy; 0 before the first."""
    copy: str = ""
    """Name of the object that holds it."""

    def content(self) -> bytes:
        """Return it as JSON."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1).encode()


def read_head(content: bytes) -> Head:
    """Parse the object's content.

    Raises:
        InvalidConfig: It is malformed, or of another format.
    """
    try:
        values = json.loads(content)
        if values.pop("format", None) != FORMAT:
            raise InvalidConfig("the grid's copy was written by another raysm; use the raysm that wrote it")
        return Head(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidConfig(f"the head of the grid's copy cannot be read: {error}") from error


class Elapsed:
    """A clock that never runs slow.

    Some systems stop the monotonic clock while a laptop sleeps, and the wall clock may be set back, so the clock that
    has advanced further counts. An estimate that is too long costs one write; one that is too short would let two
    controllers run the grid.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._clocks = (steady, wall)
        self._before = [clock() for clock in self._clocks]
        self._sum = 0.0

    def __call__(self) -> float:
        """Return the seconds since it was created."""
        now = [clock() for clock in self._clocks]
        self._sum += max(0.0, *(after - before for after, before in zip(now, self._before, strict=True)))
        self._before = now
        return self._sum


class Unreachable(RaysmError):
    """The lease cannot be renewed now; the controller sends nothing until it can."""


class SharedLease:
    """The lease of one controller.

    Attributes:
        head: The head that this process last wrote or read.
    """

    head: Head

    def __init__(self, objects: Objects, owner: str, elapsed: Callable[[], float]) -> None:
        self._objects = objects
        self._owner = owner
        self._holder = secrets.token_hex(8)
        self._elapsed = elapsed
        self._version: str | None = None
        self._written_s = 0.0
        # Counts attempts to write, since a write whose answer was lost may have succeeded.
        self._serial = 0

    @property
    def silence_s(self) -> float:
        """Seconds since this process last wrote the lease."""
        return self._elapsed() - self._written_s

    def take(self, sleep: Callable[[float], Any] | None = None, is_gone: Callable[[Head], bool] | None = None) -> None:
        """Become the only controller of the grid on all machines.

        Args:
            sleep: Sleeps while the lease of a controller that may have ended expires; None does not wait.
            is_gone: Returns whether the controller that wrote a head is known to have ended.

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
        """Wait until the lease of a head's holder has expired; a controller that is alive renews it meanwhile."""
        refusal = LeaseLost(f"the grid in {self._objects.place} is run by {head.owner}; try again when it has ended")
        # Count the seconds here, too, for a server that does not send its time.
        left_s = LEASE_S - read.age_s
        if left_s > 0 and sleep is not None:
            _log.warning("%s; waiting %.0f s to see whether it still runs", refusal, left_s)
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
        """Renew the lease, with changes of the head.

        Raises:
            LeaseLost: Another one has taken it.
            ServiceError: S3 does not answer; whether it is written is not known.
        """
        self._write(dataclasses.replace(self.head, **changes), self._version)

    def release(self, **changes: Any) -> None:
        """Release the lease for other machines; raises as ``write``."""
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
        # The time before the call, which may have been carried out at any moment since.
        self._written_s = began_s

    def _settled(self, head: Head) -> str:
        """Return the version after a refused write, if only this controller has written meanwhile."""
        read = self._objects.read(HEAD)
        current = None if read is None else read_head(read.content)
        if read is None or current is None or (current.holder, current.fence) != (head.holder, head.fence):
            owner = "another machine" if current is None else current.owner
            raise LeaseLost(f"the grid in {self._objects.place} is run by {owner}: this process stops running it")
        if current == head:
            return read.version
        # The answer to an earlier write of this controller was lost: replace that write.
        try:
            return self._objects.replace(HEAD, head.content(), read.version)
        except Outdated as error:
            raise ServiceError(
                f"{self._objects.place} is written by several processes at once", is_transient=True
            ) from error
