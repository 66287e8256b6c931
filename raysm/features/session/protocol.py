"""The protocol of a session: calls, their answers, and how they are sent.

A request for a call and its answer are each a *frame*: one line of JSON, followed by bytes that
only the receiver reads, such as a pickle or the source of a cell. The client chooses an id for each
call. It may repeat the request: the session executes the call once and gives the same answer again.

Frames are sent over the client's WebSocket; each question has a number, which its answer repeats.
Large values are sent over separate connections. This module uses only the standard library.
"""

import functools
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raysm.core.protocol.parcels import Content, Piece, padded_line
from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidConfig

SERVING = "session"
"""State of a job: its session accepts calls at the event's address on the head's loopback."""
WARNING = "warning"
CLOSING = "closing"

# lifetime.ATTACHED_S covers six heartbeats, so that a client stays attached if one or two are lost.
HEARTBEAT_S = 5.0

# Kinds of calls
CALL = "call"
"""Call a pickled function with its arguments in a separate process on the head."""
FUNCTION = "function"
"""Keep a pickled function for batches, under its digest."""
BATCH = "batch"
"""Call a pickled function with each of several items, in separate processes on any instance."""
SHELL = "shell"
SCATTER = "scatter"
"""Put a parcel into Ray's object store; the outcome is the pickled reference."""
TRANSFER = "transfer"
"""Copy a file between the head and the job's store. The body is JSON: ``path``, and a signed URL
``from`` or ``to``."""
JUPYTER = "jupyter"
"""Start a Jupyter server on the head, whose pages have the base path in the body; the outcome is
its name."""
CELL = "cell"
PUSH = "push"
PULL = "pull"

REMOTE_KINDS = (FUNCTION, BATCH, SHELL, SCATTER)
"""Kinds that run on any instance; those below are about the namespaces of cells."""
NAMESPACE_KINDS = (CELL, PUSH, PULL)

# States of a call. A client keeps waiting if it does not know a state.
WAITING = "waiting"
RUNNING = "running"
DONE = "done"

DISPLAY = "display"
"""The stream of rich output. Each piece is one display as JSON: ``data``, ``metadata``,
``transient`` and ``update`` as in Jupyter's messages, or ``clear``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """Versions of the software at one end; empty for a package that is not installed."""

    python: str
    ray: str
    cloudpickle: str
    raysm: str

    @property
    def pickle_version(self) -> str:
        """The part of Python's version that both ends must share to exchange pickles: ``3.11``."""
        # cloudpickle sends functions as bytecode, which changes only with the minor version.
        return ".".join(self.python.split(".")[:2])

    @staticmethod
    @functools.cache
    def here() -> "Versions":
        # From the metadata of the packages, because importing Ray would take seconds.
        import raysm
        from raysm.core.protocol.packages import installed_version

        ray, cloudpickle = (installed_version(name) or "" for name in ("ray", "cloudpickle"))
        return Versions(
            python=platform.python_version(),
            ray=ray,
            cloudpickle=cloudpickle,
            raysm=raysm.__version__,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRequest:
    """A request for a call. CPUs and GPUs are those of each of its processes."""

    kind: str
    name: str
    client: str = ""
    """The client that gets the output of the call."""
    python: str = ""
    """``Versions.pickle_version`` of the client that pickled the call; empty if none did."""
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    function: str = ""
    """The digest of a function, or of that of a batch."""
    first: int = 0
    """For a batch: the index of its first item in the map."""
    unpack: bool = False
    """For a batch: each item is a tuple of arguments."""
    retries: int = 0
    """For a batch: how often to retry an item."""
    return_exceptions: bool = False
    """For a batch: continue after an item that failed."""
    host: str = ""
    args: tuple[str, ...] = ()
    """For a cell: ``sys.argv[1:]``."""
    filename: str = ""
    """For a cell: its file name in tracebacks. If it is empty, the session numbers the cell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallStatus:
    id: str
    kind: str
    name: str
    state: str
    failed: bool = False
    output_end: int = 0
    """Number of characters that the call has printed."""
    took_s: float = 0.0
    bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionState:
    """The state of a session; CPUs, GPUs and prices are those of all instances together."""

    job: str
    versions: Versions
    hosts: tuple[str, ...]
    cpus: float
    gpus: float
    busy: int
    """Number of waiting and running calls, running Ray jobs and busy Jupyter kernels."""
    clients: int
    uptime_s: float
    ends_in_s: float | None
    """Seconds until the session ends if nothing happens. None while it is busy and has no
    budget."""
    ends_why: str
    closing: str
    """The reason why the session is ending now; empty if it is not."""
    usd: float | None
    usd_per_hour: float | None
    budget_usd: float | None
    folder: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteError:
    type: str
    message: str
    traceback: str = ""
    host: str = ""
    cancelled: bool = False
    item: int | None = None

    @property
    def headline(self) -> str:
        """Class and message, or only the class if the message is empty."""
        return f"{self.type}: {self.message}".strip().removesuffix(":")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    error: RemoteError | None = None
    pickled: Any = b""
    """The value, or the exception of a failure, as a parcel in one piece or in a list. Empty if the
    exception cannot be pickled."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """The representations of a cell's last value by MIME type, as JSON."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> list[Piece]:
        # The value stays pickled inside the frame, so that processes can forward it without being
        # able to load it.
        error = None if self.error is None else to_json(self.error)
        head = frame({"error": error, "shown": dict(self.shown), "metadata": dict(self.metadata)})
        return [head, *(self.pickled if isinstance(self.pickled, list) else [self.pickled])]

    @staticmethod
    def decode(content: Content) -> "Outcome":
        head, pickled = unframe(content)
        error = (
            None if head.get("error") is None else from_json(RemoteError, head["error"], "error")
        )
        return Outcome(
            error=error,
            pickled=pickled,
            shown=head.get("shown", {}),
            metadata=head.get("metadata", {}),
        )


def frame(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Return one line of JSON, followed by ``body``."""
    return padded_line(json.dumps(head).encode()) + body


def unframe(content: Content) -> tuple[dict[str, Any], Any]:
    """Split a frame into head and body: a slice of bytes, otherwise a view of ``content``."""
    # The JSON contains no newline, because json.dumps escapes newlines in strings.
    end = content.find(b"\n")
    try:
        head = json.loads(content[:end])
    # RecursionError: a hostile head may consist of thousands of brackets.
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"not a frame of a session: {error}") from error
    # Without a newline the head may be cut off, because a part of it can still be valid JSON.
    if end < 0 or not isinstance(head, dict):
        raise InvalidConfig("not a frame of a session: its first line is not a JSON object")
    view = content if isinstance(content, bytes) else memoryview(content)
    return head, view[end + 1 :]
