"""The parent's end of a keeper (see ``keeper``): its pipes, its answers, and the exit that it reports."""

import contextlib
import functools
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from raysm.errors import RaysmError
from raysm.local.instances.base import Instance, Visit

__all__ = ["Keeper", "KeptInstance", "SCRIPT", "end_all"]

SCRIPT = Path(__file__).with_name("keeper.py")
"""The keeper's program."""
ANSWER_S = 30.0
"""A keeper answers within milliseconds; a loaded machine may take longer."""
END_S = 20.0
"""Processes killed by SIGKILL end as soon as the kernel lets them; a disk that hangs may hold them up."""


class Keeper:
    """A running keeper process.

    Attributes:
        pid: The keeper itself.
        exited: Exit code of the main process, set once everything is gone.
        lost: Whether it died without having ended all that it kept; known once ``exited`` is.
    """

    def __init__(self, name: str, log_fd: int | None = None, *, script: Path = SCRIPT, inherit: bool = False) -> None:
        """Start it.

        Args:
            name: For messages, and for whoever reads a list of processes.
            log_fd: Where stdout and stderr of what it starts go; None is nowhere.
            script: The keeper's program.
            inherit: Whether it gets this process's environment, instead of an empty one.
        """
        self.name = name
        self.exited: Future[int] = Future()
        self.lost = False
        self._visits: dict[int, Future[int]] = {}
        self._numbers = itertools.count()
        self._answers: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._started = False
        self._lock = threading.Lock()
        report, write = os.pipe()
        output = subprocess.DEVNULL if log_fd is None else log_fd
        try:
            # A session of its own: Ctrl-C in a terminal reaches the parent, which decides what follows from it.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(write), f"{name}, owner {os.getpid()}"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[write],
                start_new_session=True,
                env=None if inherit else {},
            )
        except BaseException:
            os.close(report)
            raise
        finally:
            # The keeper alone holds this end: that it is gone is known by the end of the stream.
            os.close(write)
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, args=(report,), name=f"keeper of {name}", daemon=True)
        self._reader.start()

    def _read(self, report: int) -> None:
        with os.fdopen(report, "rb") as lines:
            for line in lines:
                message = json.loads(line)
                if message["event"] == "exited":
                    self.exited.set_result(message["code"])
                elif message["event"] == "left":
                    self._visits.pop(message["visit"]).set_result(message["code"])
                else:
                    self._answers.put(message)
        # Whoever waits for an answer is told at once, instead of waiting its time out.
        self._answers.put(None)
        if not self.exited.done():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.lost = self._process.wait(END_S) != 0
            # Somebody ended the instance: end() does, with SIGKILL, and so does the death of the keeper.
            self.exited.set_result(128 + signal.SIGKILL)
        for visit in list(self._visits):
            self._visits.pop(visit).set_result(128 + signal.SIGKILL)

    def enter(self, **fields: Any) -> "Visit":
        """Run a command beside the main process."""
        number, exited = next(self._numbers), Future[int]()
        self._visits[number] = exited
        self._send({"op": "enter", "visit": number, **fields})
        # With the main process gone nobody runs it, nor says so.
        if self.exited.done() and self._visits.pop(number, None) is not None:
            exited.set_result(128 + signal.SIGKILL)
        return Visit(exited=exited, leave=functools.partial(self._send, {"op": "leave", "visit": number}))

    def call(self, op: str, **fields: Any) -> Mapping[str, Any]:
        """Have the keeper do ``op``.

        Raises:
            RaysmError: It failed, or the keeper is gone or does not answer.
        """
        self._send({"op": op, **fields})
        try:
            answer = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise RaysmError(f"{self.name}: its keeper did not answer {op!r} within {ANSWER_S:.0f} s") from None
        if answer is None:
            raise RaysmError(f"{self.name}: its keeper ended during {op!r}")
        if answer["event"] == "error":
            raise RaysmError(f"{self.name}: {answer['message']}")
        return answer

    def signal(self, number: int) -> None:
        """Signal the main process; by way of the keeper, which alone knows that its pid is still its own."""
        self._send({"op": "signal", "number": int(number)})

    def _send(self, request: Mapping[str, Any]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        with self._lock, contextlib.suppress(BrokenPipeError, ValueError):  # ended, or closed by end()
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()

    def hang_up(self) -> None:
        """Close its stdin, upon which the keeper ends all that it keeps, and itself."""
        stdin = self._process.stdin
        assert stdin is not None
        with self._lock, contextlib.suppress(BrokenPipeError):
            stdin.close()

    def end(self) -> None:
        """Hang up, and wait until it and all that it kept are gone; harmless when repeated."""
        self.hang_up()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            # What it kept ends with it all the same: the main process asked the kernel for that.
            self._process.kill()
            self._process.wait()
        # Else ``exited`` might not be set yet when this returns.
        self._reader.join()


class KeptInstance(Instance):
    """An instance behind a keeper."""

    def __init__(self, keeper: Keeper, host: str, address: str, clean: Callable[[], None] = lambda: None) -> None:
        """Take over ``keeper``; ``clean`` runs at the end, for what a killed keeper would leave."""
        self.host = host
        self.address = address
        self.keeper = keeper
        self.exited: Future[int] = Future()
        self.pid = 0
        self._clean = clean

    def start(self, **fields: Any) -> None:
        """Start the main process.

        Raises:
            RaysmError: It cannot be started.
        """
        self.pid = int(self.keeper.call("start", **fields)["pid"])
        self.follow()

    def follow(self) -> None:
        """From now on ``exited`` follows the keeper's."""
        self.keeper.exited.add_done_callback(self._finish)

    def _finish(self, exited: "Future[int]") -> None:
        try:
            # First: ``exited`` promises that nothing of the instance is left.
            self._clean()
        finally:
            self.exited.set_result(exited.result())

    def signal(self, number: int) -> None:
        """Signal the main process alone."""
        self.keeper.signal(number)

    def enter(self, command: Sequence[str], *, stdin: str, stdout: str) -> Visit:
        """Run a command beside the main process."""
        return self.keeper.enter(command=list(command), stdin=stdin, stdout=stdout)

    def end(self) -> None:
        """Kill everything in it and wait until it is gone."""
        self.keeper.end()


def end_all(keepers: Sequence[Keeper]) -> None:
    """End all at the same time, and wait for all."""
    for keeper in keepers:
        keeper.hang_up()
    for keeper in keepers:
        keeper.end()
