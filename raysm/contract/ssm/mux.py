"""Many connections in one stream of bytes, by smux version 1: a state machine without I/O.

::

    version  command  length of the data  stream   data
    1 byte   1 byte   uint16              uint32   bytes       all little-endian

What flows in are bytes as they come, cut anywhere; what flows out are events: a stream was opened, has data, was
closed. Version 1 has no window for a stream: who does not read one of them holds up all.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Command", "Event", "Mux"]

# https://github.com/xtaci/smux, which AWS's agent and plugin both use (frame.go); version 2 adds windows.
HEADER = struct.Struct("<BBHI")
VERSION = 1
DATA_BYTES = 1024 - HEADER.size
"""So that a frame of the mux fills one message of the data channel; smux itself allows 65,535."""


class Command(IntEnum):
    """What a frame says."""

    SYN = 0
    """A stream is opened."""
    FIN = 1
    """Who sends it, sends no more on this stream."""
    PSH = 2
    """Data."""
    NOP = 3
    """Nothing: it keeps a connection alive."""


@dataclass(frozen=True, slots=True)
class Event:
    """What came."""

    command: Command
    """Opened, data or closed."""
    stream: int
    """Its number."""
    data: bytes = b""
    """Of ``PSH``."""


class Mux:
    """One end of a mux."""

    def __init__(self, *, is_client: bool) -> None:
        """Begin without streams; a client's have odd numbers from 3, a server's even ones."""
        # As smux counts: it adds 2 to 1 before it opens the first stream, and to 0 at the other end.
        self._next = 3 if is_client else 2
        self._rest = b""

    def open(self) -> tuple[int, bytes]:
        """Return the number of a new stream, and what opens it at the other end."""
        stream = self._next
        self._next += 2
        return stream, _frame(Command.SYN, stream)

    def push(self, stream: int, data: bytes) -> list[bytes]:
        """Return the frames that carry ``data``, each small enough for one message."""
        return [
            _frame(Command.PSH, stream, data[start : start + DATA_BYTES]) for start in range(0, len(data), DATA_BYTES)
        ]

    def finish(self, stream: int) -> bytes:
        """Return what closes a stream."""
        return _frame(Command.FIN, stream)

    def nop(self) -> bytes:
        """Return what says nothing."""
        return _frame(Command.NOP, 0)

    def receive(self, data: bytes) -> list[Event]:
        """Return what ``data`` completes.

        Raises:
            ValueError: It is no smux of version 1.
        """
        # What came before may have ended within a frame: a message of the channel is cut where it is full.
        data = self._rest + data
        events, at = [], 0
        while len(data) - at >= HEADER.size:
            version, command, length, stream = HEADER.unpack_from(data, at)
            # Not passed over: behind one frame that is none, nothing says where the next begins.
            if version != VERSION or command > Command.NOP:
                raise ValueError(f"smux of version {version}, command {command}: only version 1 is spoken here")
            end = at + HEADER.size + length
            if end > len(data):
                break
            # A sign of life concerns no stream.
            if command != Command.NOP:
                events.append(Event(Command(command), stream, data[at + HEADER.size : end]))
            at = end
        self._rest = data[at:]
        return events


def _frame(command: Command, stream: int, data: bytes = b"") -> bytes:
    return HEADER.pack(VERSION, command, len(data), stream) + data
