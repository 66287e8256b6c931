"""The lines of all workers on the head's own output, each with its rank, as they are written.

The output of a worker is a connection to the head: no thread copies it there, its end means that
nothing more comes, and a worker that is killed loses no line. The end of each worker's stderr is
kept, because it says why it failed.
"""

import contextlib
import hmac
import os
import secrets
import selectors
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raysm.core.protocol.connections import connect_to_own
from raysm.core.protocol.events import ProgressLines, parse
from raysm.instance.log import copy_to_log

OUT = 1
ERROR = 2
"""The two streams of a worker, by their file descriptors."""

AGENT = 3
"""The stream of an agent, which also receives messages."""

TAKEN = b"+"
STOP = b"T"
"""The head's message: stop within the grace period."""
END = b"E"
"""The head's message to agents: end the workers soon, because another one has failed."""

CHUNK = 65536
TAIL_BYTES = 16384
CONNECT_S = 20.0
MAX_UNNAMED = 256
"""Connections at a time that have not sent the key. One more ends the oldest, so that no one uses
up all open files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    address: str
    port: int
    key: str

    def connect(self, rank: int, stream: int) -> socket.socket:
        # The connection carries the key, so on a machine with other users it goes only to a process
        # of this user.
        connection = connect_to_own(self.address, self.port, CONNECT_S)
        connection.settimeout(CONNECT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"{self.key} {rank} {stream}\n".encode())
        # The head waits for the end of this connection only after it has answered.
        if connection.recv(1) != TAKEN:
            raise ConnectionError(
                f"the head's relay at {self.address}, port {self.port}, does not take this worker"
            )
        connection.settimeout(None)
        return connection

    @contextlib.contextmanager
    def instead_of_output(self, rank: int, on_stop: Callable[[], None]) -> Iterator[None]:
        """Send this process's output, and that of libraries, to the head.

        ``on_stop`` is called when the head sends ``STOP``.
        """
        with (
            self.listening(rank, OUT, lambda message: on_stop()) as out,
            self.connect(rank, ERROR) as error,
        ):
            before = {stream: os.dup(stream) for stream in (OUT, ERROR)}
            os.dup2(out.fileno(), OUT)
            os.dup2(error.fileno(), ERROR)
            try:
                # Ray's workers have replaced sys.stdout and sys.stderr.
                with (
                    open(OUT, "w", 1, closefd=False) as lines,
                    open(ERROR, "w", 1, closefd=False) as errors,
                ):
                    with contextlib.redirect_stdout(lines), contextlib.redirect_stderr(errors):
                        yield
            finally:
                for stream, copy in before.items():
                    os.dup2(copy, stream)
                    os.close(copy)

    @contextlib.contextmanager
    def listening(
        self, rank: int, stream: int, on_message: Callable[[bytes], None]
    ) -> Iterator[socket.socket]:
        """Connect like ``connect``; a thread calls ``on_message`` with each message of the head."""
        with self.connect(rank, stream) as connection:
            thread = threading.Thread(
                target=_listen, args=[connection, on_message], daemon=True, name="relay-messages"
            )
            thread.start()
            try:
                yield connection
            finally:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                thread.join()


def _listen(connection: socket.socket, on_message: Callable[[bytes], None]) -> None:
    with contextlib.suppress(OSError):
        while message := connection.recv(1):
            on_message(message)


class _Source:
    def __init__(self) -> None:
        self.rank: int | None = None
        self.stream = OUT
        self.lines = ProgressLines()
        self.unnamed_bytes = 0


class Relay:
    def __init__(self, address: str, write: Callable[[int, bytes], object] | None = None) -> None:
        """Listen at ``address``, which the other instances reach.

        ``write`` takes a stream and whole lines.
        """
        # A thousand workers connect in the same second.
        self._server = socket.create_server((address, 0), backlog=1024)
        self._server.setblocking(False)
        self.wire = Wire(
            address=address, port=self._server.getsockname()[1], key=secrets.token_hex(16)
        )
        self._write = write or copy_to_log
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._tails: dict[int, bytes] = defaultdict(bytes)
        self._connections: dict[socket.socket, int] = {}
        """Open connections of workers, with their streams."""
        # An ordered set, the oldest first.
        self._unnamed: dict[socket.socket, None] = {}
        self._sent: dict[int, bytes] = defaultdict(bytes)
        """Messages to each stream, for workers that connect later."""
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, daemon=True, name="relay")
        self._thread.start()

    def tail(self, rank: int) -> str:
        return self._tails[rank].decode(errors="replace")

    def send(self, stream: int, message: bytes) -> None:
        """Send a message to all connections of a stream, also to later ones; they must listen.

        A process that ends with an unread message resets its connection, and its last lines would
        be lost.
        """
        with self._changed:  # so that the other thread closes no connection meanwhile
            self._sent[stream] += message
            for connection, connection_stream in self._connections.items():
                if connection_stream == stream:
                    with contextlib.suppress(OSError):
                        connection.send(message)

    def forget(self) -> None:
        """Forget stderr and sent messages, before other workers start."""
        self._tails.clear()
        self._sent.clear()

    def drain(self, timeout_s: float = 2.0) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._changed.wait_for(
                lambda: not self._connections, max(0.0, deadline - time.monotonic())
            )

    def close(self) -> None:
        self._closing = True
        with contextlib.suppress(OSError):  # wakes the thread up
            socket.create_connection(self._server.getsockname(), timeout=1).close()
        self._thread.join(2)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _serve(self) -> None:
        while not self._closing:
            # The listener last, because a new connection may end an old one that can be read now.
            for key, _ in sorted(
                self._selector.select(), key=lambda event: event[0].fileobj is self._server
            ):
                if key.fileobj is self._server:
                    self._accept()
                else:
                    self._read(key.fileobj, key.data)  # type: ignore[arg-type]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._server.accept()
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, _Source())
            self._unnamed[connection] = None
        if len(self._unnamed) > MAX_UNNAMED:
            self._close(next(iter(self._unnamed)))

    def _read(self, connection: socket.socket, source: _Source) -> None:
        try:
            data = connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a worker that was killed may reset it
            data = b""
        if data and self._take(connection, source, data):
            return
        self._say(source, source.lines.rest().split(b"\n")[:-1])
        self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        self._unnamed.pop(connection, None)
        with self._changed:
            self._connections.pop(connection, None)
            connection.close()
            self._changed.notify_all()

    def _take(self, connection: socket.socket, source: _Source, data: bytes) -> bool:
        """Write the complete lines of ``data``.

        Return False if the connection has sent a wrong key.
        """
        lines = source.lines.feed(data).split(b"\n")[:-1]
        if source.rank is None:
            if not lines:
                source.unnamed_bytes += len(data)
                return source.unnamed_bytes < 200
            key, _, named = lines.pop(0).partition(b" ")
            # Compared in constant time, because the time of a refusal must not show how much of the
            # key was right.
            if not hmac.compare_digest(key, self.wire.key.encode()):
                return False
            source.rank, source.stream = map(int, named.split())
            del self._unnamed[connection]
            with self._changed:
                self._connections[connection] = source.stream
                with contextlib.suppress(OSError):  # it was killed meanwhile: its end comes next
                    connection.send(TAKEN + self._sent[source.stream])
        self._say(source, lines)
        return True

    def _say(self, source: _Source, lines: list[bytes]) -> None:
        if not lines or source.rank is None:
            return
        prefix = f"[rank{source.rank}]: ".encode()  # torch puts it before the lines of a traceback
        lines = [line.removeprefix(prefix) for line in lines]
        if source.stream == ERROR:
            joined = b"\n".join(lines) + b"\n"
            self._tails[source.rank] = (self._tails[source.rank] + joined)[-TAIL_BYTES:]
        label = f"[rank {source.rank}] ".encode()
        are_events = [
            line.startswith(b'{"raysm"') and parse(line.decode(errors="replace")) for line in lines
        ]
        labelled = [
            line if is_event else label + line
            for line, is_event in zip(lines, are_events, strict=True)
        ]
        self._write(ERROR if source.stream == ERROR else OUT, b"\n".join(labelled) + b"\n")
