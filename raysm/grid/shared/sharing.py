"""A controller's hold on a grid that several machines may run: nothing is sent that another one could not take up.

What flows in are the moments at which the controller is about to act; what flows out is that it may, or an exception
that ends its step. The rule of the intent holds across machines by it: an intent is in S3 before Create is called.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.database import LeaseLost
from raysm.grid.shared.copies import Copies
from raysm.grid.shared.lease import RENEW_S, SURE_S, SharedLease, Unreachable
from raysm.grid.shared.wishes import Wishes
from raysm.grid.store import Store

__all__ = ["Sharing"]

_log = logging.getLogger("raysm")


class Sharing:
    """One grid, shared."""

    def __init__(self, store: Store, lease: SharedLease, copies: Copies, wishes: Wishes) -> None:
        """Take the grid's store on this machine, and its lease, copies and wishes in S3; nothing is read yet."""
        self._store = store
        self._lease = lease
        self._copies = copies
        self._wishes = wishes
        # Names of attempts whose intents another machine would find.
        self._covered: set[str] = set()

    def take(self, sleep: Callable[[float], Any] | None = None) -> None:
        """Become the grid's controller on all machines, and have the file of this one hold what is known of it.

        Raises:
            InvalidRequest: There is another grid of this name on this machine.
            LeaseLost: Another controller has it.
            ServiceError: S3 does not answer.
        """
        self._lease.take(sleep, self._copies.is_gone)
        self._store.database.between("after shared lease")
        head = self._lease.head
        self._copies.note(head)
        if not head.number or self._copies.holds(head):
            return
        try:
            self._refuse_another(head.run)
            self._copies.restore(head)
        except InvalidRequest:
            self._lease.release()
            raise

    def _refuse_another(self, run: str) -> None:
        row = self._store.database.connection.execute("SELECT name, run FROM grid").fetchone()
        if row is not None and row["run"] != run:
            raise InvalidRequest(
                f"there are two grids {row['name']!r}: one on this machine, and another one that was shared from "
                "elsewhere; give this one another --name"
            )
        if row is not None and self._copies.was_shared:
            _log.info("another machine has gone on with the grid %s: what it knows is taken over", row["name"])

    def hold(self, now: float) -> None:
        """Make sure of the lease, and have what is new be found by others; what others wish is done.

        Args:
            now: Seconds since the epoch, for what happens by a wish.

        Raises:
            LeaseLost: Another controller has taken the grid: nothing may be sent.
            Unreachable: Nobody knows: nothing may be sent until this returns.
        """
        if self._lease.silence_s < RENEW_S:
            return
        try:
            self._wishes.grant(self._store, now)
            self._push()
        except ServiceError as error:
            # A moment without S3 harms nobody as long as nobody else can have the lease.
            if self._lease.silence_s >= SURE_S:
                raise Unreachable(f"the grid's lease cannot be renewed: {error}") from error

    def cover(self, attempt: str) -> None:
        """Return when another machine would find the intent of an attempt, and none has taken the grid.

        Raises:
            LeaseLost: Another controller has taken it.
            Unreachable: Nobody knows.
        """
        # Within a call of one region, and the others' go on beside it: they use the same store.
        with self._store.database.turns.back():
            self._cover(attempt)

    def _cover(self, attempt: str) -> None:
        try:
            if attempt not in self._covered or self._lease.silence_s >= RENEW_S:
                self._push()
        except ServiceError as error:
            raise Unreachable(f"the grid's intents cannot be kept: {error}") from error
        # Written, and then the machine fell asleep: what S3 said is too old to act on.
        if self._lease.silence_s >= SURE_S:
            raise Unreachable("the grid's lease was renewed too long ago")

    def assure(self) -> None:
        """Return when S3 has just said that the lease is this controller's; raises as ``cover``."""
        self.cover("")

    def _push(self) -> None:
        between = self._store.database.between
        owed = {attempt.name for attempt in self._store.owed()}
        changes: dict[str, Any] = {}
        if self._copies.is_changed:
            between("before part")
            changes = self._copies.push(self._lease.head)
            between("after part")
            row = self._store.database.connection.execute("SELECT run FROM grid").fetchone()
            changes |= {"run": row["run"]} if row else {}
        self._lease.write(**changes)
        between("after head")
        self._covered = owed
        if "number" in changes:
            self._copies.pushed(self._lease.head)
            between("after push")

    def close(self) -> None:
        """Leave all that is known to others, and let them take the grid at once."""
        with contextlib.suppress(LeaseLost):
            try:
                self._push()
                self._lease.release()
            except ServiceError as error:
                _log.warning("the grid's lease is not let go of, and ends by itself: %s", error)
