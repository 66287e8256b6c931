"""Handshake and lines of the control channel.

Lines are newline-terminated JSON; the job's token authenticates both ends.

::

    head    {"raysm": 1, "nonce": N}              a fresh number, on every connection
    worker  {"host": h, "nonce": M, "proof": P}   P = HMAC(token, "worker" N M h)
    head    {"proof": Q}                          Q = HMAC(token, "head" N M h), after a valid P
    both    MAC {"kind": ..., ...}                MAC = HMAC(key of this connection, direction,
                                                             number, text)

The token is never sent. The head answers no challenge before the other side has proved that it has
the token. Replaying a recorded line fails, because nonces are fresh and lines are numbered. A
changed line ends the connection.

Lines are authenticated but not encrypted: they contain no secrets, and TLS would need certificates
for names that exist only during the job. SageMaker can encrypt traffic between containers.
"""

import asyncio
import hmac
import json
import secrets
from typing import Any

from raysm.errors import ClusterError

VERSION = 1
MAX_GREETING = 1024
"""Maximum bytes of one line from a peer that is not authenticated yet."""
MAX_LINE = 8 * 1024
"""Maximum bytes of one line from an authenticated peer; also the limit of every stream, to bound
its memory."""
HANDSHAKE_TIMEOUT_S = 10.0
CLIENT = "client"
"""The host name of a client on the user's machine, which asks one question."""
PART = 6 * 1024
"""Characters of an answer in one line; a line also has its MAC and its JSON."""


class ProtocolError(ClusterError):
    """The peer does not follow this protocol."""


class TokenRefused(ProtocolError):
    """The peer has another token, or none."""


class Line:
    """One authenticated connection: numbered messages, each with its MAC.

    Reading raises ProtocolError or ConnectionError.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes, side: bytes
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._key = key
        # The MAC contains the direction, so that a line reflected to its sender does not verify.
        self._out, self._in = (b"head", b"worker") if side == b"head" else (b"worker", b"head")
        self._sent = self._received = 0

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message; do nothing on a closed connection: the reader notices the end."""
        text = json.dumps(message).encode()
        # The number makes a line invalid that is omitted, repeated or moved.
        mac = _mac(self._key, self._out, b"%d" % self._sent, text)
        self._sent += 1
        # For writes to a closed transport, asyncio would write warnings into the job's log.
        if not self._writer.is_closing():
            self._writer.write(mac + b" " + text + b"\n")

    async def receive(self) -> dict[str, Any]:
        line = await _read_line(self._reader, MAX_LINE)
        mac, _, text = line.partition(b" ")
        expected = _mac(self._key, self._in, b"%d" % self._received, text)
        # In constant time, so that the duration reveals nothing about the expected MAC.
        if not hmac.compare_digest(mac, expected):
            raise ProtocolError("a message was changed on its way, or comes from another sender")
        self._received += 1
        return _object(text)

    async def drain(self) -> None:
        await self._writer.drain()

    def buffered(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    def addresses(self) -> tuple[str, str]:
        return self._writer.get_extra_info("sockname")[0], self._writer.get_extra_info("peername")[
            0
        ]

    def abort(self) -> None:
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


async def greet_worker(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes
) -> tuple[str, Line]:
    """Run the head's part of the handshake; return the worker's host name and the connection."""
    async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
        nonce = secrets.token_hex(16)
        _write(writer, {"raysm": VERSION, "nonce": nonce})
        answer = _object(await _read_line(reader, MAX_GREETING))
        match answer:
            case {"host": str(host), "nonce": str(theirs), "proof": str(proof)}:
                pass
            case _:
                raise ProtocolError("a peer's greeting lacks its host, nonce or proof")
        parts = (nonce.encode(), _bytes(theirs), _bytes(host))
        # The worker proves itself first, so that an attacker gets no proof to test guessed tokens
        # with.
        if not hmac.compare_digest(_bytes(proof), _mac(token, b"worker", *parts)):
            _write(writer, {"refused": "token"})
            raise TokenRefused(
                f"a peer that calls itself {host[:80]!r} does not know this job's token"
            )
        _write(writer, {"proof": _mac(token, b"head", *parts).decode()})
        return host, Line(reader, writer, _mac(token, b"key", *parts), b"head")


async def greet_head(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes, host: str
) -> Line:
    async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
        hello = _object(await _read_line(reader, MAX_GREETING))
        match hello:
            case {"raysm": version, "nonce": str(theirs)} if version == VERSION:
                pass
            case _:
                raise ProtocolError("what listens there is no raysm head")
        mine = secrets.token_hex(16)
        parts = (_bytes(theirs), mine.encode(), host.encode())
        _write(
            writer, {"host": host, "nonce": mine, "proof": _mac(token, b"worker", *parts).decode()}
        )
        answer = _object(await _read_line(reader, MAX_GREETING))
        if "refused" in answer:
            raise TokenRefused(
                "the head refuses this instance's token: their payloads are not of the same job"
            )
        if not hmac.compare_digest(_bytes(str(answer.get("proof"))), _mac(token, b"head", *parts)):
            raise TokenRefused("what calls itself the head does not know this job's token")
        return Line(reader, writer, _mac(token, b"key", *parts), b"worker")


def _mac(key: bytes, *parts: bytes) -> bytes:
    """Return an HMAC-SHA256 in hex.

    Each part has a length prefix, so that different parts give different messages.
    """
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
    # The stream's own limit is MAX_LINE; a greeting has a lower one.
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


async def ask_head(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    token: bytes,
    question: dict[str, Any],
) -> str:
    """Ask a head something as a client, and return its answer.

    Raises:
        ProtocolError: What listens there is no head, or one that knows no such question.
        TokenRefused: It has another token.
        OSError: The connection was lost.
    """
    line = await greet_head(reader, writer, token, CLIENT)
    line.send(question)
    parts = []
    while True:
        match await line.receive():
            case {"kind": "part", "text": str(text)}:
                parts.append(text)
            case {"kind": "end"}:
                return "".join(parts)
            case message:
                raise ProtocolError(str(message.get("reason", "the head does not answer")))


async def send_text(line: Line, text: str) -> None:
    """Send an answer of any length to ``ask_head``; ``text`` is ASCII."""
    for begin in range(0, len(text), PART):
        line.send({"kind": "part", "text": text[begin : begin + PART]})
        await line.drain()
    line.send({"kind": "end"})
    await line.drain()
