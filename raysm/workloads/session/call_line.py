"""The way of a call to the process that does it, and of its outcome back: a socket for each process, of its own.

What flows in and out are a line of JSON and bytes behind it, which nobody here reads. Ray starts these processes, ends
them, and knows how one died; but each call of an actor's cost both ends a millisecond of CPU, which was half of all
that a short call costs.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping

__all__ = ["CallLine", "Serving"]

READ_BYTES = 1 << 20
"""So much of a large outcome may wait in memory for the rest of it to be sent."""

Work = Callable[[str, bytes, str, str], tuple[bytes, bool, int]]
"""``CallProcess.call``."""


class CallLine:
    """The server's end; one call after the other goes by it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin; ``to`` connects."""
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, path: str) -> "CallLine":
        """Connect with the process that listens there.

        Raises:
            OSError: None does.
        """
        return cls(*await asyncio.open_unix_connection(path, limit=READ_BYTES))

    async def call(self, id: str, pickled: bytes, name: str, host: str) -> tuple[bytes, bool, int]:
        """Have the process do a call; takes and returns what ``CallProcess.call`` does.

        Raises:
            ConnectionError: The process is gone; whether it has begun the call nobody knows.
        """
        head = {"id": id, "name": name, "host": host, "bytes": len(pickled)}
        try:
            self._writer.writelines([_line(head), pickled])
            await self._writer.drain()
            answer = json.loads(await self._reader.readuntil())
            outcome = await self._reader.readexactly(answer["bytes"])
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("its connection with the session ended") from error
        return outcome, answer["failed"], answer["messages"]

    def close(self) -> None:
        """Let the process go."""
        self._writer.close()

    def abort(self) -> None:
        """The process is gone: a call that is under way ends, and what was not sent yet is for nobody."""
        self._writer.transport.abort()


class Serving:
    """The process's end."""

    def __init__(self, path: str) -> None:
        """Listen.

        Args:
            path: In a folder that nobody else can enter.
        """
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(1)

    def serve(self, work: Work) -> None:
        """Do the calls that come, in this thread, until the server lets go."""
        with self._listener:
            connection, _ = self._listener.accept()
        os.unlink(self._path)
        # The session is gone, and with it whoever would read an outcome. Any other error is Ray's to tell.
        with contextlib.suppress(ConnectionError), connection, connection.makefile("rwb") as file:
            while line := file.readline():
                head = json.loads(line)
                outcome, has_failed, messages = work(head["id"], file.read(head["bytes"]), head["name"], head["host"])
                file.write(_line({"failed": has_failed, "messages": messages, "bytes": len(outcome)}))
                file.write(outcome)
                file.flush()


def _line(head: Mapping[str, object]) -> bytes:
    return json.dumps(head).encode() + b"\n"
