"""The copies of a grid's store: what has changed in the file flows out to S3, and a whole file flows back in.

A copy is parts, which are written under names that nobody else uses; it holds from the moment at which the head names
them. So a reader finds the copy before, or this one, and never half of one.
"""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from raysm.contract.store import put
from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.database import Database, is_gone
from raysm.grid.schema import VERSION
from raysm.grid.shared.head import Head
from raysm.grid.shared.objects import Objects
from raysm.grid.shared.pages import changed_pages, digest_of, join_parts, page_digests, part_of

__all__ = ["Copies", "read_copy"]

PARTS = "parts/"

MOST_PARTS = 64
"""Of a copy: each is a request for whoever takes over."""


class Copies:
    """The copies of one grid, of the machine that has its lease."""

    def __init__(self, database: Database, objects: Objects, note: Path) -> None:
        """Take the grid's file, the folder of its copies, and where this machine notes which one its file holds."""
        self._database = database
        self._objects = objects
        self._note_path = note
        self._digests: list[bytes] = []
        self._pushed: tuple[int, int] | None = None
        self._next: tuple[tuple[int, int], list[bytes]] = ((0, 0), [])

    # -- from here

    @property
    def is_changed(self) -> bool:
        """Whether something was committed since the last push."""
        return self._pushed != self._moment()

    def _moment(self) -> tuple[int, int]:
        # Of this connection's own changes, and of those of other processes: a user's wish comes from one of these.
        connection = self._database.connection
        return connection.total_changes, connection.execute("PRAGMA data_version").fetchone()[0]

    def push(self, head: Head) -> dict[str, Any]:
        """Write what has changed as a new part; return what becomes of the head, empty where nothing has changed.

        It holds once the head is written; then call ``pushed``.

        Raises:
            ServiceError: It cannot be written.
        """
        moment, content = self._moment(), self._content()
        digests = page_digests(content)
        changed = changed_pages(self._digests, digests)
        lease = self._lease_page()
        # Renewed with every step, and of this machine alone: whoever takes over forgets it.
        if head.parts and self._digests and changed in ([], [lease]):
            self._pushed = moment
            return {}
        self._next = (moment, digests)
        whole = not self._digests or len(head.parts) >= MOST_PARTS or head.changed_bytes > head.whole_bytes
        part = part_of(content, range(len(digests)) if whole else changed)
        number = head.number + 1
        # By the serial, too: a push whose head was never written is not to be written over by the next one.
        name = f"{PARTS}{number:08d}-{head.fence:06d}-{head.serial:08d}"
        self._objects.put(name, part)
        return {
            "number": number,
            "parts": (name,) if whole else (*head.parts, name),
            "whole_bytes": len(part) if whole else head.whole_bytes,
            "changed_bytes": 0 if whole else head.changed_bytes + len(part),
            "digest": digest_of(digests),
        }

    def pushed(self, head: Head) -> None:
        """Take note that the head names what was pushed, and remove what no head names any more."""
        self._pushed, self._digests = self._next
        self._write_note(head, head.number)
        if len(head.parts) == 1:
            # All are older than this whole one: parts of pushes that were never finished are among them.
            for name in self._objects.names(PARTS):
                if name < head.parts[0]:
                    self._objects.remove(name)

    def _content(self) -> bytes:
        connection = self._database.connection
        # One moment of it, whatever other processes write meanwhile.
        connection.execute("BEGIN")
        try:
            connection.execute("SELECT count(*) FROM lease").fetchone()
            return connection.serialize()
        finally:
            connection.execute("COMMIT")

    def _lease_page(self) -> int:
        row = self._database.connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'lease'").fetchone()
        # Counted from 1.
        return int(row[0]) - 1

    # -- to here

    def holds(self, head: Head) -> bool:
        """Whether this machine's file holds a copy already, or what came after it here."""
        noted = self._noted()
        return (noted.get("at"), noted.get("number")) == (self._objects.place, head.number)

    @property
    def was_shared(self) -> bool:
        """Whether this machine's file was one of these copies once."""
        return self._noted().get("at") == self._objects.place

    def is_gone(self, head: Head) -> bool:
        """Whether the controller that wrote a head ran on this machine, on this file, and has ended."""
        # Not by the name of the machine alone: two laptops may have one, and each sees no process of the other.
        return self._noted().get("holder") == head.holder and is_gone(head.owner)

    def note(self, head: Head) -> None:
        """Take note on this machine of who runs the grid, before anything else is written."""
        self._write_note(head, self._noted().get("number"))

    def restore(self, head: Head) -> None:
        """Have this machine's file hold a copy.

        Raises:
            InvalidRequest: It is of another raysm's tables.
            ServiceError: A part is missing.
        """
        connection = self._database.connection
        row = connection.execute("SELECT fence FROM lease").fetchone()
        with contextlib.closing(read_copy(self._objects, head)) as copy:
            copy.execute("DELETE FROM lease")
            # Above that of whoever had this file here: a process that sleeps is not to take it for its own.
            copy.execute("INSERT INTO lease VALUES (1, 'nobody', ?, 0)", ((row["fence"] if row else 0) + 1,))
            # The machine before may have called Create for these, and the call may be on its way yet.
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
            # None, or one that nobody can read: then the copy is brought anew.
            return {}
        return noted if isinstance(noted, dict) else {}

    def _write_note(self, head: Head, number: int | None) -> None:
        put(self._note_path, json.dumps({"at": self._objects.place, "number": number, "holder": head.holder}))


def read_copy(objects: Objects, head: Head) -> sqlite3.Connection:
    """Return the copy that a head names, as a database in memory.

    Raises:
        InvalidRequest: It is of another raysm's tables.
        ServiceError: A part is missing, or not as it was written.
    """
    content = join_parts(_part(objects, name) for name in head.parts)
    if digest_of(page_digests(content)) != head.digest:
        raise ServiceError(f"the copy {head.number} in {objects.place} is not as it was written", is_transient=True)
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    # A database in memory has no journal beside it, and one that says so is not opened: bytes 18 and 19 of the header,
    # https://sqlite.org/fileformat.html.
    copy.deserialize(content[:18] + b"\1\1" + content[20:])
    version = copy.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        copy.close()
        raise InvalidRequest(
            f"the grid in {objects.place} was written by another raysm: its tables are of version {version}, this one "
            f"reads {VERSION}; use the raysm that made it"
        )
    return copy


def _part(objects: Objects, name: str) -> bytes:
    part = objects.read(name)
    if part is None:
        # Removed by its owner after a newer whole copy: the head that named it is no more.
        raise ServiceError(f"{objects.place}/{name} is missing", code="NoSuchKey", is_transient=True)
    return part.content
