"""The file of a grid: one SQLite database, whose writers hold the grid's lease.

A controller's transaction checks the lease's fence when it begins. SQLite lets one writer in at a time, so no other
process can take the lease between the check and the commit.
"""

import contextlib
import json
import os
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

from raysm.errors import InvalidRequest, RaysmError
from raysm.grid.records import SCHEMA, TRIGGERS, VERSION

__all__ = ["Database", "LeaseLost", "MEMORY", "StoreFailed", "Turns", "is_gone", "naming_file", "this_process"]


class Turns:
    """Whose turn it is."""

    def __init__(self) -> None:
        """Nobody works yet."""
        self._turn = threading.Lock()
        self._ends = False

    def each(self, works: Sequence[Callable[[], object]]) -> None:
        """Do all of these works, each in a thread of its own; return when all have ended.

        Raises:
            Exception: What the first of them raised; the others then end before their next call.
        """
        if len(works) < 2:
            for work in works:
                work()
            return
        self._ends = False
        with ThreadPoolExecutor(len(works), thread_name_prefix="region") as pool:
            done = [pool.submit(self._in_turn, work) for work in works]
            try:
                errors = [future.exception() for future in done]
            except BaseException:
                # The user's interrupt: of twenty calls to a region that is silent each would be waited for.
                self._ends = True
                raise
        raised = [error for error in errors if error is not None]
        if raised:
            raise next((error for error in raised if not isinstance(error, CancelledError)), raised[0])

    def _in_turn(self, work: Callable[[], object]) -> None:
        with self._turn:
            try:
                work()
            except BaseException:
                self._ends = True
                raise

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Within it a call is on its way, and others have their turn.

        Raises:
            CancelledError: Another one has failed: nothing more is to be called.
        """
        # Where nothing is done side by side nobody waits for a turn.
        if not self._turn.locked():
            yield
            return
        if self._ends:
            raise CancelledError
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()

    @contextlib.contextmanager
    def back(self) -> Iterator[None]:
        """Within it, of a call that is on its way, it is this one's turn: what it uses is used by others too."""
        with self._turn:
            yield


MEMORY = ":memory:"
"""What SQLite calls a database that is in no file."""

LEASE_S = 30.0
"""Seconds for which a controller that is heard of no more keeps the grid to itself."""

NETWORKED = ("nfs", "cifs", "smb", "9p", "lustre", "fuse.sshfs", "fuse.s3fs", "fuse.mount-s3", "ceph", "glusterfs")
"""How the types of file systems begin on which SQLite's locks do not hold (https://sqlite.org/howtocorrupt.html)."""


class LeaseLost(RaysmError):
    """Another controller has taken over: this one lets go at once, and has changed nothing since."""


class StoreFailed(RaysmError):
    """The file of a grid cannot be read or written: the disk is full, the file is damaged, or access is denied."""


@contextlib.contextmanager
def naming_file(path: Path | str) -> Iterator[None]:
    """Say what is wrong with a grid's file, and what to do, where SQLite fails within.

    Raises:
        StoreFailed: The disk is full, or the file is damaged.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise StoreFailed(
                f"the disk that holds {path} is full; free some space and run the same command again: the grid "
                "continues where it stopped, and its open jobs keep running"
            ) from error
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR):
            raise StoreFailed(
                f"{path} is damaged ({error}): restore it from a backup, or move it away and run the grid under "
                "another --name; raysm jobs lists its jobs, which keep running"
            ) from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise StoreFailed(
                f"{path} cannot be written ({error}); give this user access to it and its folder, or set RAYSM_HOME to "
                "another folder"
            ) from error
        if code == sqlite3.SQLITE_BUSY:
            raise StoreFailed(f"another process writes to {path} without a pause; run the command again") from error
        raise


class Database:
    """The connection, its transactions, and the lease.

    Attributes:
        fence: Number of this process's lease; 0 is none.
        turns: Of the threads of a step, which of them uses it.
    """

    def __init__(self, path: Path | str, *, between: Callable[[str], None] = lambda point: None) -> None:
        """Open the file, and make its tables where there are none.

        Args:
            path: Of the file.
            between: Called before and after every effect with its name; a test ends the process there.

        Raises:
            InvalidRequest: The file is none of this version, or lies where locks do not hold.
            StoreFailed: It is damaged, or the disk is full.
        """
        self.path = path
        self.fence = 0
        self.between = between
        self.turns = Turns()
        if path != MEMORY:
            _refuse_network(Path(path))
        # One thread at a time, whichever: a handle may be polled by one, and stopped by another.
        with naming_file(path):
            self.connection = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
        self.connection.row_factory = sqlite3.Row
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
                self.connection.execute(f"PRAGMA user_version = {VERSION}")
        if version not in (0, VERSION):
            self.connection.close()
            raise InvalidRequest(
                f"{self.path} was written by another raysm: its tables are of version {version}, this one reads "
                f"{VERSION}; use the raysm that made it, or give the grid another name"
            )

    def close(self) -> None:
        """Close the file; what is not committed is undone."""
        self.connection.close()

    @contextlib.contextmanager
    def _immediate(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            # Where the disk is full, SQLite has undone it by itself.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    @contextlib.contextmanager
    def transaction(self, name: str, *, durable: bool = False, fenced: bool = True) -> Iterator[None]:
        """Within it, all changes are one effect.

        Args:
            name: What it does, for ``between``.
            durable: Whether it must outlive a crash of the machine too: what follows it can be done only once.
            fenced: Whether it is the controller's; a user's own wish needs no lease.

        Raises:
            LeaseLost: It is the controller's, and this is the controller no more.
        """
        self.between(f"before {name}")
        if durable:
            # It cannot be changed within a transaction.
            self.connection.execute("PRAGMA synchronous = FULL")
        try:
            with self._immediate():
                if fenced:
                    self._check_fence()
                yield
        finally:
            if durable:
                self.connection.execute("PRAGMA synchronous = NORMAL")
        self.between(f"after {name}")

    def _check_fence(self) -> None:
        row = self.connection.execute("SELECT owner, fence FROM lease").fetchone()
        if row is None or row["fence"] != self.fence:
            raise LeaseLost(f"the grid is run by {row['owner'] if row else 'nobody'}: this process lets go of it")

    def take_lease(self, owner: str, now: float) -> None:
        """Become the grid's one controller, or stay it.

        Raises:
            LeaseLost: Another one is, and was heard of within ``LEASE_S``.
        """
        with self.transaction("lease", fenced=False):
            row = self.connection.execute("SELECT owner, fence, until_s FROM lease").fetchone()
            # By the fence, not by the time: a clock that jumps must not take the lease from who still has it.
            mine = row is not None and row["fence"] == self.fence
            free = row is None or row["until_s"] <= now or is_gone(row["owner"])
            if not mine and (self.fence or not free):
                raise LeaseLost(f"the grid is run by {row['owner'] if row else 'nobody'}; it lets go when it ends")
            fence = self.fence if mine else (row["fence"] if row else 0) + 1
            self.connection.execute("INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?)", (owner, fence, now + LEASE_S))
        self.fence = fence

    def release_lease(self) -> None:
        """Let another one be the controller at once."""
        if self.fence:
            # On a full disk it stays: the next controller of this machine sees that its process has ended.
            with contextlib.suppress(LeaseLost, sqlite3.OperationalError), self.transaction("release"):
                self.connection.execute("UPDATE lease SET until_s = 0")
            self.fence = 0


def this_process() -> str:
    """Return what tells this process from all others, of this machine and of others, of now and of earlier."""
    return json.dumps([socket.gethostname(), os.getpid(), _started(os.getpid())])


def _started(pid: int) -> str:
    """Return when a process was started, in the kernel's own ticks; empty where nobody says."""
    try:
        # Behind the name, which may hold spaces and brackets.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_gone(owner: str) -> bool:
    """Whether a process of this machine that had the lease has ended: its lease need not be waited for."""
    try:
        host, pid, started = json.loads(owner)
    except ValueError:
        return False
    if host != socket.gethostname() or not started:
        return False
    # A number is soon another process's: its start tells.
    return bool(_started(pid) != started)


def _refuse_network(path: Path) -> None:
    """Refuse a file system on which two writers would destroy the file."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return
    folder = path.resolve().parent
    above = [(len(place), kind) for place, kind in mounts if folder.is_relative_to(place.replace("\\040", " "))]
    kind = max(above, default=(0, ""))[1]
    if kind.startswith(NETWORKED):
        raise InvalidRequest(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not work; set RAYSM_HOME to a "
            "folder of this machine's own disk"
        )
