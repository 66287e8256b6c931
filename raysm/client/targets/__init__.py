"""What the client does at each kind of target: where it connects, where things lie, how it waits.

A further target is its class in ``raysm.request.targets``, its module here, and one line below. A module is imported
when its target is used.
"""

import pkgutil
from typing import Any

from raysm.client.targets.connection import SET_REGION, Bucket, Clients, Connection, Resolved
from raysm.errors import InvalidRequest

__all__ = ["Bucket", "CONNECTIONS", "Clients", "Connection", "Resolved", "SET_REGION", "connection_to"]

CONNECTIONS: dict[str, str] = {
    "aws": "raysm.client.targets.aws:AWSConnection",
    "local": "raysm.client.targets.local:LocalConnection",
}
"""The class of each kind of target, ``module:Class``."""


def connection_to(target: Any) -> Connection:
    """Return the connection of a target; nothing is asked yet.

    Raises:
        InvalidRequest: It is none.
    """
    # A class has the kind of its values, and none of their fields.
    path = None if isinstance(target, type) else CONNECTIONS.get(str(getattr(target, "kind", "")))
    if path is None:
        raise InvalidRequest(f"on must be raysm.AWS(role=…) or raysm.Local(), got {target!r}")
    connection: Connection = pkgutil.resolve_name(path)(target)
    return connection
