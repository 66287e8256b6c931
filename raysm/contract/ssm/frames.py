"""One message of the data channel as bytes, and back.

::

    header length  type      schema  created  sequence  flags  id    digest   payload type  payload length  payload
    uint32         32 bytes  uint32  uint64   int64     uint64 16 B  SHA-256  uint32        uint32          bytes

All numbers are big-endian. Of the id, a UUID, the least significant half comes first.
"""

import hashlib
import json
import os
import struct
import time
import uuid
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

__all__ = [
    "ACKNOWLEDGE",
    "CHANNEL_CLOSED",
    "INPUT",
    "OUTPUT",
    "PAUSE",
    "PAYLOAD_BYTES",
    "START",
    "TERMINATING",
    "Flag",
    "Frame",
    "PayloadType",
    "acknowledgement",
    "decode",
    "encode",
    "flag",
    "notice",
]

# As ClientMessage of the agent's sources lays it out (agent/session/contracts/agentmessage.go).
HEADER = struct.Struct(">I32sIQqQ16s32sII")
HEADER_LENGTH = HEADER.size - 4
"""What the first field says: all before the payload's length."""

PAYLOAD_BYTES = 1024
"""Both of AWS's ends cut what they send into payloads of this size."""

INPUT = "input_stream_data"
"""The type of what the client sends."""
OUTPUT = "output_stream_data"
"""The type of what the agent sends."""
ACKNOWLEDGE = "acknowledge"
CHANNEL_CLOSED = "channel_closed"
PAUSE = "pause_publication"
START = "start_publication"
TERMINATING = "agent_session_state"

# Bits of the flags; on single messages that stand outside the streams both are set.
SYN, FIN = 1, 2


class PayloadType(IntEnum):
    """What the payload of a stream message is."""

    OUTPUT = 1
    ERROR = 2
    SIZE = 3
    PARAMETER = 4
    HANDSHAKE_REQUEST = 5
    HANDSHAKE_RESPONSE = 6
    HANDSHAKE_COMPLETE = 7
    ENCRYPTION_CHALLENGE = 8
    ENCRYPTION_RESPONSE = 9
    FLAG = 10
    STDERR = 11
    EXIT_CODE = 12


class Flag(IntEnum):
    """The payload of type ``FLAG``."""

    DISCONNECT_TO_PORT = 1
    TERMINATE_SESSION = 2
    CONNECT_TO_PORT_ERROR = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One message."""

    type: str
    """``input_stream_data`` and so on."""
    sequence: int = 0
    """Counts the stream messages of one end from 0; 0 in all other messages."""
    payload_type: int = 0
    """Of stream messages; a number that ``PayloadType`` does not know is none of ours to refuse."""
    payload: bytes = b""
    """As many bytes as fit."""
    flags: int = 0
    """Bit 0 says that it is the first message of the stream, bit 1 that it is the last."""
    id: uuid.UUID | None = None
    """Names it in its acknowledgement; None is a new one."""

    def document(self) -> dict[str, Any]:
        """Return the payload, a JSON object.

        Raises:
            ValueError: It is none.
        """
        document = json.loads(self.payload)
        if not isinstance(document, dict):
            raise ValueError(f"the payload of a message {self.type!r} is no JSON object")
        return document


def encode(frame: Frame) -> bytes:
    """Return the bytes of ``frame``."""
    # Random bytes rather than uuid4: half the time of a message was spent there.
    identity = frame.id.bytes if frame.id is not None else os.urandom(16)
    header = HEADER.pack(
        HEADER_LENGTH,
        # Padded with blanks, as both of AWS's ends do it; what comes may be padded with zeros.
        frame.type.encode().ljust(32),
        1,
        time.time_ns() // 1_000_000,
        frame.sequence,
        frame.flags,
        # Java's UUID as two longs, the lower first: so the service writes it.
        identity[8:] + identity[:8],
        # Over the payload alone: the header is not protected, nor need it be, within TLS.
        hashlib.sha256(frame.payload).digest(),
        frame.payload_type,
        len(frame.payload),
    )
    return header + frame.payload


def decode(data: bytes) -> Frame:
    """Return the frame of ``data``.

    Raises:
        ValueError: It is cut off, or its payload is not what its digest says.
    """
    if len(data) < HEADER.size:
        raise ValueError(f"a message of the data channel has at least {HEADER.size} bytes, got {len(data)}")
    length, kind, _, _, sequence, flags, identity, digest, payload_type, size = HEADER.unpack_from(data)
    # Longer headers may come: the payload begins behind its length, wherever that stands.
    start = length + 4
    # A slice never fails: what is cut off shows by its length.
    payload = data[start : start + size]
    if start < HEADER.size or len(payload) != size:
        raise ValueError(f"a message announces {size} bytes of payload behind {start}, and has {len(data)} in all")
    if size and hashlib.sha256(payload).digest() != digest:
        raise ValueError("the payload of a message is not what its digest says")
    return Frame(
        type=kind.rstrip(b"\0 ").decode("ascii", "replace"),
        sequence=sequence,
        payload_type=payload_type,
        payload=payload,
        flags=flags,
        id=uuid.UUID(bytes=identity[8:] + identity[:8]),
    )


def acknowledgement(frame: Frame) -> bytes:
    """Return the message that says that ``frame`` came."""
    content = {
        "AcknowledgedMessageType": frame.type,
        "AcknowledgedMessageId": str(frame.id),
        "AcknowledgedMessageSequenceNumber": frame.sequence,
        "IsSequentialMessage": True,
    }
    return encode(Frame(type=ACKNOWLEDGE, flags=SYN | FIN, payload=json.dumps(content).encode()))


def notice(kind: str, **content: Any) -> bytes:
    """Return a message that stands outside the streams: as ``channel_closed`` does."""
    return encode(Frame(type=kind, flags=SYN | FIN, payload=json.dumps(content).encode() if content else b""))


def flag(value: Flag) -> bytes:
    """Return the payload of a flag."""
    return struct.pack(">I", value)
