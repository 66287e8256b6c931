"""The protocol of a session: calls, their answers, and how they travel.

A request for a call, and its answer, are each a *frame*: one line of JSON, followed by bytes that only the receiver
reads, such as a pickle or the source of a cell. The client chooses an id for each request and may repeat the request:
the call is executed once, and the repetition gets the same answer. Frames travel over the client's WebSocket, where an
answer repeats the number of its request; large ones travel by HTTP. This module needs only the standard library.
"""

import contextlib
import functools
import json
import platform
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raysm.contract.parcels import Content, Piece, padded_line
from raysm.errors import InvalidConfig
from raysm.request.codec import from_json, to_json

SERVING = "session"
"""State of a job: its session takes calls at the event's address, which is on the head's loopback."""
WARNING = "warning"
"""State of a job: its session will end soon; the detail says why."""
CLOSING = "closing"
"""State of a job: its session ends; the detail says why."""

# Six heartbeats fit into lifetime.ATTACHED_S, so one or two lost ones do not detach a client.
HEARTBEAT_S = 5.0
"""Seconds between the heartbeats of a client."""

MAX_BODY_BYTES = 2 << 30
"""Maximum size of a request, which the session holds in memory; transferred files have no limit."""

# Kinds of calls
CALL = "call"
"""A pickled function with its arguments, in a process of its own on the head."""
BATCH = "batch"
"""A pickled function and several items, in a process of its own on any instance."""
SHELL = "shell"
"""A shell command on an instance."""
SCATTER = "scatter"
"""A parcel to put into Ray's object store; the outcome is a pickled reference to it."""
CELL = "cell"
"""Source code to run in the namespace of the session."""
PUSH = "push"
"""Pickled values, by name, to set in the namespace."""
PULL = "pull"
"""Names whose values in the namespace are the outcome."""

# States of a call; a client keeps waiting in a state that it does not know.
WAITING = "waiting"
RUNNING = "running"
DONE = "done"

DISPLAY = "display"
"""The stream of rich output: each piece is one display as JSON, with ``data``, ``metadata``, ``transient`` and
``update`` as in Jupyter's messages, or ``clear``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """Versions of the software at one end."""

    python: str
    """``3.11.9``."""
    ray: str
    """Empty if it is not installed."""
    cloudpickle: str
    """Empty if it is not installed."""
    raysm: str

    @property
    def pickles(self) -> str:
        """The version that both ends must share to read each other's pickles: the first two numbers of Python's."""
        # cloudpickle sends functions as bytecode, which changes from one minor version to the next and within none.
        return ".".join(self.python.split(".")[:2])

    @staticmethod
    @functools.cache
    def here() -> "Versions":
        """Return the versions in this process, from the packages' metadata, because importing Ray takes seconds."""
        from importlib import metadata

        import raysm

        def version(name: str) -> str:
            try:
                return metadata.version(name)
            except metadata.PackageNotFoundError:
                return ""

        return Versions(
            python=platform.python_version(),
            ray=version("ray"),
            cloudpickle=version("cloudpickle"),
            raysm=raysm.__version__,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRequest:
    """A request for a call."""

    kind: str
    """``CALL``, ``CELL`` …"""
    name: str
    """Name for messages: ``train``."""
    client: str = ""
    """The client that sees what the call prints."""
    python: str = ""
    """``Versions.pickles`` of the client that pickled the call; empty if nothing is pickled."""
    num_cpus: float = 0.0
    """CPUs of each of its processes."""
    num_gpus: float = 0.0
    """GPUs of each of its processes."""
    function: str = ""
    """For a batch: the digest under which its function was sent."""
    first: int = 0
    """For a batch: the number of its first item among all items."""
    unpack: bool = False
    """For a batch: True if each item is a tuple of arguments."""
    retries: int = 0
    """For a batch: maximum number of retries of an item."""
    return_exceptions: bool = False
    """For a batch: continue after an item that failed."""
    host: str = ""
    """The instance to run on; empty leaves the choice to the kind."""
    args: tuple[str, ...] = ()
    """For a cell: ``sys.argv[1:]``."""
    filename: str = ""
    """For a cell: the name of its source in tracebacks; empty lets the session number it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallStatus:
    """The status of a call."""

    id: str
    """Chosen by the client."""
    kind: str
    name: str
    state: str
    """``WAITING``, ``RUNNING`` or ``DONE``."""
    failed: bool = False
    output_end: int = 0
    """Number of characters that it has printed."""
    took_s: float = 0.0
    """Seconds that it has run."""
    bytes: int = 0
    """Size of its outcome."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionState:
    """The state of a session."""

    job: str
    """Name of the session's job."""
    versions: Versions
    hosts: tuple[str, ...]
    """Its instances, the head first."""
    cpus: float
    """CPUs of all instances together, for Ray."""
    gpus: float
    """GPUs of all instances together, for Ray."""
    busy: int
    """Number of calls that wait or run, and of jobs that were submitted to its Ray."""
    clients: int
    """Number of attached clients."""
    uptime_s: float
    """Seconds since the start of the head."""
    ends_in_s: float | None
    """Seconds until it ends if nothing happens; None while it is busy, unless a budget ends it."""
    ends_why: str
    """The reason of that end."""
    closing: str
    """The reason why it is ending now; empty if it is not."""
    usd: float | None
    """Costs so far; None if no price is known."""
    usd_per_hour: float | None
    """Costs of all instances together; None if no price is known."""
    budget_usd: float | None
    """Maximum costs; None is no limit."""
    folder: str
    """The folder on the head where its calls and cells run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteError:
    """An exception in a form that every Python can read."""

    type: str
    """Name of its class."""
    message: str
    traceback: str = ""
    """The traceback as Python prints it, without raysm's own frames."""
    host: str = ""
    """The instance where it was raised."""
    cancelled: bool = False
    """True for the end of an interrupted call."""
    item: int | None = None
    """For a batch: the number of the item."""

    @property
    def headline(self) -> str:
        """Class and text; the class alone if it has no text."""
        return f"{self.type}: {self.message}".strip().removesuffix(":")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of a call."""

    error: RemoteError | None = None
    """The error of a failed call; None if the call succeeded."""
    pickled: Any = b""
    """The value as a parcel, in one piece or a list; for a failed call the exception, or empty if that cannot be
    pickled."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """The rich representations of the value of a cell's last line, by MIME type, as JSON."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """IPython's metadata for ``shown``, by MIME type."""

    def encode(self) -> bytes:
        """Return it as bytes."""
        return b"".join(self.pieces())

    def pieces(self) -> list[Piece]:
        """Return it as bytes in pieces."""
        # The value stays pickled inside the frame, so that intermediate processes need not unpickle it.
        error = None if self.error is None else to_json(self.error)
        head = frame({"error": error, "shown": dict(self.shown), "metadata": dict(self.metadata)})
        return [head, *(self.pickled if isinstance(self.pickled, list) else [self.pickled])]

    @staticmethod
    def decode(content: Content) -> "Outcome":
        """Parse the bytes that ``encode`` returned.

        Raises:
            InvalidConfig: They are not an outcome.
        """
        head, pickled = unframe(content)
        error = None if head.get("error") is None else from_json(RemoteError, head["error"], "error")
        return Outcome(error=error, pickled=pickled, shown=head.get("shown", {}), metadata=head.get("metadata", {}))


def frame(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Return one line of JSON, followed by ``body``."""
    return padded_line(json.dumps(head).encode()) + body


def unframe(content: Content) -> tuple[dict[str, Any], Any]:
    """Split a frame into head and body; the body of ``bytes`` is a copy, otherwise a view of ``content``.

    Raises:
        InvalidConfig: ``content`` is not a frame.
    """
    # The first newline ends the head, because json.dumps escapes newlines.
    end = content.find(b"\n")
    try:
        head = json.loads(content[:end])
    # A hostile head of a thousand brackets raises RecursionError.
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"no frame of a session: {error}") from error
    # A head without a newline may be incomplete, although it is valid JSON.
    if end < 0 or not isinstance(head, dict):
        raise InvalidConfig("no frame of a session: its first line is not a JSON object")
    return head, content[end + 1 :] if isinstance(content, bytes) else memoryview(content)[end + 1 :]


CHUNK_BYTES = 1 << 18


def relay(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes in both directions until both have ended, then close both sockets.

    The directions end separately, so that an answer can still arrive after the end of the request.
    """
    with one, other:
        back = threading.Thread(target=_pass_on, args=(other, one), name="relay", daemon=True)
        back.start()
        _pass_on(one, other)
        back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
    except OSError:
        # Nothing more can be passed on either way.
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
