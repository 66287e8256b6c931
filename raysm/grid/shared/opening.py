"""A grid that is shared through a service's bucket: its name and service flow in, what holds and reads it flows out."""

import contextlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from raysm.client.conditional import Outdated
from raysm.client.service import Service
from raysm.contract.store import put
from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.database import MEMORY, this_process
from raysm.grid.shared.copies import Copies, read_copy
from raysm.grid.shared.elapsed import Elapsed
from raysm.grid.shared.head import Head, read_head
from raysm.grid.shared.lease import HEAD, SharedLease
from raysm.grid.shared.objects import Objects, S3Objects
from raysm.grid.shared.sharing import Sharing
from raysm.grid.shared.wishes import Wishes
from raysm.grid.store import Store

__all__ = ["copied", "objects_of", "share_secret", "sharing_of"]

SECRET = "secret"
"""Of which those of its jobs are made; these lie in the same bucket, as a part of each payload."""

READS = 3
"""Tries to read a copy whose parts its owner removes meanwhile, after a newer whole one."""


def objects_of(name: str, service: Service, kms_key: str | None = None) -> S3Objects:
    """Return the folder of a grid's copies in the service's bucket."""
    return S3Objects(service, service.places.grid(name), kms_key)


def sharing_of(store: Store, objects: Objects, path: Path, elapsed: Callable[[], float] | None = None) -> Sharing:
    """Return what holds a grid for a controller of this machine; nothing is read yet.

    Args:
        store: The grid's, on this machine.
        objects: The folder of its copies.
        path: Of the store.
        elapsed: A clock; None is this machine's.
    """
    lease = SharedLease(objects, this_process(), elapsed or Elapsed())
    return Sharing(store, lease, Copies(store.database, objects, path.with_suffix(".shared")), Wishes(objects))


def share_secret(path: Path, objects: Objects) -> None:
    """Have a grid's secret be the same on all machines; call it with the lease in hand.

    Drawn anew on a second machine, the payload of a Create that it repeats would be another job's.

    Args:
        path: Of the secret on this machine; it need not be there.
        objects: The folder of the grid's copies.
    """
    read = objects.read(SECRET)
    if read is None:
        secret = path.read_text(encoding="utf-8") if path.exists() else secrets.token_hex(32)
        try:
            objects.replace(SECRET, secret.encode(), None)
        except Outdated:
            # A call of this one's before, whose answer was lost; or of a controller that has lost the lease.
            read = objects.read(SECRET)
    secret = secret if read is None else read.content.decode()
    if not path.exists() or path.read_text(encoding="utf-8") != secret:
        put(path, secret, mode=0o600)


def copied(objects: Objects, name: str) -> Store:
    """Return the last copy of a grid, to look at: in memory, and nobody's but the caller's.

    Raises:
        InvalidRequest: There is none.
        ServiceError: S3 does not answer.
    """
    for left in reversed(range(READS)):
        head = _head(objects, name)
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


def _head(objects: Objects, name: str) -> Head:
    read = objects.read(HEAD)
    head = None if read is None else read_head(read.content)
    if head is None or not head.number:
        raise InvalidRequest(
            f"there is no grid {name!r} in {objects.place}; raysm grid run --shared makes one, and on AWS each run does"
        )
    return head
