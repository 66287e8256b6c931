"""Cells of a session's head: they run in one namespace, one at a time, in the main thread of the driver.

A signal interrupts only the main thread, also within a sleep or a wait for Ray. Other instances have their namespace in
a process of Ray's.
"""

import asyncio
import queue
import signal
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

from raysm.contract.session import Outcome
from raysm.workloads.session.blobs import Blob
from raysm.workloads.session.calls import Call
from raysm.workloads.session.outcomes import interrupted, outcome_of_error
from raysm.workloads.session.output import Output
from raysm.workloads.session.shell import Namespace

__all__ = ["Cells"]

SIGNAL_S = 0.1
"""How often the main thread is signalled until it has seen that its cell is to end."""


class Cells:
    """The head's namespace, and what is run in it."""

    def __init__(self, host: str, keep: Callable[[list[Any]], bytes | Blob] = b"".join) -> None:
        """Begin with an empty namespace.

        Args:
            host: This instance.
            keep: Joins the pieces of an outcome.
        """
        self._host, self._keep = host, keep
        self._namespace = Namespace(self._show)
        self._queue: queue.SimpleQueue[tuple[Call, Callable[[bytes | Blob, bool], None]] | None] = queue.SimpleQueue()
        # Made in the main thread, in which ``live`` runs.
        self._main = threading.get_ident()
        self._current: Call | None = None
        self._wanted: Call | None = None

    @property
    def namespace(self) -> dict[str, Any]:
        """What cells see as their globals."""
        return self._namespace.names

    # In the server's loop

    async def run(self, call: Call) -> tuple[bytes | Blob, bool]:
        """Have one run in its turn; see ``Executor``."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[bytes | Blob, bool]] = loop.create_future()

        def tell(outcome: bytes | Blob, has_failed: bool) -> None:
            # The future may have been cancelled meanwhile: its call was given up at the session's end.
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result((outcome, has_failed)))

        self._queue.put((call, tell))
        return await ended

    def interrupt(self, call: Call) -> None:
        """Have the call end, if it is the one that runs: others see for themselves that they are not to begin."""
        # Only then: of several that are interrupted together, one that waits is not to stand before the one that runs.
        if self._current is call:
            # Before the signal, whose handler asks for it.
            self._wanted = call
            self._signal(call)

    def _signal(self, call: Call) -> None:
        if self._wanted is call and self._current is call:
            # To this thread, not the process: a sleep or a read of the main thread then ends at once.
            signal.pthread_kill(self._main, signal.SIGINT)
            # Until it is seen: one that comes between the thread's last look and its system call wakes nobody, and
            # this thread often runs just then, because a sleep gives up the interpreter's lock before it begins.
            asyncio.get_running_loop().call_later(SIGNAL_S, self._signal, call)

    # In the main thread

    def live(self) -> None:
        """Run what comes, until ``end``; in the main thread."""
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            with self._namespace.as_main():
                while (entry := self._queue.get()) is not None:
                    call, tell = entry
                    outcome = self._execute(call)
                    tell(self._keep(outcome.pieces()), outcome.error is not None)
        finally:
            signal.signal(signal.SIGINT, before)
            self._namespace.close()

    def end(self) -> None:
        """Have ``live`` return."""
        self._queue.put(None)

    @property
    def output(self) -> Output | None:
        """Where a cell prints that runs just now; None where none does."""
        current = self._current
        return None if current is None else current.output

    def _show(self, bundle: Mapping[str, Any]) -> None:
        # What a thread shows after the end of its cell has no place in a notebook.
        if (output := self.output) is not None:
            output.show(bundle)

    def _interrupted(self, number: int, frame: types.FrameType | None) -> None:
        # One that was meant for a cell which has just ended must not hit the next one.
        if self._current is not None and self._wanted is self._current:
            self._wanted = None
            raise KeyboardInterrupt

    def _execute(self, call: Call) -> Outcome:
        try:
            return self._attempt(call)
        except KeyboardInterrupt:  # one that struck when the cell had just ended, and would end the driver
            self._current = None
            return interrupted(self._host)

    def _attempt(self, call: Call) -> Outcome:
        try:
            # Each time: an earlier cell may have put its own in this one's place, or have it ignored.
            signal.signal(signal.SIGINT, self._interrupted)
            self._current = call
            # Behind that line, where whoever interrupts it sends a signal: between the two it would run on.
            if call.is_cancelled:
                raise KeyboardInterrupt
            call.begin()
            outcome = self._namespace.do(call.request, call.content)
            self._current = None
        # SystemExit too: a cell that says exit() ends itself, and not the session of everybody.
        except BaseException as error:
            self._current = None
            outcome = outcome_of_error(error, host=self._host)
        return outcome
