"""The parent's end of a keeper process (see ``keeper``), and instances that one keeps.

It has the keeper's pipes, its answers, and the exit that it reports.
"""

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
from raysm.local.instances.base import Instance, RunningCommand

SCRIPT = Path(__file__).with_name("keeper.py")
ANSWER_S = 30.0
"""A keeper answers within milliseconds; a loaded machine may take longer."""
END_S = 20.0
"""Killed processes end as soon as the kernel lets them; a disk that hangs may hold them up."""
KILLED = 128 + signal.SIGKILL


class Keeper:
    """A running keeper process.

    ``exited`` gets the exit code of the main process once everything is gone; then ``lost`` says
    whether the keeper died before it ended what it kept.
    """

    def __init__(
        self, name: str, log_fd: int | None = None, *, script: Path = SCRIPT, inherit: bool = False
    ) -> None:
        """Start the keeper's ``script``; what it starts writes to ``log_fd``.

        ``inherit`` gives it this process's environment instead of an empty one.
        """
        self.name = name
        self.exited: Future[int] = Future()
        self.lost = False
        self._visits: dict[int, Future[int]] = {}
        self._numbers = itertools.count()
        self._answers: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        report, write = os.pipe()
        output = subprocess.DEVNULL if log_fd is None else log_fd
        try:
            # In its own session, so that Ctrl-C in a terminal reaches only the parent.
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(script),
                    str(write),
                    f"{name}, owner {os.getpid()}",
                ],
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
            # Only the keeper holds this end, so that its death ends the stream.
            os.close(write)
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        self.pid = self._process.pid
        self._reader = threading.Thread(
            target=self._read, args=(report,), name=f"keeper of {name}", daemon=True
        )
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
        # Wake a caller that waits for an answer, instead of letting it time out.
        self._answers.put(None)
        if not self.exited.done():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.lost = self._process.wait(END_S) != 0
            self.exited.set_result(KILLED)
        for visit in list(self._visits):
            self._visits.pop(visit).set_result(KILLED)

    def enter(self, **fields: Any) -> RunningCommand:
        number = next(self._numbers)
        exited = Future[int]()
        self._visits[number] = exited
        self._send({"op": "enter", "visit": number, **fields})
        # The keeper does not answer once the main process is gone.
        if self.exited.done() and self._visits.pop(number, None) is not None:
            exited.set_result(KILLED)
        return RunningCommand(
            exited=exited, kill=functools.partial(self._send, {"op": "leave", "visit": number})
        )

    def call(self, op: str, **fields: Any) -> Mapping[str, Any]:
        """Have the keeper do ``op``.

        Raise RaysmError if it fails, or the keeper is gone or does not answer.
        """
        self._send({"op": op, **fields})
        try:
            answer = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise RaysmError(
                f"{self.name}: its keeper did not answer {op!r} within {ANSWER_S:.0f} s"
            ) from None
        if answer is None:
            raise RaysmError(f"{self.name}: its keeper ended during {op!r}")
        if answer["event"] == "error":
            raise RaysmError(f"{self.name}: {answer['message']}")
        return answer

    def signal(self, number: int) -> None:
        """Signal the main process through the keeper.

        Only the keeper knows that the pid has not been reused.
        """
        self._send({"op": "signal", "number": int(number)})

    def _send(self, request: Mapping[str, Any]) -> None:
        # It ended, or end() closed the pipe.
        with self._lock, contextlib.suppress(BrokenPipeError, ValueError):
            self._stdin.write(json.dumps(request).encode() + b"\n")
            self._stdin.flush()

    def hang_up(self) -> None:
        """Close the keeper's stdin, so that it ends everything that it keeps, and itself."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def end(self) -> None:
        """Hang up, and wait until the keeper and all that it kept are gone; may be repeated."""
        self.hang_up()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            # The kernel then kills the main process too (PR_SET_PDEATHSIG).
            self._process.kill()
            self._process.wait()
        # ``exited`` must be set when this returns.
        self._reader.join()


class KeptInstance(Instance):
    def __init__(
        self, keeper: Keeper, host: str, address: str, clean: Callable[[], None] = lambda: None
    ) -> None:
        """Take over ``keeper``.

        ``clean`` runs at the end, and removes what a killed keeper left.
        """
        self.host = host
        self.address = address
        self.keeper = keeper
        self.exited: Future[int] = Future()
        self.pid = 0
        self._clean = clean

    def start(self, **fields: Any) -> None:
        self.pid = int(self.keeper.call("start", **fields)["pid"])
        self.follow()

    def follow(self) -> None:
        self.keeper.exited.add_done_callback(self._finish)

    def _finish(self, exited: "Future[int]") -> None:
        try:
            # First, because ``exited`` promises that nothing of the instance is left.
            self._clean()
        finally:
            self.exited.set_result(exited.result())

    def signal(self, number: int) -> None:
        self.keeper.signal(number)

    def enter(self, command: Sequence[str], *, stdin: str, stdout: str) -> RunningCommand:
        return self.keeper.enter(command=list(command), stdin=stdin, stdout=stdout)

    def end(self) -> None:
        self.keeper.end()


def end_all(keepers: Sequence[Keeper]) -> None:
    for keeper in keepers:
        keeper.hang_up()
    for keeper in keepers:
        keeper.end()
