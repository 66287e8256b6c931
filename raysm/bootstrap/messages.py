"""Messages between head and workers: Python values here, small JSON objects on the connection.

Each kind of message has its writer and its reader here. Unknown kinds are ignored; they cannot come from a stranger,
because every line is authenticated.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.bootstrap.lifecycle import Happening, Invited, JobEnded, Lost, OutputsTaken, RayLost

MAX_TEXT = 500
"""Characters of a reason: JSON may take twelve bytes for one, and a line has at most 8 KiB."""

Message = Mapping[str, Any]


def invite_to_ray(port: int) -> Message:
    """Return the head's word that its Ray answers, and where its GCS listens."""
    return {"kind": "ray", "port": port}


def tell_end(exit_code: int, reason: str) -> Message:
    """Return the head's word that the job is over; ``reason`` is empty where nothing failed."""
    return {"kind": "done", "exit_code": exit_code, "reason": reason[:MAX_TEXT]}


def tell_taken(keys: Iterable[str], undescribed: Iterable[str] = ()) -> Message:
    """Return the head's answer to ``claim_outputs``.

    Args:
        keys: The outputs that the job has from another instance.
        undescribed: Other outputs, which the manifest does not list yet.
    """
    return {"kind": "taken", "keys": list(keys), "undescribed": list(undescribed)}


def read_from_head(message: Message) -> Happening | None:
    """Return what a message of the head means to a worker; None for an unknown one."""
    match message:
        # By its form, not by its kind alone: a port that is no number would fail the worker with a traceback.
        case {"kind": "ray", "port": int(port)}:
            return Invited(port)
        case {"kind": "done"}:
            return JobEnded(str(message.get("reason", "")))
        case {"kind": "taken", "keys": [*keys], "undescribed": [*undescribed]}:
            return OutputsTaken(frozenset(map(str, keys)), frozenset(map(str, undescribed)))
    return None


def tell_ray_loss(reason: str) -> Message:
    """Return a worker's word that its Ray node has ended, and is started again."""
    return {"kind": "ray_lost", "reason": reason[:MAX_TEXT]}


def tell_failure(reason: str) -> Message:
    """Return a worker's word that it fails, and so will be gone."""
    return {"kind": "failed", "reason": reason[:MAX_TEXT]}


@dataclass(frozen=True, slots=True)
class OutputsClaimed:
    """A worker that ends asks which of its outputs the job has from another instance. Nothing is decided by it."""

    host: str
    keys: tuple[str, ...]
    """As ``outputs.read_outputs`` makes them."""
    size_bytes: int
    """Size of all outputs of this worker, of which it may have to compute digests."""


def claim_outputs(keys: Iterable[str], size_bytes: int) -> Message:
    """Return a worker's question whose its outputs are; ``tell_taken`` is the answer."""
    return {"kind": "outputs", "keys": list(keys), "bytes": size_bytes}


@dataclass(frozen=True, slots=True)
class FileLeft:
    """A worker leaves a file of the result that the manifest does not list yet. Nothing is decided by it."""

    name: str
    """Relative to the model folder."""
    size_bytes: int
    sha256: str


def tell_file(file: FileLeft) -> Message:
    """Return a worker's description of a file, for the manifest."""
    return {"kind": "file", "name": file.name, "bytes": file.size_bytes, "sha256": file.sha256}


def read_from_worker(host: str, message: Message) -> Happening | OutputsClaimed | FileLeft | None:
    """Return what a message of the worker ``host`` means to the head; None for an unknown one."""
    match message:
        case {"kind": "outputs", "keys": [*keys], "bytes": int(size_bytes)}:
            return OutputsClaimed(host, tuple(map(str, keys)), size_bytes)
        case {"kind": "file", "name": str(name), "bytes": int(size_bytes), "sha256": str(sha256)}:
            return FileLeft(name, size_bytes, sha256)
    # As text, whatever came: a worker that is going has to be heard, and must not fail the head.
    reason = str(message.get("reason", ""))
    match message.get("kind"):
        case "ray_lost":
            return RayLost(host, reason)
        case "failed":
            return Lost(host, reason)
    return None
