"""The file of a grid: an SQLite database, its transactions, and the lease of the controller.

A controller's transaction checks the lease's fence when it begins. SQLite lets one writer in at a
time, so no other process can take the lease between the check and the commit.
"""

import contextlib
import json
import math
import os
import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from raysm.errors import InvalidRequest, RaysmError
from raysm.features.grid.store.schema import MIGRATIONS, SCHEMA, TRIGGERS, VERSION
from raysm.features.grid.turns import Turns

MEMORY = ":memory:"
LEASE_S = 30.0
"""Seconds of silence after which another controller may take over."""

RELEASED_S = 0.0
"""End of a lease that its owner has released."""

NETWORKED = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "lustre",
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.mount-s3",
    "ceph",
    "glusterfs",
)
"""Beginnings of the types of file systems on which SQLite's locks do not work
(https://sqlite.org/howtocorrupt.html)."""


class LeaseLost(RaysmError):
    """Another controller has taken over; this one has changed nothing since, and ends."""


class StoreFailed(RaysmError):
    """The file of a grid cannot be read or written.

    The disk is full or reports an error, the file is damaged, or access is denied.
    """


@contextlib.contextmanager
def naming_file(path: Path | str) -> Iterator[None]:
    """Turn errors of SQLite within the block into StoreFailed, with the file and the remedy."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise StoreFailed(
                f"the disk that holds {path} is full; free some space and run the same command "
                "again: the grid continues where it stopped, and its open jobs keep running"
            ) from error
        if code == sqlite3.SQLITE_IOERR:
            raise StoreFailed(
                f"the disk that holds {path} reports an error ({error}), which does not mean that "
                "the file is damaged; check the disk and run the same command again: the grid's "
                "jobs keep running"
            ) from error
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise StoreFailed(
                f"{path} is damaged ({error}): restore it from a backup, or move it away and run "
                "the grid under another --name; raysm jobs lists its jobs, which keep running"
            ) from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise StoreFailed(
                f"{path} cannot be written ({error}); "
                "give this user access to its folder, or set another RAYSM_HOME"
            ) from error
        if code == sqlite3.SQLITE_BUSY:
            raise StoreFailed(
                f"another process writes to {path} without a pause; run the command again"
            ) from error
        raise


class GridDatabase:
    def __init__(
        self, path: Path | str, *, between: Callable[[str], None] = lambda point: None
    ) -> None:
        """Open the file, and create its tables if there are none.

        A text is an SQLite URI or ``MEMORY``: several connections share a database in memory by
        ``file:/NAME?vfs=memdb``.
        """
        self.path = path
        self.fence = 0
        self.between = between
        self.turns = Turns()
        self._effects = 0
        if isinstance(path, Path):
            _refuse_network(path)
        # Different threads use the connection, one at a time.
        with naming_file(path):
            self.connection = sqlite3.connect(
                path,
                isolation_level=None,
                timeout=60,
                check_same_thread=False,
                uri=isinstance(path, str),
            )
        self.connection.row_factory = sqlite3.Row
        self.execute = self.connection.execute
        try:
            with naming_file(path):
                self.connection.execute("PRAGMA journal_mode = WAL")
                self.connection.execute("PRAGMA synchronous = NORMAL")
                self._make_tables()
        except StoreFailed:
            self.connection.close()
            raise

    def _make_tables(self) -> None:
        with self._immediate():
            version = self.connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in (*SCHEMA.split(";"), *TRIGGERS):
                    self.connection.execute(statement)
            elif version in MIGRATIONS:
                for each in range(version, VERSION):
                    self.connection.execute(MIGRATIONS[each])
            if version == 0 or version in MIGRATIONS:
                self.connection.execute(f"PRAGMA user_version = {VERSION}")
        if version not in (0, VERSION, *MIGRATIONS):
            self.connection.close()
            raise InvalidRequest(
                f"{self.path} was written by another raysm: "
                f"its tables are of version {version}, this one reads {VERSION}; "
                "use the raysm that made it, or give the grid another name"
            )

    def close(self) -> None:
        self.connection.close()

    def value(self, query: str, *values: Any) -> Any:
        """Return the first column of the first row."""
        return self.execute(query, values).fetchone()[0]

    def exists(self, query: str, *values: Any) -> bool:
        return self.execute(query, values).fetchone() is not None

    def change_state(
        self, table: str, key: str, value: str, was: str, changes: Mapping[str, Any]
    ) -> None:
        """Change the record of a table whose column ``key`` has a value, if its state is ``was``.

        Raises:
            LeaseLost: It has another state.
        """
        assignments = ", ".join(f"{name} = ?" for name in changes)
        done = self.execute(
            f"UPDATE {table} SET {assignments} WHERE {key} = ? AND state = ?",
            (*changes.values(), value, was),
        )
        # The old state is part of the condition, so that the second of two concurrent changes
        # fails.
        if done.rowcount != 1:
            raise LeaseLost(f"{value} is no longer {was}: another process has changed the grid")

    @contextlib.contextmanager
    def _immediate(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            # If the disk is full, SQLite itself has rolled back.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    @contextlib.contextmanager
    def transaction(
        self, name: str, *, durable: bool = False, fenced: bool = True
    ) -> Iterator[None]:
        """Run the block in a transaction; ``name`` is for ``between``.

        A ``durable`` one survives a crash of the machine, since the step after it must not be done
        twice. A ``fenced`` one raises LeaseLost if another controller has the lease, which a user's
        own commands do not need.
        """
        self.between(f"before {name}")
        if durable:
            # SQLite does not change this within a transaction.
            self.connection.execute("PRAGMA synchronous = FULL")
        try:
            with self._immediate():
                if fenced:
                    row = self.lease()
                    if row is None or row["fence"] != self.fence:
                        owner = describe_owner(row["owner"]) if row else "another process"
                        raise LeaseLost(
                            f"the grid is run by {owner}: this process stops running it"
                        )
                yield
        finally:
            if durable:
                self.connection.execute("PRAGMA synchronous = NORMAL")
        self._effects += name not in ("lease", "release")
        self.between(f"after {name}")

    @property
    def version(self) -> tuple[int, int]:
        """A value that changes with every transaction, except this process's own on the lease."""
        return self._effects, self.connection.execute("PRAGMA data_version").fetchone()[0]

    def lease(self) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self.connection.execute(
            "SELECT owner, fence, until_s FROM lease"
        ).fetchone()
        return row

    def has_controller(self, now: float) -> bool:
        row = self.lease()
        return row is not None and row["until_s"] > now and not is_gone(row["owner"])

    def take_lease(self, owner: str, now: float) -> bool:
        """Take or renew the lease.

        Returns:
            True if an earlier owner held it, whose calls may still be carried out.

        Raises:
            LeaseLost: Another process has the lease.
        """
        with self.transaction("lease", fenced=False):
            row = self.lease()
            # Compare the fence, not the time: a clock that jumps must not cost the holder its
            # lease.
            mine = row is not None and row["fence"] == self.fence
            if not mine and (self.fence or not self._is_free(row, now)):
                other = describe_owner(row["owner"]) if row else "another process"
                raise LeaseLost(f"the grid is run by {other}; try again when it has ended")
            if mine:
                fence = self.fence
            else:
                fence = (row["fence"] if row else 0) + 1
            self.connection.execute(
                "INSERT OR REPLACE INTO lease (one, owner, fence, until_s) VALUES (1, ?, ?, ?)",
                (owner, fence, now + LEASE_S),
            )
        self.fence = fence
        return row is not None and not mine

    @staticmethod
    def _is_free(row: sqlite3.Row | None, now: float) -> bool:
        return row is None or row["until_s"] <= now or is_gone(row["owner"])

    def has_lease(self) -> bool:
        row = self.lease()
        return row is not None and row["fence"] == self.fence

    def lend_lease(self, owner: str) -> None:
        """Leave the lease to a Batch job: no process here gets it until it is taken back."""
        with self.transaction("lend"):
            self.connection.execute("UPDATE lease SET owner = ?, until_s = ?", (owner, math.inf))
        self.fence = 0

    def release_lease(self) -> None:
        if self.fence:
            # On a full disk the lease stays; the next controller on this machine sees that its
            # holder has ended.
            with (
                contextlib.suppress(LeaseLost, sqlite3.OperationalError),
                self.transaction("release"),
            ):
                self.end_lease()
            self.fence = 0

    def end_lease(self) -> None:
        """Give the lease up, within a transaction of its owner."""
        self.connection.execute("UPDATE lease SET until_s = ?", (RELEASED_S,))


def this_process() -> str:
    """Return a name of this process that is unique among all machines and times."""
    return json.dumps([socket.gethostname(), os.getpid(), _started(os.getpid())])


def describe_owner(owner: str) -> str:
    """Return the owner of a lease in words; a Batch job is its own name."""
    try:
        host, pid, _ = json.loads(owner)
    except ValueError:
        return owner
    return f"process {pid} on {host}"


def _started(pid: int) -> str:
    """Return when a process was started, in the kernel's ticks; empty if that is unknown."""
    try:
        # Split after the name, which may contain spaces and brackets.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_gone(owner: str) -> bool:
    """Whether the owner of a lease was a process of this machine that has ended."""
    try:
        host, pid, started = json.loads(owner)
    except ValueError:
        return False
    if host != socket.gethostname() or not started:
        return False
    # Another process may have this number by now.
    return bool(_started(pid) != started)


def _refuse_network(path: Path) -> None:
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return
    folder = path.resolve().parent
    above = [
        (len(place), kind)
        for place, kind in mounts
        if folder.is_relative_to(place.replace("\\040", " "))
    ]
    kind = max(above, default=(0, ""))[1]
    if kind.startswith(NETWORKED):
        raise InvalidRequest(
            f"{path} is on a network file system ({kind}), where SQLite's locks fail; "
            "set RAYSM_HOME to a local folder"
        )
