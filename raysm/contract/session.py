"""What a session's two ends agree on: the routes of its server, and the values that travel.

A request for a call, and the answer, are each a *frame*: one line of JSON and, behind it, bytes that only their
receiver reads: a pickle, or the source of a cell. Every request is made under an id of the client's choosing and
may be repeated: a call is executed once, and a repeated call gets the same answer. Calls go as frames over the client's
WebSocket, each question with a number that its answer repeats; large ones go by HTTP. Standard library alone.
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
"""State of a job: its session takes calls, at the event's address, which is on the head's loopback."""
WARNING = "warning"
"""State of a job: its session will end soon, and why."""
CLOSING = "closing"
"""State of a job: its session ends, and why."""

# Six of them within lifetime.ATTACHED_S: one or two that are lost detach nobody.
HEARTBEAT_S = 5.0
"""How often a client says that it is there."""

MAX_BODY_BYTES = 2 << 30
"""Bytes of one request that the session holds in memory; files that are transferred have no limit."""

CALL = "call"
"""A pickled function with its arguments, in a process of its own on the head."""
BATCH = "batch"
"""A pickled function and several items, in a process of its own on any instance."""
SHELL = "shell"
"""A command, on an instance."""
SCATTER = "scatter"
"""A parcel that becomes an object of Ray's, whose pickled reference is the outcome."""
CELL = "cell"
"""Source, in the namespace of the session."""
PUSH = "push"
"""Pickled values by name, into the namespace."""
PULL = "pull"
"""Names of the namespace, whose values come back by name."""

# The states of a call; a client that does not know one of them waits on.
WAITING = "waiting"
RUNNING = "running"
DONE = "done"

DISPLAY = "display"
"""The stream of rich output: each piece is one display as JSON, with ``data``, ``metadata``, ``transient`` and
``update`` as in Jupyter's messages, or ``clear``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """What one end runs."""

    python: str
    """``3.11.9``."""
    ray: str
    """Empty where it is not installed."""
    cloudpickle: str
    """Empty where it is not installed."""
    raysm: str
    """raysm's own."""

    @property
    def pickles(self) -> str:
        """What decides whether another end reads this one's pickles: the first two numbers of Python's."""
        # cloudpickle sends functions as bytecode, which changes from one minor version to the next and within none.
        return ".".join(self.python.split(".")[:2])

    @staticmethod
    @functools.cache
    def here() -> "Versions":
        """Return those of this process; nothing is imported."""
        # Read of the installed packages' records: Ray alone would take seconds to be imported.
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
    """What is asked of the session."""

    kind: str
    """``CALL``, ``CELL`` …"""
    name: str
    """For people: ``train``."""
    client: str = ""
    """Who asks, and sees what it prints."""
    python: str = ""
    """``Versions.pickles`` of who pickled it; empty where nothing is pickled."""
    num_cpus: float = 0.0
    """CPUs that each of its processes takes."""
    num_gpus: float = 0.0
    """GPUs that each of its processes takes."""
    function: str = ""
    """Of a batch: the digest under which its function was sent."""
    first: int = 0
    """Of a batch: the number of its first item among all."""
    unpack: bool = False
    """Whether each item of a batch is a tuple of arguments."""
    retries: int = 0
    """How often an item of a batch is tried again."""
    return_exceptions: bool = False
    """Whether a batch goes on behind an item that failed."""
    host: str = ""
    """The instance it runs on; empty: its kind chooses."""
    args: tuple[str, ...] = ()
    """``sys.argv[1:]`` of a cell."""
    filename: str = ""
    """What tracebacks call the source of a cell; empty: the session numbers it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallStatus:
    """How a call is."""

    id: str
    """As its client named it."""
    kind: str
    """``CALL``, ``CELL`` …"""
    name: str
    """For people."""
    state: str
    """``WAITING``, ``RUNNING`` or ``DONE``."""
    failed: bool = False
    """Whether it is done, and has failed."""
    output_end: int = 0
    """Characters that it has printed."""
    took_s: float = 0.0
    """Seconds since it began to run, or that it ran."""
    bytes: int = 0
    """Of its outcome."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionState:
    """How a session is."""

    job: str
    """The job that it is."""
    versions: Versions
    """What it runs."""
    hosts: tuple[str, ...]
    """Its instances, the head first."""
    cpus: float
    """Of all instances together, for Ray."""
    gpus: float
    """Of all instances together, for Ray."""
    busy: int
    """Calls that wait or run, and jobs that were submitted to its Ray."""
    clients: int
    """Clients that are attached."""
    uptime_s: float
    """Since the head began."""
    ends_in_s: float | None
    """Until it ends if nothing happens; None while it is busy, or until its budget is spent."""
    ends_why: str
    """What then ends it, for people."""
    closing: str
    """Why it is ending just now; empty while it is not."""
    usd: float | None
    """What its instances have cost; None where no price is known."""
    usd_per_hour: float | None
    """What all instances together cost."""
    budget_usd: float | None
    """What it may cost."""
    folder: str
    """Where its calls and cells run, on the head, and relative paths lead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteError:
    """An exception, as far as every Python can read it."""

    type: str
    """Its class."""
    message: str
    """Its text."""
    traceback: str = ""
    """As Python prints it, without raysm's own frames."""
    host: str = ""
    """Where it was raised."""
    cancelled: bool = False
    """Whether it is how an interrupted call ends."""
    item: int | None = None
    """Of a batch: which item."""

    @property
    def headline(self) -> str:
        """Class and text; the class alone where it has no text."""
        return f"{self.type}: {self.message}".strip().removesuffix(":")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a call ended."""

    error: RemoteError | None = None
    """Why it failed; None where it did not."""
    pickled: Any = b""
    """Its value as a parcel, in one piece or a list; of a call that failed its exception, empty if that cannot be
    pickled."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """The value of a cell's last line as it shows itself, by MIME type; JSON."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """IPython's metadata for ``shown``, by MIME type."""

    def encode(self) -> bytes:
        """Return it as bytes."""
        return b"".join(self.pieces())

    def pieces(self) -> list[Piece]:
        """Return it as bytes in pieces."""
        # The value stays a pickle within the frame: whoever passes it on need not be able to read it.
        error = None if self.error is None else to_json(self.error)
        head = frame({"error": error, "shown": dict(self.shown), "metadata": dict(self.metadata)})
        return [head, *(self.pickled if isinstance(self.pickled, list) else [self.pickled])]

    @staticmethod
    def decode(content: Content) -> "Outcome":
        """Read what ``encode`` made.

        Raises:
            InvalidConfig: It is none.
        """
        head, pickled = unframe(content)
        error = None if head.get("error") is None else from_json(RemoteError, head["error"], "error")
        return Outcome(error=error, pickled=pickled, shown=head.get("shown", {}), metadata=head.get("metadata", {}))


def frame(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Return one line of JSON, and ``body`` behind it."""
    return padded_line(json.dumps(head).encode()) + body


def unframe(content: Content) -> tuple[dict[str, Any], Any]:
    """Return what ``frame`` was given; the body of bytes as bytes, else as a part of ``content``.

    Raises:
        InvalidConfig: It is no frame.
    """
    # JSON never has a newline of its own here: json.dumps writes those of texts as \n.
    end = content.find(b"\n")
    try:
        head = json.loads(content[:end])
    # RecursionError: a hostile head of a thousand brackets is no frame either.
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"no frame of a session: {error}") from error
    # Without a newline it may be cut off: half a head can still be whole JSON.
    if end < 0 or not isinstance(head, dict):
        raise InvalidConfig("no frame of a session: its first line is not a JSON object")
    return head, content[end + 1 :] if isinstance(content, bytes) else memoryview(content)[end + 1 :]


CHUNK_BYTES = 1 << 18


def relay(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes in both directions until both have ended, then close both sockets.

    Each direction ends by itself: after the end of a request the answer can still arrive.
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
