"""A grid that several machines can run: its lease, the copies of its store, and commands from other machines.

An intent is stored before Create is called, on all machines: the copy in S3 has the intent first.
"""

import contextlib
import json
import logging
import secrets
import sqlite3
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from raysm.client.job.description import Description
from raysm.client.service import Service
from raysm.client.storage.s3 import Outdated
from raysm.contract.store import put
from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.database import MEMORY, Database, LeaseLost, is_gone, this_process
from raysm.grid.records import VERSION
from raysm.grid.region import Page, Region
from raysm.grid.shared.lease import HEAD, RENEW_S, SURE_S, Elapsed, Head, Objects, SharedLease, Unreachable, read_head
from raysm.grid.store import Store
from raysm.grid.task import AGAIN, Attempt, Task

COPIES = "copies/"
COMMAND_FOLDER = "commands/"
SECRET = "secret"
"""Object of the secret from which jobs' tokens are derived; the tokens are in the same bucket, in each payload."""

READS = 3
"""Attempts to read a copy, which its owner may replace meanwhile."""

_log = logging.getLogger("raysm")


def objects_of(name: str, service: Service, kms_key: str | None = None) -> Objects:
    """Return the folder of a grid in the service's bucket."""
    return Objects(service, service.places.grid(name), kms_key)


# -- copies of the store


class Copies:
    """The copies of one grid's store, which the holder of the lease writes.

    A copy is one compressed object with a unique name. It becomes current when the head names it, so that a reader
    never finds half a copy.
    """

    def __init__(self, database: Database, objects: Objects, note: Path) -> None:
        """Take the grid's file, its folder in S3, and the path of the note on which copy this machine's file holds."""
        self._database = database
        self._objects = objects
        self._note_path = note
        self._pushed: tuple[int, int] | None = None
        self._next: tuple[int, int] | None = None

    @property
    def is_changed(self) -> bool:
        """Whether something was committed since the last push, by this process or another one."""
        return self._pushed is None or self._pushed != self._database.version

    def push(self, head: Head) -> dict[str, Any]:
        """Write a copy; return the changes of the head that make it current. Call ``pushed`` next."""
        self._next = self._database.version
        # The serial makes the name unique even if the head of an earlier copy was never written.
        name = f"{COPIES}{head.number + 1:08d}-{head.fence:06d}-{head.serial:08d}"
        # Level 1 shrinks a database to a fifth, and is ten times as fast as level 9.
        self._objects.put(name, zlib.compress(self._content(), level=1))
        return {"number": head.number + 1, "copy": name}

    def pushed(self, head: Head) -> None:
        """Record that the head names the last copy, and remove older copies."""
        self._pushed = self._next
        self._write_note(head, head.number)
        for name in self._objects.names(COPIES):
            if name < head.copy:
                self._objects.remove(name)

    def _content(self) -> bytes:
        connection = self._database.connection
        # In a transaction, since other processes write meanwhile.
        connection.execute("BEGIN")
        try:
            connection.execute("SELECT count(*) FROM lease").fetchone()
            return connection.serialize()
        finally:
            connection.execute("COMMIT")

    def holds(self, head: Head) -> bool:
        """Whether this machine's file holds the head's copy, or continues it."""
        noted = self._noted()
        return (noted.get("at"), noted.get("number")) == (self._objects.place, head.number)

    def is_gone(self, head: Head) -> bool:
        """Whether the controller that wrote a head ran on this machine with this file, and has ended."""
        # The machine's name is not enough: two laptops may have the same name, and do not see each other's processes.
        return self._noted().get("holder") == head.holder and is_gone(head.owner)

    def note(self, head: Head) -> None:
        """Record the controller that runs the grid, before anything else is written."""
        self._write_note(head, self._noted().get("number"))

    def restore(self, head: Head) -> None:
        """Replace the content of this machine's file by the head's copy."""
        connection = self._database.connection
        row = connection.execute("SELECT fence FROM lease").fetchone()
        with contextlib.closing(read_copy(self._objects, head)) as copy:
            copy.execute("DELETE FROM lease")
            # The fence is higher than in this file, so that a process that slept does not take the lease for its own.
            copy.execute("INSERT INTO lease VALUES (1, 'nobody', ?, 0)", ((row["fence"] if row else 0) + 1,))
            # The other machine may have called Create for these, and the call may still be on its way.
            copy.execute("UPDATE attempt SET is_doubtful = 1 WHERE state IN ('intended', 'maybe')")
            copy.commit()
            self._database.between("before restore")
            copy.backup(connection)
        self._database.between("after restore")
        self._write_note(head, head.number)

    def _noted(self) -> dict[str, Any]:
        try:
            noted = json.loads(self._note_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}  # the copy is then fetched again
        return noted if isinstance(noted, dict) else {}

    def _write_note(self, head: Head, number: int | None) -> None:
        put(self._note_path, json.dumps({"at": self._objects.place, "number": number, "holder": head.holder}))


def read_copy(objects: Objects, head: Head) -> sqlite3.Connection:
    """Return the copy that a head names, as a database in memory.

    Raises:
        InvalidRequest: Its tables have another version.
        ServiceError: It is missing or damaged.
    """
    read = objects.read(head.copy)
    if read is None:
        # Its owner has written a newer copy and removed this one.
        raise ServiceError(f"{objects.place}/{head.copy} is missing", code="NoSuchKey", is_transient=True)
    try:
        content = zlib.decompress(read.content)
    except zlib.error as error:
        raise ServiceError(f"the copy {head.number} in {objects.place} is damaged", is_transient=True) from error
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    # SQLite does not open a database in memory whose header says WAL (bytes 18 and 19):
    # https://sqlite.org/fileformat.html
    copy.deserialize(content[:18] + b"\1\1" + content[20:])
    version = copy.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        copy.close()
        raise InvalidRequest(
            f"the grid in {objects.place} was written by another raysm: its tables are of version {version}, this one "
            f"reads {VERSION}; use the raysm that made it"
        )
    return copy


def copied(objects: Objects, name: str) -> Store:
    """Return the current copy of a grid as a store in memory, for reading.

    Raises:
        InvalidRequest: There is no copy.
        ServiceError: S3 does not answer.
    """
    for left in reversed(range(READS)):
        read = objects.read(HEAD)
        head = None if read is None else read_head(read.content)
        if head is None or not head.number:
            raise InvalidRequest(
                f"there is no grid {name!r} in {objects.place}; raysm grid run creates one on AWS, and with --shared "
                "on the embedded SageMaker"
            )
        try:
            with contextlib.closing(read_copy(objects, head)) as copy:
                store = Store(MEMORY)
                copy.backup(store.database.connection)
                return store
        except ServiceError:
            if not left:
                raise
            time.sleep(0.1)
    raise AssertionError("the last try returns or raises")


def share_secret(path: Path, objects: Objects) -> None:
    """Make a grid's secret the same on all machines; the caller holds the lease.

    With a different secret, a second machine would turn a repeated Create into another job.

    Args:
        path: The secret on this machine; it may not exist yet.
        objects: The grid's folder.
    """
    read = objects.read(SECRET)
    if read is None:
        secret = path.read_text(encoding="utf-8") if path.exists() else secrets.token_hex(32)
        try:
            objects.replace(SECRET, secret.encode(), None)
        except Outdated:
            # An earlier call whose answer was lost, or a controller that has lost the lease, has written it.
            read = objects.read(SECRET)
    secret = secret if read is None else read.content.decode()
    if not path.exists() or path.read_text(encoding="utf-8") != secret:
        put(path, secret, mode=0o600)


# -- commands from other machines

COMMANDS = ("stop", "retry")


def leave_command(objects: Objects, command: str, now: float) -> None:
    """Leave a command for the controller of a grid.

    Raises:
        InvalidRequest: There is no such command.
        ServiceError: It cannot be written.
    """
    if command not in COMMANDS:
        raise InvalidRequest(f"a grid that another machine runs takes {', '.join(COMMANDS)}, got {command!r}")
    # The name begins with the time, so that a retry after a stop runs after the stop.
    objects.put(f"{COMMAND_FOLDER}{int(now * 1000):015d}-{secrets.token_hex(4)}-{command}", b"")


def run_commands(objects: Objects, store: Store, now: float) -> None:
    """Run the commands that were left, the oldest first. Commands are idempotent."""
    for name in objects.names(COMMAND_FOLDER):
        command = name.rpartition("-")[2]
        # Ignore commands of a newer raysm.
        if command not in COMMANDS:
            continue
        if command == "retry":
            store.again(AGAIN, now)
        # A closed grid has no controller: it would be "stopping" forever.
        elif store.grid().state != "closed":
            store.change_grid("stopping", now, why="the user stops it", fenced=False)
        objects.remove(name)


# -- this machine's lease and copy


def sharing_of(store: Store, objects: Objects, path: Path, elapsed: Callable[[], float] | None = None) -> "Sharing":
    """Return the sharing of a grid whose store is the file ``path``; nothing is read yet."""
    lease = SharedLease(objects, this_process(), elapsed or Elapsed())
    return Sharing(store, lease, Copies(store.database, objects, path.with_suffix(".shared")), objects)


class Sharing:
    """Holds the shared lease of one controller, and keeps the copy in S3 up to date."""

    def __init__(self, store: Store, lease: SharedLease, copies: Copies, objects: Objects) -> None:
        self._store = store
        self._lease = lease
        self._copies = copies
        self._objects = objects
        # Names of attempts whose intents are in the current copy.
        self._covered: set[str] = set()

    def take(self, sleep: Callable[[float], Any] | None = None) -> None:
        """Take the lease, and bring this machine's file up to date.

        Raises:
            InvalidRequest: This machine has another grid of the same name.
            LeaseLost: Another controller runs the grid.
            ServiceError: S3 does not answer.
        """
        self._lease.take(sleep, self._copies.is_gone)
        self._store.database.between("after shared lease")
        head = self._lease.head
        self._copies.note(head)
        if not head.number or self._copies.holds(head):
            return
        row = self._run()
        try:
            if row is not None and row["run"] != head.run:
                raise InvalidRequest(
                    f"there are two grids {row['name']!r}: one on this machine, and one that another machine has "
                    "shared; give this one another --name"
                )
            self._copies.restore(head)
        except InvalidRequest:
            self._lease.release()
            raise

    def _run(self) -> Any:
        """Return name and run of this machine's grid, or None."""
        return self._store.database.connection.execute("SELECT name, run FROM grid").fetchone()

    def hold(self, now: float) -> None:
        """Renew the lease if it is time, push changes, and run commands from other machines.

        Raises:
            LeaseLost: Another controller has taken the grid.
            Unreachable: The lease was renewed too long ago to send anything.
        """
        if self._lease.silence_s < RENEW_S:
            return
        try:
            run_commands(self._objects, self._store, now)
            self._push()
        except ServiceError as error:
            # A moment without S3 is harmless while no other machine can have the lease.
            if self._lease.silence_s >= SURE_S:
                raise Unreachable(f"the grid's lease cannot be renewed: {error}") from error

    def cover(self, attempt: str) -> None:
        """Ensure that the intent of an attempt is in the current copy, and that this controller has the lease.

        Raises:
            LeaseLost: Another controller has taken the grid.
            Unreachable: S3 does not answer, so that another controller may have taken it.
        """
        # This runs within a call of one region, while threads of other regions use the same store.
        with self._store.database.turns.reacquired():
            try:
                if attempt not in self._covered or self._lease.silence_s >= RENEW_S:
                    self._push()
            except ServiceError as error:
                raise Unreachable(f"the grid's intents cannot be stored: {error}") from error
            # The machine may have slept after the write.
            if self._lease.silence_s >= SURE_S:
                raise Unreachable("the grid's lease was renewed too long ago")

    def _push(self) -> None:
        between = self._store.database.between
        owed = {attempt.name for attempt in self._store.owed()}
        changes: dict[str, Any] = {}
        if self._copies.is_changed:
            between("before copy")
            changes = self._copies.push(self._lease.head)
            between("after copy")
            row = self._run()
            changes |= {"run": row["run"]} if row else {}
        self._lease.write(**changes)
        between("after head")
        self._covered = owed
        if "number" in changes:
            self._copies.pushed(self._lease.head)
            between("after push")

    def close(self) -> None:
        """Push the last changes, and release the lease for other machines."""
        with contextlib.suppress(LeaseLost):
            try:
                self._push()
                self._lease.release()
            except ServiceError as error:
                _log.warning("the grid's lease cannot be released; it expires by itself: %s", error)


class FencedRegion:
    """A region that sends and stops jobs only while the shared lease is held; see ``raysm.grid.region.Region``."""

    def __init__(self, region: Region, sharing: Sharing) -> None:
        self._region = region
        self._sharing = sharing

    def create(self, task: Task, attempt: Attempt) -> None:
        """Send an attempt after its intent is in S3; raises as ``Sharing.cover``."""
        self._sharing.cover(attempt.name)
        self._region.create(task, attempt)

    def describe(self, name: str) -> Description:
        """See ``Region``."""
        return self._region.describe(name)

    def page(self, contains: str, token: str | None) -> Page:
        """See ``Region``."""
        return self._region.page(contains, token)

    def rates(self, names: Sequence[str], metric: str) -> Mapping[str, float]:
        """See ``Region``."""
        return self._region.rates(names, metric)

    def stop(self, name: str) -> None:
        """Stop a job; the lease is renewed first, since the next controller may have sent it."""
        self._sharing.cover("")
        self._region.stop(name)
