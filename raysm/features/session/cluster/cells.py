"""The cells of a session's head, which run one at a time in one namespace.

They run in the main thread of the driver, because a signal interrupts only the main thread, even in
a sleep or in a wait for Ray. The namespace of another instance lives in a Ray actor there.
"""

import asyncio
import json
import queue
import signal
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

from raysm.features.session.cluster.blobs import Blob
from raysm.features.session.cluster.calls import Call
from raysm.features.session.cluster.namespace import Namespace
from raysm.features.session.cluster.outcomes import interrupted_outcome, outcome_from_error
from raysm.features.session.cluster.output import Output
from raysm.features.session.protocol import DISPLAY, Outcome

CELL_SIGNAL_S = 0.1


class Cells:
    def __init__(self, host: str, keep: Callable[[list[Any]], bytes | Blob] = b"".join) -> None:
        self._host = host
        self._keep = keep
        self._namespace = Namespace(self._show)
        self._queue: queue.SimpleQueue[tuple[Call, Callable[[bytes | Blob, bool], None]] | None] = (
            queue.SimpleQueue()
        )
        # The constructor and live() run in the main thread.
        self._main = threading.get_ident()
        self._current: Call | None = None
        self._interrupting: Call | None = None

    @property
    def namespace(self) -> dict[str, Any]:
        return self._namespace.names

    # In the server's loop

    async def run(self, call: Call) -> tuple[bytes | Blob, bool]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[bytes | Blob, bool]] = loop.create_future()

        def on_end(outcome: bytes | Blob, has_failed: bool) -> None:
            # The future is cancelled if the call was abandoned at the session's end.
            loop.call_soon_threadsafe(
                lambda: None if ended.done() else ended.set_result((outcome, has_failed))
            )

        self._queue.put((call, on_end))
        return await ended

    def interrupt(self, call: Call) -> None:
        # A waiting cell checks ``is_cancelled`` when its turn comes.
        if self._current is call:
            # Before the signal, because its handler checks this.
            self._interrupting = call
            self._signal(call)

    def _signal(self, call: Call) -> None:
        if self._interrupting is call and self._current is call:
            # To the main thread and not to the process, so that a sleep or a read there ends at
            # once.
            signal.pthread_kill(self._main, signal.SIGINT)
            # Repeated, because a signal is not noticed if it arrives after Python's last check for
            # signals and before a blocking system call. This is likely: a sleep releases the GIL
            # just before it begins.
            asyncio.get_running_loop().call_later(CELL_SIGNAL_S, self._signal, call)

    # In the main thread

    def live(self) -> None:
        before = signal.signal(signal.SIGINT, self._on_signal)
        try:
            with self._namespace.as_main():
                while (entry := self._queue.get()) is not None:
                    call, on_end = entry
                    outcome = self._execute(call)
                    on_end(self._keep(outcome.pieces()), outcome.error is not None)
        finally:
            signal.signal(signal.SIGINT, before)
            self._namespace.close()

    def end(self) -> None:
        self._queue.put(None)

    @property
    def output(self) -> Output | None:
        current = self._current
        return None if current is None else current.output

    def _show(self, bundle: Mapping[str, Any]) -> None:
        # Displays of threads are dropped after the end of their cell.
        if (output := self.output) is not None:
            output.write(DISPLAY, json.dumps(bundle))

    def _on_signal(self, number: int, frame: types.FrameType | None) -> None:
        # A signal for a cell that has just ended must not interrupt the next cell.
        if self._current is not None and self._interrupting is self._current:
            self._interrupting = None
            raise KeyboardInterrupt

    def _execute(self, call: Call) -> Outcome:
        try:
            return self._attempt(call)
        # Arrived just after the end of the cell, and must not end the driver.
        except KeyboardInterrupt:
            self._current = None
            return interrupted_outcome(self._host)

    def _attempt(self, call: Call) -> Outcome:
        try:
            # For each cell, because an earlier cell may have replaced the handler.
            signal.signal(signal.SIGINT, self._on_signal)
            self._current = call
            # Checked after that line: from then on interrupt() sends a signal.
            if call.is_cancelled:
                raise KeyboardInterrupt
            call.start()
            outcome = self._namespace.execute(call.request, call.content)
            self._current = None
        # SystemExit too: exit() ends the cell, not the session.
        except BaseException as error:
            self._current = None
            outcome = outcome_from_error(error, host=self._host)
        return outcome
