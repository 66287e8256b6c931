"""The state of a grid that a Batch job runs: one object in S3, with store and lease in one.

The object exists from the handover until the user's machine takes the grid back. Its holder (an
attempt of the Batch job, or the user's machine) writes it under ``If-Match``, so that S3 refuses
the later one of two writers. The next attempt takes over after ``REMOTE_LEASE_S`` without a write.
Clocks of different machines are never compared: the holder counts the seconds since its own last
write, and its successor asks S3 for the age of that write.

An intent is in the object before Create is called. So a successor repeats the call, which makes no
second job.

The state and the user's commands are sealed with the grid's secret, which is not in the bucket. A
seal is checked before anything else of an object is read.
"""

import contextlib
import itertools
import json
import logging
import secrets
import sqlite3
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import (
    Outdated,
    Storage,
    TooLarge,
    Versioned,
    read_versioned,
    write_versioned,
)
from raysm.errors import InvalidPayload, InvalidRequest, RaysmError, ServiceError
from raysm.features.grid.batch_job.grid_secret import Parameter, Seal
from raysm.features.grid.local_grids import keep_target, read_target
from raysm.features.grid.row import RETRYABLE_STATES
from raysm.features.grid.store.database import MEMORY, LeaseLost, describe_owner, this_process
from raysm.features.grid.store.schema import VERSION
from raysm.features.grid.store.store import Store
from raysm.features.grid.template import secret_of

STATE = "state"
COMMANDS = "commands/"

MAX_COPY_BYTES = 1 << 30
"""Most bytes of a grid's file that a Batch job runs, about a million rows."""

MAX_STATE_BYTES = MAX_COPY_BYTES // 4
"""Most bytes of the stored state, in which the file is packed to a fifth or less. So much is read
at most before the seal is checked."""

MAX_HEAD_BYTES = 4096
"""Room in a stored state for its seal and the line about its holder."""

MAX_COMMAND_BYTES = 1024
MAX_COMMANDS = 1000
"""Most bytes of a command, and the number of commands that are read at a time."""

RENEW_S = 10.0
"""Seconds after which the holder writes again, about once per step."""

SURE_S = 20.0
"""Seconds since its last write for which the holder sends and stops jobs; after that it writes
first."""

REMOTE_LEASE_S = 35.0
"""Seconds without a write after which a successor takes over. This is 15 seconds more than SURE_S:
S3's times are whole seconds, and a Create that starts at the last moment takes a few."""

_log = logging.getLogger("raysm")


class Unreachable(RaysmError):
    """The lease cannot be renewed now; the controller sends nothing until it can."""


class Folder:
    """The folder of one grid in S3. Every call may raise ``ServiceError``."""

    def __init__(self, service: Service, place: str, kms_key: str | None = None) -> None:
        self.place = place
        self._service = service
        self._storage = Storage(service)
        self._kms_key = kms_key

    @property
    def parameter(self) -> Parameter:
        return Parameter.of(self._service, self.place)

    def read(self, name: str, max_bytes: int = MAX_STATE_BYTES) -> Versioned | None:
        return read_versioned(self._service, f"{self.place}/{name}", max_bytes)

    def replace(self, name: str, content: bytes, version: str | None) -> str:
        """Write an object if it has this version; return its new version.

        None stands for an object that does not exist. If the version differs, raise Outdated.
        """
        return write_versioned(
            self._service, f"{self.place}/{name}", content, version, self._kms_key
        )

    def put(self, name: str, content: bytes) -> None:
        self._storage.write(f"{self.place}/{name}", content, self._kms_key)

    def names(self, prefix: str, limit: int = MAX_COMMANDS) -> list[str]:
        """Return the first names in the order of S3, which is that of their letters."""
        found = itertools.islice(self._storage.walk(f"{self.place}/{prefix}"), limit)
        return [item.uri.removeprefix(f"{self.place}/") for item in found]

    def remove(self, name: str) -> None:
        self._storage.remove_object(f"{self.place}/{name}")


def folder_of(prefix: str, service: Service, kms_key: str | None = None) -> Folder:
    """Return the folder of the grid whose jobs have this prefix; create a missing bucket."""
    Storage(service).ensure_bucket(service.bucket, service.region)
    return Folder(service, service.places.grid(prefix.rstrip("-")), kms_key)


class RemoteState:
    """The state of one grid, as the process that holds it or wants to hold it sees it."""

    def __init__(
        self, folder: Folder, store: Store, seal: Seal, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._store = store
        self._seal = seal
        self._clock = clock
        # Random, since two containers can have equal machine names, processes and start times.
        self._id = secrets.token_hex(8)
        self._version: str | None = None
        # Without a number, equal contents would have the same ETag and hide a write between them.
        self._serial = 0
        self._written_s = 0.0
        self._copy = b""
        self._copied: tuple[int, int] | None = None
        # Names of attempts whose intents are in the object.
        self._covered: set[str] = set()

    def hand_over(self) -> None:
        """Write the object for the first time, without a holder."""
        self._push(is_held=False)

    def take(self, sleep: Callable[[float], Any]) -> bool:
        """Become the holder, and replace the store's content by the copy.

        Returns:
            False if there is no object.
        """
        read = self._folder.read(STATE)
        if read is None:
            return False
        head, self._copy = _parts(read.content, self._seal)
        # A copy of another raysm is refused before the lease is taken.
        with contextlib.closing(_opened(self._copy, self._folder.place)) as copy:
            if head["id"]:
                self._outwait(read, head["owner"], sleep)
            self._version = read.version
            self._serial = head["serial"]
            # Before anything else, so that the earlier holder cannot write any more.
            self._write()
            self._store.database.between("after take")
            self._restore(copy)
        return True

    def _outwait(self, read: Versioned, owner: str, sleep: Callable[[float], Any]) -> None:
        """Wait until the holder's lease has expired; a holder that is alive writes meanwhile."""
        refusal = LeaseLost(
            f"the grid in {self._folder.place} is run by {describe_owner(owner)}; "
            "try again when it has ended"
        )
        # Count the seconds here, too, for a server that does not send its time.
        left_s = REMOTE_LEASE_S - read.age_s
        if left_s > 0:
            _log.warning("%s; waiting %.0f s to see whether it still runs", refusal, left_s)
        while left_s > 0:
            pause_s = min(RENEW_S / 2, left_s)
            sleep(pause_s)
            left_s -= pause_s
            again = self._folder.read(STATE)
            if again is None or again.version != read.version:
                raise refusal

    def _restore(self, copy: sqlite3.Connection) -> None:
        database = self._store.database
        row = database.lease()
        copy.execute("DELETE FROM lease")
        # The fence is higher than in this file, so that a process that slept does not take the
        # lease for its own.
        copy.execute(
            "INSERT INTO lease (one, owner, fence, until_s) VALUES (1, 'nobody', ?, 0)",
            ((row["fence"] if row else 0) + 1,),
        )
        copy.commit()
        copy.backup(database.connection)
        database.between("after restore")

    def remove(self) -> None:
        self._folder.remove(STATE)

    def renew(self, now: float) -> None:
        """Renew the lease if it is time, and run the user's commands.

        If the store has changed, the lease is written with a new copy of it.

        Raises:
            LeaseLost: Another process has taken the grid.
            Unreachable: The lease is too old to send anything.
        """
        if self._silence_s < RENEW_S:
            return
        try:
            names = run_commands(self._folder, self._store, self._seal, now)
            self._push()
            # Only now: a command that was removed before this write would be lost with this
            # process.
            for name in names:
                self._folder.remove(name)
        except (ServiceError, Outdated) as error:
            # A moment without S3 is harmless while no other process can have the lease.
            if self._silence_s >= SURE_S:
                raise Unreachable(f"the grid's lease cannot be renewed: {error}") from error

    def cover(self, attempt: str = "") -> None:
        """Ensure that this process has the lease and that an attempt's intent is in the object.

        Call it before each Create and Stop.

        Raises:
            LeaseLost: Another process has taken the grid.
            Unreachable: The intent cannot be stored, or the lease is too old to send anything.
        """
        try:
            if (attempt and attempt not in self._covered) or self._silence_s >= RENEW_S:
                self._push()
        except (ServiceError, Outdated) as error:
            raise Unreachable(f"the grid's intents cannot be stored: {error}") from error
        # The machine may have slept after the write.
        if self._silence_s >= SURE_S:
            raise Unreachable("the grid's lease was renewed too long ago")

    def close(self) -> None:
        """Write the last changes, and release the lease for the next holder."""
        with contextlib.suppress(LeaseLost):
            try:
                self._push(is_held=False)
            except (ServiceError, Outdated) as error:
                _log.warning("the grid's lease cannot be released; it expires by itself: %s", error)

    @property
    def _silence_s(self) -> float:
        return self._clock() - self._written_s

    def _push(self, *, is_held: bool = True) -> None:
        database = self._store.database
        owed = {attempt.name for attempt in self._store.attempts.unanswered()}
        version = database.version
        if version != self._copied:
            # SQLite reads all pages in one transaction, so the copy is consistent while other
            # processes write.
            self._copy = _compressed(database.connection.serialize())
            self._copied = version
        database.between("before push")
        self._write(is_held=is_held)
        database.between("after push")
        self._covered = owed

    def _write(self, *, is_held: bool = True) -> None:
        began_s = self._clock()
        self._serial += 1
        head = {"id": self._id if is_held else "", "owner": this_process(), "serial": self._serial}
        content = self._seal.sealed(STATE, json.dumps(head).encode() + b"\n" + self._copy)
        try:
            version = self._folder.replace(STATE, content, self._version)
        except Outdated:
            # An earlier write of this process may have succeeded although its answer was lost, or
            # was an error.
            read = self._folder.read(STATE)
            found = (
                {"id": "", "owner": "nobody"}
                if read is None
                else _parts(read.content, self._seal)[0]
            )
            if read is None or (read.content != content and found["id"] != self._id):
                other = describe_owner(found["owner"])
                raise LeaseLost(
                    f"the grid in {self._folder.place} is run by {other}: "
                    "this process stops running it"
                ) from None
            version = read.version
            if read.content != content:
                version = self._folder.replace(STATE, content, version)
        self._version = version
        # The time before the call, which may have been carried out at any moment since.
        self._written_s = began_s


def _parts(stored: bytes, seal: Seal) -> tuple[dict[str, Any], bytes]:
    head, _, copy = seal.opened(STATE, stored).partition(b"\n")
    return json.loads(head), copy


def _compressed(content: bytes) -> bytes:
    # Level 1 shrinks a database to a fifth, and is ten times as fast as level 9.
    copy = zlib.compress(content, level=1)
    if len(content) > MAX_COPY_BYTES or len(copy) > MAX_STATE_BYTES - MAX_HEAD_BYTES:
        raise InvalidRequest(
            f"the grid's file has {len(content):,} bytes, {len(copy):,} when packed; "
            f"a Batch job runs grids of at most {MAX_COPY_BYTES:,} and {MAX_STATE_BYTES:,}: "
            "split the rows into several grids, or run it on this machine"
        )
    return copy


def _opened(copy: bytes, place: str) -> sqlite3.Connection:
    engine = zlib.decompressobj()
    content = engine.decompress(copy, MAX_COPY_BYTES)
    if not engine.eof:
        raise InvalidPayload(
            f"{place}/{STATE} has more than {MAX_COPY_BYTES:,} bytes, or is cut off"
        )
    database = sqlite3.connect(":memory:", check_same_thread=False)
    # SQLite does not open a database in memory whose header says WAL (bytes 18 and 19):
    # https://sqlite.org/fileformat.html
    database.deserialize(content[:18] + b"\1\1" + content[20:])
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        database.close()
        raise InvalidRequest(
            f"the grid in {place} was written by another raysm: its tables are of version "
            f"{version}, this one reads {VERSION}; use the raysm that made it"
        )
    return database


# -- on the user's machine


def read_copy(folder: Folder, seal: Seal) -> Store | None:
    """Return the grid as the last holder wrote it, in memory; None if there is no object.

    Raises:
        InvalidPayload: It is not sealed with the grid's secret.
    """
    read = folder.read(STATE)
    if read is None:
        return None
    with contextlib.closing(_opened(_parts(read.content, seal)[1], folder.place)) as copy:
        store = Store(MEMORY)
        copy.backup(store.database.connection)
        return store


def seal_of(path: Path, folder: Folder) -> Seal:
    """Return the seal of the grid with this file, whose secret is beside it."""
    return Seal(secret_of(path), folder.place)


def recall(
    store: Store, path: Path, folder: Folder, sleep: Callable[[float], Any] = time.sleep
) -> None:
    """Take a grid back from its Batch job; raises as ``RemoteState.take``."""
    seal = seal_of(path, folder)
    state = RemoteState(folder, store, seal)
    if state.take(sleep):
        # A later attempt of the Batch job finds no object, and ends.
        state.remove()
        try:
            folder.parameter.remove()
        except ServiceError as error:
            _log.warning("the parameter with the grid's secret is left: %s", error)
    else:
        # An earlier call ended before the handover, or after it took the grid back: this file is
        # current.
        store.database.execute("UPDATE lease SET until_s = 0, fence = fence + 1")
    for name in run_commands(folder, store, seal, store.grid().clock.now()):
        folder.remove(name)
    if (kept := read_target(path)) is not None:
        keep_target(path, replace(kept, away=None))


def leave_command(folder: Folder, seal: Seal, command: str, now: float) -> None:
    """Leave ``stop`` or ``retry`` for the Batch job that runs a grid."""
    # The name begins with the time, so that a retry after a stop runs after the stop.
    name = f"{COMMANDS}{int(now * 1000):015d}-{secrets.token_hex(4)}-{command}"
    folder.put(name, seal.of(name, b""))


def run_commands(folder: Folder, store: Store, seal: Seal, now: float) -> list[str]:
    """Run the commands that the user left, the oldest first, each once; return the names to remove.

    Commands without the grid's seal are not run, and the log names them.
    """
    names = folder.names(COMMANDS)
    for name in names:
        done = f"command {name.removeprefix(COMMANDS)}"
        if not _is_sealed(folder, seal, name):
            _log.warning("the command %s/%s is not the user's, and was not run", folder.place, name)
        # Someone who may write to the bucket can put a command of the user back.
        elif not store.events.has(done):
            _run_command(name, store, now)
            store.events.add(now, "", "", done)
    return names


def _is_sealed(folder: Folder, seal: Seal, name: str) -> bool:
    try:
        read = folder.read(name, MAX_COMMAND_BYTES)
    except TooLarge:
        return False
    # Otherwise another process has removed it meanwhile.
    return read is not None and seal.fits(read.content, name, b"")


def _run_command(name: str, store: Store, now: float) -> None:
    if name.endswith("-retry"):
        store.requeue(RETRYABLE_STATES, now)
    elif not name.endswith("-stop"):
        _log.warning("the command %s is of a later version of raysm, and was not run", name)
    else:
        store.request_stop(now)
