"""What users of other machines wish of a grid: objects that whoever runs it finds, does, and removes."""

import secrets
from collections.abc import Callable, Mapping

from raysm.errors import InvalidRequest
from raysm.grid.attempt import AGAIN
from raysm.grid.shared.objects import Objects
from raysm.grid.store import Store

__all__ = ["VERBS", "Wishes"]

FOLDER = "wishes/"


def _stop(store: Store, now: float) -> None:
    # A closed grid is run by nobody any more: it would be "stopping" for ever.
    if store.grid().state != "closed":
        store.change_grid("stopping", now, why="the user stops it", fenced=False)


def _retry(store: Store, now: float) -> None:
    store.again(AGAIN, now)


VERBS: Mapping[str, Callable[[Store, float], None]] = {"stop": _stop, "retry": _retry}
"""What can be wished. Done twice, as after a crash before its object was removed, each changes nothing more."""


class Wishes:
    """Those of one grid."""

    def __init__(self, objects: Objects) -> None:
        """Take the folder of the grid's copies."""
        self._objects = objects

    def leave(self, verb: str, now: float) -> None:
        """Leave a wish.

        Raises:
            InvalidRequest: Nobody knows what it means.
            ServiceError: It cannot be written.
        """
        if verb not in VERBS:
            raise InvalidRequest(f"of a grid elsewhere one can wish {', '.join(VERBS)}, got {verb!r}")
        # By their moments, so that a retry after a stop is done after it.
        self._objects.put(f"{FOLDER}{int(now * 1000):015d}-{secrets.token_hex(4)}-{verb}", b"")

    def grant(self, store: Store, now: float) -> None:
        """Do what is wished, the earliest first.

        Raises:
            ServiceError: They cannot be read.
        """
        for name in self._objects.names(FOLDER):
            verb = VERBS.get(name.rpartition("-")[2])
            # Of a newer raysm's: left for the one that knows it.
            if verb is not None:
                verb(store, now)
                self._objects.remove(name)
