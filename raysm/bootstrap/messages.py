"""What head and workers tell each other once they are connected: values on this side, small JSON objects on the line.

Every kind of message stands here once, with its writer and its reader. What is not known is passed over: it cannot be
anybody else's, because every line is authenticated.
"""

from collections.abc import Mapping
from typing import Any

from raysm.bootstrap.lifecycle import Happening, Invited, JobEnded, Lost, RayLost

__all__ = ["invite_to_ray", "read_from_head", "read_from_worker", "tell_end", "tell_failure", "tell_ray_loss"]

MAX_TEXT = 500
"""Characters of a reason: JSON may take twelve bytes for one, and a line has at most 8 KiB."""

Message = Mapping[str, Any]


def invite_to_ray(port: int) -> Message:
    """Return the head's word that its Ray answers, and where its GCS listens."""
    return {"kind": "ray", "port": port}


def tell_end(exit_code: int, reason: str) -> Message:
    """Return the head's word that the job is over; ``reason`` is empty where nothing failed."""
    return {"kind": "done", "exit_code": exit_code, "reason": reason[:MAX_TEXT]}


def read_from_head(message: Message) -> Happening | None:
    """Return what a message of the head means to a worker; None for an unknown one."""
    match message:
        # By its form, not by its kind alone: a port that is no number would fail the worker with a traceback.
        case {"kind": "ray", "port": int(port)}:
            return Invited(port)
        case {"kind": "done"}:
            return JobEnded(str(message.get("reason", "")))
    return None


def tell_ray_loss(reason: str) -> Message:
    """Return a worker's word that its Ray node has ended, and is started again."""
    return {"kind": "ray_lost", "reason": reason[:MAX_TEXT]}


def tell_failure(reason: str) -> Message:
    """Return a worker's word that it fails, and so will be gone."""
    return {"kind": "failed", "reason": reason[:MAX_TEXT]}


def read_from_worker(host: str, message: Message) -> Happening | None:
    """Return what a message of the worker ``host`` means to the head; None for an unknown one."""
    reason = str(message.get("reason", ""))
    match message.get("kind"):
        case "ray_lost":
            return RayLost(host, reason)
        case "failed":
            return Lost(host, reason)
    return None
