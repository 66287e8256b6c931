"""The code in the processes that do a session's work: calls, batches, commands, and cells of other instances.

Pickles are read only here. A socket connects each call process with the server: Ray starts these processes and knows
how one died, but a call to an actor costs both ends a millisecond of CPU, which was half of a short call.
"""

import asyncio
import contextlib
import functools
import json
import os
import pickle
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import IO, Any

from raysm.bootstrap.environment import base_paths
from raysm.contract.parcels import SMALL_BYTES, Piece, load, size_of
from raysm.contract.session import CallRequest, Outcome
from raysm.request.codec import from_json
from raysm.workloads.session.blobs import Blob, Blobs, opened, write_to
from raysm.workloads.session.outcomes import outcome_of, outcome_of_error
from raysm.workloads.session.relay import Place, Printed, SocketLine, Standing

__all__ = [
    "ActorLine",
    "CallLine",
    "CallProcess",
    "Forwarder",
    "NamespaceProcess",
    "Serving",
    "batch",
    "shell",
    "strike",
]

READ_BYTES = 1 << 20
"""So much of a large outcome may wait in memory for the rest of it to be sent."""

Work = Callable[[str, bytes | memoryview, str, str], tuple[list[Piece], bool, int]]
"""``CallProcess.call``."""


class CallLine:
    """The server's end; one call after the other goes by it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, blobs: Blobs) -> None:
        self._reader, self._writer, self._blobs = reader, writer, blobs
        # For the next large outcome, which the process writes there.
        self._blob = blobs.new()

    @classmethod
    async def to(cls, path: str, blobs: Blobs) -> "CallLine":
        """Connect with the process that listens there.

        Raises:
            OSError: None does.
        """
        return cls(*await asyncio.open_unix_connection(path, limit=READ_BYTES), blobs)

    async def call(self, id: str, body: bytes | Blob, name: str, host: str) -> tuple[bytes | Blob, bool, int]:
        """Have the process do a call.

        Args:
            id: The call's.
            body: The pickled function with its arguments.
            name: For people.
            host: This instance.

        Returns:
            Its outcome, encoded; whether that is a failure; how many messages with output were sent before.

        Raises:
            ConnectionError: The process is gone; whether it has begun the call nobody knows.
        """
        path = body.path if isinstance(body, Blob) else ""
        head = {"id": id, "name": name, "host": host, "bytes": len(body), "path": path, "blob": self._blob.path}
        try:
            self._writer.writelines([_line(head), b"" if isinstance(body, Blob) else body])
            await self._writer.drain()
            answer = json.loads(await self._reader.readuntil())
            outcome: bytes | Blob = await self._reader.readexactly(answer["bytes"])
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("its connection with the session ended") from error
        if answer["blob"]:
            outcome, self._blob = self._blob, self._blobs.new()
            outcome.size = answer["blob"]
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
                size, path = head["bytes"], head["path"]
                body = opened(path, size) if path else file.read(size)
                pieces, has_failed, messages = work(head["id"], body, head["name"], head["host"])
                # The arguments of a call are not held while the next one is awaited.
                del body
                blob = write_to(head["blob"], pieces) if size_of(pieces) > SMALL_BYTES else 0
                outcome = b"" if blob else b"".join(pieces)
                del pieces
                file.write(_line({"failed": has_failed, "messages": messages, "bytes": len(outcome), "blob": blob}))
                file.write(outcome)
                file.flush()


def _line(head: Mapping[str, object]) -> bytes:
    return json.dumps(head).encode() + b"\n"


KEPT_OUTPUT = 1 << 20
"""Bytes of a command's output, the last ones."""

UNHEARD = 256
"""Messages of another instance that may be under way: some more than a burst of lines, some 100 kB of memory."""


class CallProcess:
    """A process that does calls, one after the other; an actor of Ray's."""

    def __init__(self, place: Place, path: str) -> None:
        """Connect with the session.

        Args:
            place: Where calls run.
            path: Of the socket at which this process takes them.
        """
        self._standing = Standing(place.folder, SocketLine(place.socket).send)
        self._serving = Serving(path)

    def pid(self) -> int:
        """Return by which number it is signalled."""
        return os.getpid()

    def serve(self) -> None:
        """Do the calls that come by its socket, until the session lets go."""
        self._serving.serve(self.call)

    def call(self, id: str, pickled: bytes | memoryview, name: str, host: str) -> tuple[list[Piece], bool, int]:
        """Call a pickled function.

        Returns:
            Its outcome in pieces; whether that is a failure; how many messages with output were sent before.
        """

        def work() -> Any:
            # Within the outcome: what cannot be read here is the call's failure, with its traceback.
            function, args, kwargs = load(pickled)
            return function(*args, **kwargs)

        with self._standing.call(id) as printed:
            outcome = outcome_of(work, name=name, host=host)
        # How many messages: they come by another way, and may be overtaken by this.
        return outcome.pieces(), outcome.error is not None, printed.messages


class NamespaceProcess:
    """The namespace of an instance that is not the head, and what runs in it; an actor of Ray's."""

    def __init__(self, host: str, forwarder: Any) -> None:
        """Begin with an empty namespace.

        Args:
            host: This instance.
            forwarder: The actor on the head that passes on what cells print.
        """
        # Here, and not above: processes that only call functions need no IPython, whose import takes 0.1 s.
        from raysm.workloads.session.shell import Namespace, show_figures_inline

        show_figures_inline()
        scratch = base_paths().scratch
        # Ray kills this process at the end, which removes nothing; the job's own folder is removed.
        self._host, self._namespace = host, Namespace(self._show, scratch if scratch.is_dir() else None)
        self._printed: Printed | None = None
        # In whatever folder Ray's processes have here: the folder of the calls is the head's alone.
        self._standing = Standing(".", ActorLine(forwarder).send)

    def pid(self) -> int:
        """Return by which number it is signalled."""
        return os.getpid()

    def do(self, id: str, request: Any, body: bytes) -> tuple[bytes, bool, int]:
        """Run a cell, or put values in, or bring them out; return what ``CallProcess.call`` does."""
        call: CallRequest = from_json(CallRequest, request, "call")
        with self._standing.call(id) as printed, self._namespace.as_main():
            self._printed = printed
            try:
                outcome = self._namespace.do(call, body)
            except BaseException as error:  # SystemExit too: a cell that leaves must not take the namespace along
                outcome = outcome_of_error(error, host=self._host)
        return outcome.encode(), outcome.error is not None, printed.messages

    def _show(self, bundle: Mapping[str, Any]) -> None:
        if self._printed is not None:
            self._printed.show(bundle)


class Forwarder:
    """Passes on, on the head, what cells of other instances print; an actor of Ray's."""

    def __init__(self, socket: str) -> None:
        self._line = SocketLine(socket)

    def send(self, message: Mapping[str, str]) -> None:
        """Pass on a message."""
        self._line.send(message)


class ActorLine:
    """The way to the session's server from another instance: by Ray, to the forwarder on the head."""

    def __init__(self, forwarder: Any) -> None:
        """Begin.

        Args:
            forwarder: The actor.
        """
        self._forwarder, self._sent = forwarder, 0

    def send(self, message: Mapping[str, str]) -> None:
        """Send a message; of very many, wait for those before."""
        reference = self._forwarder.send.remote(dict(message))
        self._sent += 1
        # Whatever prints faster than the head hears would fill the memory of this process.
        if self._sent % UNHEARD == 0:
            # Where this runs it is there already; whoever only calls functions of this module spares the second.
            import ray

            ray.get(reference)


def strike(pid: int, number: int) -> None:
    """Signal a process of this instance; one that is gone needs none."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def batch(
    function: bytes, items: bytes, first: int, retries: int, return_exceptions: bool, unpack: bool
) -> tuple[bytes, bool]:
    """Call a pickled function with each of the items; return the seconds that took, and their outcomes, as one.

    Args:
        function: The pickled ``(function, args, kwargs)``; an item comes before its arguments.
        items: A pickled list of pickled items: whoever cuts a batch in two need not be able to read them.
        first: The number of its first item among all.
        retries: How often an item is tried again whose function raised.
        return_exceptions: Whether items behind one that failed are worked on, too.
        unpack: Whether each item is a tuple of arguments.
    """
    began_s = time.perf_counter()
    fn, args, kwargs = pickle.loads(function)
    outcomes: list[Outcome] = []
    # Each is read when its turn comes: an item that cannot be read fails alone.
    for number, item in enumerate(pickle.loads(items), start=first):
        work = functools.partial(_apply, fn, item, args, kwargs, unpack)
        outcomes.append(_item(work, number, retries))
        if outcomes[-1].error is not None and not return_exceptions:
            break
    # Of plain bytes: whoever passes them on need not be able to read the values.
    encoded = [outcome.encode() for outcome in outcomes]
    return Outcome(pickled=pickle.dumps((time.perf_counter() - began_s, encoded))).encode(), False


def _apply(fn: Callable[..., Any], item: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], unpack: bool) -> Any:
    value = pickle.loads(item)
    return fn(*(value if unpack else (value,)), *args, **kwargs)


def _item(work: Callable[[], Any], number: int, retries: int) -> Outcome:
    outcome = outcome_of(work, name=f"item {number}", item=number)
    for _ in range(retries):
        # Who interrupts wants no further attempt.
        if outcome.error is None or outcome.error.cancelled:
            break
        outcome = outcome_of(work, name=f"item {number}", item=number)
    return outcome


def shell(command: str, folder: str) -> tuple[bytes, bool]:
    """Run a command by the shell; return its exit code and the end of its output."""

    def work() -> dict[str, Any]:
        with subprocess.Popen(
            command,
            shell=True,
            cwd=folder or None,
            # Nobody sits there: a command that asks would wait for ever.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # In one stream, in the order in which they came up: of two nobody could tell it any more.
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                assert process.stdout is not None
                output = last_of(process.stdout, KEPT_OUTPUT)
                return {"exit_code": process.wait(), "output": output.decode(errors="replace")}
            except BaseException:
                # Interrupted: to leave the block would wait for its end.
                process.kill()
                raise

    outcome = outcome_of(work, name=command)
    return outcome.encode(), outcome.error is not None


def last_of(stream: IO[bytes], size: int) -> bytes:
    """Read a stream to its end; return its last bytes, and hold no more than a few times as many."""
    end = b""
    while chunk := stream.read(size):
        end = (end + chunk)[-size:]
    return end
