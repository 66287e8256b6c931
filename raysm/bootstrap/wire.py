"""Handshake and lines of the control channel: newline-terminated JSON, authenticated with the job's token.

::

    head    {"raysm": 1, "nonce": N}                    a fresh number, to everyone who connects
    worker  {"host": h, "nonce": M, "proof": P}         P = HMAC(token, "worker" N M h)
    head    {"proof": Q}                                Q = HMAC(token, "head" N M h), only after a valid P
    both    MAC {"kind": ..., ...}                      MAC = HMAC(key of this connection, direction, number, text)

The token is never sent. The head answers no challenge before the other side has proved that it has the token. Replaying
a recorded line fails, because nonces are fresh and lines are numbered. A changed line ends the connection.

Lines are authenticated but not encrypted: they contain no secrets, and TLS would need certificates for names that
exist only during the job. SageMaker can encrypt traffic between containers.
"""

import asyncio
import hmac
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.bootstrap.lifecycle import Happening, Invited, JobEnded, Lost, OutputsTaken, RayLost
from raysm.errors import ClusterError

VERSION = 1
MAX_GREETING = 1024
"""Bytes that a peer who has proved nothing may send."""
MAX_LINE = 8 * 1024
"""Bytes of one line of a peer who has; the limit of every stream, so that no stranger fills the memory."""
HANDSHAKE_TIMEOUT_S = 10.0
"""Seconds that a peer has to prove itself."""


class ProtocolError(ClusterError):
    """The peer does not speak this protocol, or speaks it wrongly."""


class TokenRefused(ProtocolError):
    """The peer was told another token, or none."""


class Line:
    """One authenticated connection: numbered messages, each with its MAC.

    Raises (all methods that read):
        ProtocolError: A line is too long, is no JSON object, or its MAC is wrong.
        ConnectionError: The connection is closed.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes, side: bytes) -> None:
        self._reader, self._writer, self._key = reader, writer, key
        # By direction, so that a line that is sent back to who wrote it does not verify.
        self._out, self._in = (b"head", b"worker") if side == b"head" else (b"worker", b"head")
        self._sent = self._received = 0

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message; a closed connection swallows it, and the reader's side finds out."""
        text = json.dumps(message).encode()
        mac = _mac(self._key, self._out, b"%d" % self._sent, text)
        # Numbered, so that a line that is left out, doubled or moved does not verify.
        self._sent += 1
        # asyncio warns of writes to a closed transport, in the job's log.
        if not self._writer.is_closing():
            self._writer.write(mac + b" " + text + b"\n")

    async def receive(self) -> dict[str, Any]:
        """Wait for the next message."""
        line = await _read_line(self._reader, MAX_LINE)
        mac, _, text = line.partition(b" ")
        expected = _mac(self._key, self._in, b"%d" % self._received, text)
        # In constant time: how far a guess is right must not show.
        if not hmac.compare_digest(mac, expected):
            raise ProtocolError("a message was changed on its way, or comes from another sender")
        self._received += 1
        return _object(text)

    async def drain(self) -> None:
        """Wait until what was sent has left, as far as this process can tell."""
        await self._writer.drain()

    def buffered(self) -> int:
        """Return the bytes that wait to be sent."""
        return self._writer.transport.get_write_buffer_size()

    def addresses(self) -> tuple[str, str]:
        """Return this side's IP address and the peer's, as this connection sees them."""
        return self._writer.get_extra_info("sockname")[0], self._writer.get_extra_info("peername")[0]

    def abort(self) -> None:
        """Drop the connection without waiting for anything."""
        self._writer.transport.abort()

    def close(self) -> None:
        """Send what is queued, then close."""
        self._writer.close()


async def greet_worker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> tuple[str, Line]:
    """Do the head's part of the handshake; return the worker's host name and the connection.

    Raises:
        TokenRefused: The worker's proof is wrong.
        ProtocolError: It is no worker.
        asyncio.TimeoutError: It took too long.
    """
    return await asyncio.wait_for(_greet_worker(reader, writer, token), HANDSHAKE_TIMEOUT_S)


async def _greet_worker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes) -> tuple[str, Line]:
    nonce = secrets.token_hex(16)
    _write(writer, {"raysm": VERSION, "nonce": nonce})
    answer = _object(await _read_line(reader, MAX_GREETING))
    match answer:
        case {"host": str(host), "nonce": str(theirs), "proof": str(proof)}:
            pass
        case _:
            raise ProtocolError("a peer's greeting lacks its host, nonce or proof")
    parts = (nonce.encode(), _bytes(theirs), _bytes(host))
    # The worker proves itself first: a stranger learns nothing that it could try tokens on.
    if not hmac.compare_digest(_bytes(proof), _mac(token, b"worker", *parts)):
        _write(writer, {"refused": "token"})
        raise TokenRefused(f"a peer that calls itself {host[:80]!r} does not know this job's token")
    _write(writer, {"proof": _mac(token, b"head", *parts).decode()})
    return host, Line(reader, writer, _mac(token, b"key", *parts), b"head")


async def greet_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes, host: str) -> Line:
    """Do the worker's part of the handshake.

    Raises:
        TokenRefused: The head refuses this worker's token, or does not know it itself.
        ProtocolError: It is no head.
        ConnectionError: The connection is closed.
        asyncio.TimeoutError: It took too long.
    """
    return await asyncio.wait_for(_greet_head(reader, writer, token, host), HANDSHAKE_TIMEOUT_S)


async def _greet_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes, host: str) -> Line:
    hello = _object(await _read_line(reader, MAX_GREETING))
    match hello:
        case {"raysm": version, "nonce": str(theirs)} if version == VERSION:
            pass
        case _:
            raise ProtocolError("what listens there is no raysm head")
    mine = secrets.token_hex(16)
    parts = (_bytes(theirs), mine.encode(), host.encode())
    _write(writer, {"host": host, "nonce": mine, "proof": _mac(token, b"worker", *parts).decode()})
    answer = _object(await _read_line(reader, MAX_GREETING))
    if "refused" in answer:
        raise TokenRefused("the head refuses this instance's token: their payloads are not of the same job")
    # A value that is no text is wrong too.
    if not hmac.compare_digest(_bytes(str(answer.get("proof"))), _mac(token, b"head", *parts)):
        raise TokenRefused("what calls itself the head does not know this job's token")
    return Line(reader, writer, _mac(token, b"key", *parts), b"worker")


def _mac(key: bytes, *parts: bytes) -> bytes:
    """Return an HMAC-SHA256 in hex; each part with its length, so that no two lists of parts look the same."""
    framed = b"".join(b"%d:%s" % (len(part), part) for part in parts)
    return hmac.digest(key, framed, "sha256").hex().encode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # JSON can hold a lone surrogate


def _write(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")


async def _read_line(reader: asyncio.StreamReader, limit: int) -> bytes:
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the connection was closed") from None
    except asyncio.LimitOverrunError as error:
        raise ProtocolError("a line is longer than any of this protocol") from error
    # The stream's own limit is that of a line; a greeting may be less.
    if len(line) > limit:
        raise ProtocolError("a line is longer than any of this protocol")
    return line[:-1]


def _object(text: bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a line is not JSON") from error
    if not isinstance(message, dict):
        raise ProtocolError("a line is not a JSON object")
    return message


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
    """Keys of ``outputs.read_outputs``."""
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
