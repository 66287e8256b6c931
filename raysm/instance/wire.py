"""The messages of the control channel between the head and its workers."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidRequest
from raysm.instance import lifecycle as life

MAX_TEXT = 500
"""Maximum length of a reason: JSON may take twelve bytes for a character, and a line has at most 8
KiB."""
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OutputsClaimed:
    """A question of a worker that ends: which of its outputs does another instance have too? It is not an event."""

    host: str
    keys: tuple[str, ...]
    """Keys of ``outputs.read_outputs``."""
    size_bytes: int
    """Size of all outputs of this worker, whose digests it may have to compute."""


@dataclass(frozen=True, slots=True)
class FileLeft:
    """A worker's description of a file of the result that the manifest does not list yet. It is not an event."""

    name: str
    size_bytes: int
    sha256: str


TO_WORKER = (life.Invited, life.JobEnded, life.OutputsTaken)
TO_HEAD = (life.RayLost, life.Lost, OutputsClaimed, FileLeft)


def encode(value: Any) -> Message:
    message = {"kind": type(value).__name__, **to_json(value)}
    message.pop("host", None)
    return message | ({"reason": message["reason"][:MAX_TEXT]} if "reason" in message else {})


def decode(message: Message, kinds: tuple[Any, ...], host: str = "") -> Any:
    """Return the value in a message of the peer ``host``; None if it is malformed or of another kind."""
    for kind in kinds:
        if kind.__name__ == message.get("kind"):
            known = {**message, "host": host}
            with contextlib.suppress(InvalidRequest):
                return from_json(
                    kind,
                    {each.name: known[each.name] for each in fields(kind) if each.name in known},
                )
    return None
