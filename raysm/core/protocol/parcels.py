"""Large values between a session and its clients.

They are pickles whose large buffers are sent next to them, without copies.

A *parcel* is either a plain pickle, or a line with ``MARK`` and the sizes of the pickle and its
buffers as JSON, followed by the pickle and the buffers, each padded to ``ALIGNMENT`` bytes. A
connection that transfers one large value begins with ``BULK``; its request and its answers are
lines of JSON.
"""

import json
import mmap
import pickle
import socket
from collections.abc import Iterable, Sequence
from typing import Any

Piece = bytes | memoryview
Content = bytes | bytearray | mmap.mmap
"""A received parcel; all of these have ``find``, and ``memoryview`` slices them without copies."""
BULK = b"\0"
"""First byte of a connection that transfers one large value; no HTTP request begins with it."""
SMALL_BYTES = 64 << 10
"""A larger value travels on a connection of its own, and a larger buffer travels beside its
pickle."""
ALIGNMENT = 64
MARK = b"raysm parcel"
SEND_BYTES = 8 << 20
MAX_LINE_BYTES = 4096


class Pickled:
    """A file and a ``buffer_callback`` for a pickler; collects pieces, large ones uncopied."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._buffers: list[memoryview] = []

    def write(self, content: Any) -> int:
        piece = content if isinstance(content, bytes) else memoryview(content).cast("B")
        self._pieces.append(piece)
        return len(piece)

    def take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Collect a large buffer and return False; return True for one that stays in the pickle."""
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if view.nbytes < SMALL_BYTES:
            return True
        self._buffers.append(view)
        return False

    def parcel(self) -> list[Piece]:
        if not self._buffers:
            return self._pieces
        sizes = [sum(map(len, self._pieces)), *(view.nbytes for view in self._buffers)]
        return [
            padded_line(MARK + json.dumps(sizes).encode()),
            *self._pieces,
            *_padding(sizes[0]),
            *(part for view in self._buffers for part in [view, *_padding(view.nbytes)]),
        ]


def padded_line(text: bytes) -> bytes:
    return text + b" " * (-(len(text) + 1) % ALIGNMENT) + b"\n"


def _padding(size: int) -> list[Piece]:
    return [b"\0" * (-size % ALIGNMENT)] if size % ALIGNMENT else []


def load(content: Any, loads: Any = pickle.loads) -> Any:
    """Return the value of a parcel.

    Its arrays share the memory of ``content``, and are writable if that is.
    """
    view = memoryview(content)
    if bytes(view[: len(MARK)]) != MARK:
        return loads(view)
    start = 0
    while b"\n" not in (line := bytes(view[start : start + MAX_LINE_BYTES])):
        start += MAX_LINE_BYTES
    end = start + line.index(b"\n") + 1
    position = end
    parts = []
    for size in json.loads(bytes(view[len(MARK) : end])):
        parts.append(view[position : position + size])
        position += size + -size % ALIGNMENT
    return loads(parts[0], buffers=parts[1:])


def size_of(pieces: Iterable[Any]) -> int:
    return sum(map(len, pieces))


# A connection that transfers one value; the socket blocks, with a timeout for each of its calls.


def send_line(connection: socket.socket, head: Any, first: bytes = b"") -> None:
    connection.sendall(first + json.dumps(head).encode() + b"\n")


def receive_line(connection: socket.socket) -> Any:
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte or len(line) > MAX_LINE_BYTES:
            raise ConnectionError("the connection of a large value ended")
        line += byte
    return json.loads(line)


def send(connection: socket.socket, pieces: Sequence[Any]) -> None:
    for piece in pieces:
        view = memoryview(piece)
        # In parts, because the socket's timeout applies to a whole sendall.
        for start in range(0, len(view), SEND_BYTES):
            connection.sendall(view[start : start + SEND_BYTES])


def receive_into(connection: socket.socket, view: memoryview) -> None:
    position = 0
    while position < len(view):
        count = connection.recv_into(view[position : position + SEND_BYTES])
        if not count:
            raise ConnectionError("the connection of a large value ended")
        position += count


def memory(size: int) -> mmap.mmap:
    """Return writable memory for a large value without zeroing it, which would take time."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


# A value that a session keeps once for all of its instances, in Ray's object store


class Scattered:
    """A handle of a value for the arguments of a session's calls; a call receives the value itself.

    Arrays in the value are read-only, because all processes of an instance share their memory.
    """

    def __init__(self, reference: bytes, size: int) -> None:
        self._reference = reference
        self._size = size

    def __reduce__(self) -> Any:
        return _value, (self._reference,)

    def __repr__(self) -> str:
        return f"<a value of {self._size:,} bytes in the session's memory>"


def _value(reference: bytes) -> Any:
    import ray
    from ray import cloudpickle

    # It was pickled as the argument of a call.
    _, (value,), _ = load(ray.get(cloudpickle.loads(reference)))
    return value
