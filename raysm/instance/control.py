"""The control channel: one connection from every worker to the head.

Each side sends a heartbeat every second.

The head receives connections and messages, and passes ``Report`` values to a callback in the order
of the events. Ray notices a dead head after a minute; this channel notices at once if the
connection closes, and after the request's ``silence_s`` if nothing is received. One timer serves
all connections, so one process can handle 1,000 of them.

No library fits: gRPC may not be installed in the image when this starts,
``multiprocessing.connection`` needs a thread for each worker and reads pickles, and TLS with a
pre-shared key needs Python 3.13.
"""

import asyncio
import contextlib
import itertools
import resource
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from time import monotonic as clock
from typing import Any

from raysm.core.protocol.control_line import (
    CLIENT,
    HANDSHAKE_TIMEOUT_S,
    MAX_LINE,
    Line,
    ProtocolError,
    TokenRefused,
    greet_head,
    greet_worker,
    send_text,
)
from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidRequest
from raysm.instance import lifecycle as life


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    payload: str
    python: str
    """Version of Python, ``3.11.7``; Ray refuses even another patch level."""
    ray: str
    raysm: str

    def difference(self, other: Mapping[str, Any]) -> str | None:
        """Return how ``other``, a worker's identity, differs from this one, or None.

        This one is the head's.
        """
        for name, mine in asdict(self).items():
            theirs = other.get(name)
            if theirs == mine:
                continue
            if name == "payload":
                return (
                    "its payload is not the head's: "
                    "the digests differ, so it has another request or source"
                )
            return (
                f"it has {name} {theirs}, the head has {name} {mine}: "
                "use one image for all instances"
            )
        return None


BEAT_S = 1.0
LATE_BEATS = 3.5
"""Beats after which a peer counts as silent: three are missing, and the next may be on its way."""
MAX_BACKLOG = 256 * 1024
"""Maximum number of bytes that may wait for one peer; a peer with more has stopped reading."""
SPARE_STRANGERS = 64
"""Number of connections in their handshake, beyond one for each worker; a further one ends the
oldest of them."""
WELCOME_TIMEOUT_S = 30.0
"""Seconds for the head's welcome; a thousand workers may connect in the same second."""
CLOSE_S = 0.5
SPARE_FILES = 512
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MessageReceived:
    host: str
    message: Message


Report = life.Joined | life.Left | life.Lost | life.Mismatch | MessageReceived


class Refused(ProtocolError):
    """The head does not accept this worker."""


@dataclass(slots=True)
class _Peer:
    """The other end of a connection, and the time of its last message."""

    host: str
    line: Line
    heard_at: float
    leaving: bool = False
    dropped: str = ""


async def _beat(peers: Callable[[], Iterable[_Peer]], beat_s: float, silence_s: float) -> None:
    """Send a heartbeat to every peer each ``beat_s``, and drop silent peers; never return.

    A peer is silent if nothing came for ``silence_s``.
    """
    due = clock()
    for tick in itertools.count():
        # Twice a beat, so that a loss is found at most half a beat late.
        due += beat_s / 2
        await asyncio.sleep(max(0.0, due - clock()))
        late = clock() - due
        if late > beat_s:
            # This process itself was stopped or had no CPU, so the peers' messages are still
            # unread.
            for peer in peers():
                peer.heard_at += late
            due = clock()
        for peer in list(peers()):
            if tick % 2 == 0:
                peer.line.send({"kind": "beat"})
            if clock() - peer.heard_at > silence_s:
                peer.dropped = f"said nothing for {silence_s:g} s"
            elif peer.line.buffered() > MAX_BACKLOG:
                peer.dropped = "does not take what is sent to it"
            if peer.dropped:
                peer.line.abort()


async def _listen(peer: _Peer, deliver: Callable[[Message], None]) -> str:
    """Deliver the messages of ``peer`` until the connection ends; return the reason as text."""
    try:
        while True:
            message = await peer.line.receive()
            peer.heard_at = clock()
            if message.get("kind") == "bye":
                peer.leaving = True
            elif message.get("kind") != "beat":
                deliver(message)
    except ProtocolError as error:
        return str(error)
    except OSError:
        # A connection that this side has dropped also ends with an OSError here.
        return peer.dropped or "closed its connection"


class HeadControl:
    def __init__(
        self,
        *,
        token: bytes,
        identity: Identity,
        hosts: Iterable[str],
        report: Callable[[Report], None],
        silence_s: float,
        beat_s: float = BEAT_S,
        answer: Callable[[Message], Awaitable[str]] | None = None,
    ) -> None:
        self._token = token
        self._identity = identity
        self._report = report
        # Answers the question of a client that has the job's token; it runs in this channel's loop.
        self._answer = answer
        self._expected = frozenset(hosts)
        self._beat_s = beat_s
        self._silence_s = silence_s
        self._peers: dict[str, _Peer] = {}
        # A lost worker is not accepted again, because its Ray node and its files are gone.
        self._seen: set[str] = set()
        # Connections in their handshake, the oldest first.
        self._strangers: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None
        self._pulse: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        # Only counted, because a port scan must not end a job.
        self.refused = 0
        """Number of connections without the token."""

    @property
    def joined(self) -> frozenset[str]:
        return frozenset(self._peers)

    @property
    def silent(self) -> frozenset[str]:
        """The connected workers whose last heartbeats are missing, but which are not lost yet."""
        late = clock() - LATE_BEATS * self._beat_s
        # list() copies atomically, because another thread reads this property.
        return frozenset(host for host, peer in list(self._peers.items()) if peer.heard_at < late)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, address: str, port: int) -> None:
        _allow_files(len(self._expected) + SPARE_FILES)
        # All workers of a large job connect in the same second.
        self._server = await asyncio.start_server(
            self._serve, address, port, limit=MAX_LINE, backlog=4096
        )
        self._pulse = asyncio.create_task(_beat(self._peers.values, self._beat_s, self._silence_s))

    def tell(self, host: str, message: Message) -> None:
        if host in self._peers:
            self._peers[host].line.send(dict(message))

    def tell_all(self, message: Message) -> None:
        for host in self._peers:
            self.tell(host, message)

    async def close(self) -> None:
        if self._pulse:
            self._pulse.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pulse
        if self._server:
            self._server.close()
        for peer in list(self._peers.values()):
            # Otherwise they would be reported as lost at the end of a successful job.
            peer.leaving = True
            peer.line.close()
        if self._serving:
            await asyncio.wait(self._serving, timeout=CLOSE_S)
        # The remaining connections are in their handshake, or their peers are frozen and read
        # nothing.
        for task in list(self._serving):
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._handle(reader, writer)
        except asyncio.CancelledError:  # by close
            writer.transport.abort()
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._serving.discard(task)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A handshake may take ten seconds. At the limit the oldest connection is dropped and not
        # the new one, which may be a worker: its handshake takes milliseconds, so an attacker
        # cannot open enough connections meanwhile.
        if len(self._strangers) >= len(self._expected) + SPARE_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        self._strangers[writer] = None
        try:
            peer = await self._admit(reader, writer)
        except TokenRefused:
            self.refused += 1
            peer = None
        except (TimeoutError, ProtocolError, OSError):
            peer = None
        finally:
            self._strangers.pop(writer, None)
        if peer:
            reason = await _listen(
                peer, lambda message: self._report(MessageReceived(peer.host, message))
            )
            # Reported first: the head must not see the peer neither silent nor lost in between.
            self._report(life.Left(peer.host) if peer.leaving else life.Lost(peer.host, reason))
            del self._peers[peer.host]

    async def _admit(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> _Peer | None:
        host, line = await greet_worker(reader, writer, self._token)
        hello = await asyncio.wait_for(line.receive(), HANDSHAKE_TIMEOUT_S)
        if host == CLIENT and self._answer is not None:
            # It is no stranger any more: its answer may take seconds.
            self._strangers.pop(writer, None)
            await send_text(line, await self._answer(hello))
            return None
        reason = None
        if host not in self._expected:
            reason = f"{host[:80]!r} is no worker of this job"
        elif host in self._seen:
            reason = f"{host} has joined already"
        else:
            difference = self._identity.difference(hello)
            if difference:
                reason = f"{host} does not fit: {difference}"
                self._report(life.Mismatch(host, reason))
        if reason:
            line.send({"kind": "refused", "reason": reason})
            return None
        # Sent before it becomes a peer, because its first line must not be a heartbeat.
        line.send({"kind": "welcome"})
        self._seen.add(host)
        peer = self._peers[host] = _Peer(host, line, clock())
        self._report(life.Joined(host))
        return peer


def _allow_files(count: int) -> None:
    # A soft limit of 1,024 is common, and a job may have a thousand workers.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


class WorkerControl:
    def __init__(self, head: str, line: Line, beat_s: float, silence_s: float) -> None:
        self._peer = _Peer(head, line, clock())
        self._beat_s = beat_s
        self._silence_s = silence_s

    @property
    def addresses(self) -> tuple[str, str]:
        return self._peer.line.addresses()

    def tell(self, message: Message) -> None:
        self._peer.line.send(dict(message))

    async def run(self, report: Callable[[Report], None]) -> None:
        """Report the head's messages until the head is lost, which is the last report."""
        pulse = asyncio.create_task(_beat(lambda: [self._peer], self._beat_s, self._silence_s))
        try:
            host = self._peer.host
            reason = await _listen(
                self._peer, lambda message: report(MessageReceived(host, message))
            )
            report(life.Lost(host, reason))
        finally:
            pulse.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pulse

    async def leave(self) -> None:
        self._peer.line.send({"kind": "bye"})
        # A frozen head reads nothing, and must not delay a worker that has two seconds to end.
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._peer.line.drain(), 1)
        self._peer.line.close()


async def join(
    connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]],
    *,
    token: bytes,
    host: str,
    head: str,
    identity: Identity,
    silence_s: float,
    beat_s: float = BEAT_S,
) -> WorkerControl:
    """Connect to the head, once, with ``limit=MAX_LINE``, and wait for its welcome.

    TokenRefused and Refused are final; after OSError, TimeoutError and other ProtocolErrors a retry
    may help.
    """
    reader, writer = await connect()
    try:
        line = await greet_head(reader, writer, token, host)
        line.send({"kind": "hello", **asdict(identity)})
        answer = await asyncio.wait_for(line.receive(), WELCOME_TIMEOUT_S)
    except BaseException:
        # BaseException includes the cancellation by a deadline.
        writer.close()
        raise
    if answer.get("kind") != "welcome":
        writer.close()
        raise Refused(str(answer.get("reason", "the head refuses this instance without a reason")))
    return WorkerControl(head, line, beat_s, silence_s)


# Messages

MAX_REASON = 500
"""Maximum length of a reason: JSON may take twelve bytes for a character, and a line has at most 8
KiB."""


@dataclass(frozen=True, slots=True)
class OutputsClaimed:
    """A question of a worker that ends: which of its outputs does another instance have, too?

    The question is not an event.
    """

    host: str
    keys: tuple[str, ...]
    """Keys of ``outputs.read_outputs``."""
    size_bytes: int
    """Size of all outputs of this worker, whose digests it may have to compute."""


@dataclass(frozen=True, slots=True)
class FileLeft:
    """A worker's description of a file of the result that the manifest does not list yet.

    The description is not an event.
    """

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What stacks are to have besides Python's frames."""

    native: bool = False
    """Native frames, by py-spy."""
    answers: bool = False
    """Coroutines, and the last collectives of ranks, for which torch holds the GIL for 0.1 s."""


LEAN = Wanted()


@dataclass(frozen=True, slots=True)
class StacksWanted:
    """A question of the head: the stacks of a worker's processes. It is not an event."""

    number: int
    """Of the question; answers to an earlier one are dropped."""
    wanted: Wanted = LEAN


@dataclass(frozen=True, slots=True)
class StacksPart:
    """A part of a worker's answer to ``StacksWanted``. It is not an event."""

    host: str
    number: int
    text: str
    """A piece of ``raysm.core.protocol.stacks.pack``'s."""
    is_last: bool


@dataclass(frozen=True, slots=True)
class CheckpointWanted:
    """A question of the head: has a worker saved any checkpoint files? It is not an event."""


@dataclass(frozen=True, slots=True)
class CheckpointFound:
    """A worker's answer to ``CheckpointWanted``. It is not an event."""

    host: str
    is_there: bool


TO_WORKER = (life.Invited, life.JobEnded, life.OutputsTaken, StacksWanted, CheckpointWanted)
TO_HEAD = (
    life.RayLost,
    life.Lost,
    life.Checking,
    life.Checked,
    OutputsClaimed,
    FileLeft,
    StacksPart,
    CheckpointFound,
)


def encode(value: Any) -> Message:
    message = {"kind": type(value).__name__, **to_json(value)}
    message.pop("host", None)
    return message | ({"reason": message["reason"][:MAX_REASON]} if "reason" in message else {})


def decode(message: Message, kinds: tuple[Any, ...], host: str = "") -> Any:
    """Return the value in a message of the peer ``host``; None if malformed or of another kind."""
    for kind in kinds:
        if kind.__name__ == message.get("kind"):
            known = {**message, "host": host}
            with contextlib.suppress(InvalidRequest):
                return from_json(
                    kind,
                    {each.name: known[each.name] for each in fields(kind) if each.name in known},
                )
    return None
