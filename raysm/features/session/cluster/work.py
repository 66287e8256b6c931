"""The code in a session's processes: calls, batches, commands, and cells of other instances.

Pickles are read only here. A socket connects each call process with the server: Ray starts these
processes and knows how one died, but a call to an actor costs both ends a millisecond of CPU, which
was half of a short call.
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

from raysm.core.protocol.parcels import SMALL_BYTES, Piece, load, size_of
from raysm.core.request.codec import from_json
from raysm.core.request.workload import arguments_of
from raysm.features.session.cluster.blobs import Blob, Blobs, map_file, write_file
from raysm.features.session.cluster.outcomes import capture_outcome, outcome_from_error
from raysm.features.session.cluster.output import OutputSender, OutputSocket, enter_call
from raysm.features.session.protocol import CallRequest, Outcome
from raysm.instance.environment import base_paths, show_all_gpus, with_all_gpus

READ_BYTES = 1 << 20

Work = Callable[[str, bytes | memoryview, str, str], tuple[list[Piece], bool, int]]
"""``CallProcess.call``."""


class CallSocket:
    """The server's end of the connection with a call process, which runs one call at a time."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, blobs: Blobs
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._blobs = blobs
        # The process writes its next large outcome to this blob.
        self._blob = blobs.create()

    @classmethod
    async def connect(cls, path: str, blobs: Blobs) -> "CallSocket":
        return cls(*await asyncio.open_unix_connection(path, limit=READ_BYTES), blobs)

    async def call(
        self, id: str, body: bytes | Blob, name: str, host: str
    ) -> tuple[bytes | Blob, bool, int]:
        """Run a call in the process; return the outcome and more, like ``CallProcess.call``."""
        path = body.path if isinstance(body, Blob) else ""
        head = {
            "id": id,
            "name": name,
            "host": host,
            "bytes": len(body),
            "path": path,
            "blob": self._blob.path,
        }
        try:
            # No empty piece, which asyncio since Python 3.12 would try to send forever.
            pieces = [_line(head)] if isinstance(body, Blob) or not body else [_line(head), body]
            self._writer.writelines(pieces)
            await self._writer.drain()
            answer = json.loads(await self._reader.readuntil())
            outcome: bytes | Blob = await self._reader.readexactly(answer["bytes"])
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("its connection with the session ended") from error
        if answer["blob"]:
            outcome = self._blob
            self._blob = self._blobs.create()
            outcome.size = answer["blob"]
        return outcome, answer["failed"], answer["messages"]

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()


class CallServer:
    def __init__(self, path: str) -> None:
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(1)

    def serve(self, work: Work) -> None:
        with self._listener:
            connection, _ = self._listener.accept()
        os.unlink(self._path)
        # A ConnectionError means that the session is gone. Ray reports any other error.
        with contextlib.suppress(ConnectionError), connection, connection.makefile("rwb") as file:
            while line := file.readline():
                head = json.loads(line)
                size = head["bytes"]
                path = head["path"]
                body = map_file(path, size) if path else file.read(size)
                pieces, has_failed, messages = work(head["id"], body, head["name"], head["host"])
                # Free the arguments before waiting for the next call.
                del body
                blob = write_file(head["blob"], pieces) if size_of(pieces) > SMALL_BYTES else 0
                outcome = b"" if blob else b"".join(pieces)
                del pieces
                file.write(
                    _line(
                        {
                            "failed": has_failed,
                            "messages": messages,
                            "bytes": len(outcome),
                            "blob": blob,
                        }
                    )
                )
                file.write(outcome)
                file.flush()


def _line(head: Mapping[str, object]) -> bytes:
    return json.dumps(head).encode() + b"\n"


KEPT_OUTPUT = 1 << 20
MAX_PENDING = 256
"""How many messages another instance may send before it waits for the head: more than a burst of
lines, and only about 100 kB."""


class CallProcess:
    """A Ray actor that runs calls one after the other.

    It sends output to the session's socket ``output``, and receives calls at the socket ``path``.
    Calls see all GPUs of the head, like its cells.
    """

    def __init__(self, output: str, folder: str, path: str) -> None:
        show_all_gpus()
        self._folder = folder
        self._send = OutputSocket(output).send
        self._serving = CallServer(path)

    def pid(self) -> int:
        return os.getpid()

    def serve(self) -> None:
        self._serving.serve(self.call)

    def call(
        self, id: str, pickled: bytes | memoryview, name: str, host: str
    ) -> tuple[list[Piece], bool, int]:
        """Call a pickled function.

        Returns:
            Its outcome, whether that is a failure, and the number of messages sent.
        """

        def work() -> Any:
            # Loaded here, so that a failure to load is the call's failure.
            function, args, kwargs = load(pickled)
            sender.arguments = lambda: arguments_of(function, args, kwargs)
            return function(*args, **kwargs)

        with enter_call(self._folder, id, self._send) as sender:
            outcome = capture_outcome(work, name=name, host=host)
        # Messages travel over another socket; the server waits until this many have arrived.
        return outcome.pieces(), outcome.error is not None, sender.messages


class NamespaceProcess:
    """A Ray actor with the namespace of an instance that is not the head.

    Its output goes through ``forwarder``. Its cells see all GPUs of the instance, like those of the
    head.
    """

    def __init__(self, host: str, forwarder: Any) -> None:
        show_all_gpus()
        # Imported here, because call processes do not need IPython, whose import takes 0.1 s.
        from raysm.features.session.cluster.namespace import Namespace, show_figures_inline

        show_figures_inline()
        self._host = host
        scratch = base_paths().scratch
        # In the job's folder, which is removed at the end. Ray kills this process, so it cannot
        # clean up.
        self._namespace = Namespace(self._show, scratch if scratch.is_dir() else None)
        self._sender: OutputSender | None = None
        self._forwarder = forwarder
        self._sent = 0

    def pid(self) -> int:
        return os.getpid()

    def execute(self, id: str, request: Any, body: bytes) -> tuple[bytes, bool, int]:
        call: CallRequest = from_json(CallRequest, request, "call")
        # In Ray's working folder, because the folder of the calls exists only on the head.
        with enter_call(".", id, self._send) as sender, self._namespace.as_main():
            self._sender = sender
            try:
                outcome = self._namespace.execute(call, body)
            except BaseException as error:  # SystemExit too: it ends the cell, not the namespace
                outcome = outcome_from_error(error, host=self._host)
        return outcome.encode(), outcome.error is not None, sender.messages

    def _show(self, bundle: Mapping[str, Any]) -> None:
        if self._sender is not None:
            self._sender.show(bundle)

    def _send(self, message: Mapping[str, str]) -> None:
        reference = self._forwarder.send.remote(dict(message))
        self._sent += 1
        # A cell that prints faster than the head receives would fill the memory of this process.
        if self._sent % MAX_PENDING == 0:
            # Imported here, because call processes that import this module do not need Ray at this
            # point.
            import ray

            ray.get(reference)


class Forwarder:
    """A Ray actor on the head that forwards the output of other instances' cells to the server."""

    def __init__(self, socket: str) -> None:
        self._line = OutputSocket(socket)

    def send(self, message: Mapping[str, str]) -> None:
        self._line.send(message)


def send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def run_batch(
    function: bytes, items: bytes, first: int, retries: int, return_exceptions: bool, unpack: bool
) -> tuple[bytes, bool]:
    """Call a pickled function with each of the items; return the outcome, and False.

    The value of the outcome is the run time in seconds and the list of encoded outcomes.

    Args:
        function: The pickled ``(function, args, kwargs)``; the item comes before the arguments.
        items: A pickled list of pickled items, so that a batch can be split without loading the
            items.
        first: Index of the first item in the whole map.
        retries: How often to retry an item whose function raised.
        return_exceptions: Continue after an item that failed.
        unpack: Each item is a tuple of arguments.
    """
    started_s = time.perf_counter()
    fn, args, kwargs = pickle.loads(function)
    outcomes: list[Outcome] = []
    # Loaded one by one, so that an item that cannot be loaded fails alone.
    for number, item in enumerate(pickle.loads(items), start=first):
        work = functools.partial(_apply, fn, item, args, kwargs, unpack)
        outcomes.append(_item(work, number, retries))
        if outcomes[-1].error is not None and not return_exceptions:
            break
    # Encoded one by one, so that they can be forwarded without loading the values.
    encoded = [outcome.encode() for outcome in outcomes]
    return Outcome(pickled=pickle.dumps((time.perf_counter() - started_s, encoded))).encode(), False


def _apply(
    fn: Callable[..., Any], item: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], unpack: bool
) -> Any:
    value = pickle.loads(item)
    return fn(*(value if unpack else (value,)), *args, **kwargs)


def _item(work: Callable[[], Any], number: int, retries: int) -> Outcome:
    outcome = capture_outcome(work, name=f"item {number}", item=number)
    for _ in range(retries):
        # An interrupted item is not retried.
        if outcome.error is None or outcome.error.cancelled:
            break
        outcome = capture_outcome(work, name=f"item {number}", item=number)
    return outcome


def run_shell(command: str, folder: str) -> tuple[bytes, bool]:
    """Run a shell command, which sees all GPUs of the instance.

    Return the command's encoded exit code and the end of its output, and whether it failed.
    """

    def work() -> dict[str, Any]:
        with subprocess.Popen(
            command,
            shell=True,
            cwd=folder or None,
            env=with_all_gpus(),
            # There is no keyboard: a command that reads input would wait forever.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # One pipe keeps the order of both streams.
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                assert process.stdout is not None
                output = read_tail(process.stdout, KEPT_OUTPUT)
                return {"exit_code": process.wait(), "output": output.decode(errors="replace")}
            except BaseException:
                # If interrupted, the end of the block would wait for the command.
                process.kill()
                raise

    outcome = capture_outcome(work, name=command)
    return outcome.encode(), outcome.error is not None


def read_tail(stream: IO[bytes], size: int) -> bytes:
    """Read a stream to its end in little memory; return its last ``size`` bytes.

    The memory is only a few times ``size``.
    """
    end = b""
    while chunk := stream.read(size):
        end = (end + chunk)[-size:]
    return end
