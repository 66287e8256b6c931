"""Threads of one step, one for each region, that use the store in turns."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor


class Turns:
    """Lets the threads of a step use the store one at a time while their calls overlap.

    A step has one thread for each region.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._ends = False

    def run(self, works: Sequence[Callable[[], object]]) -> None:
        if len(works) < 2:
            for work in works:
                work()
            return
        self._ends = False
        with ThreadPoolExecutor(len(works), thread_name_prefix="region") as pool:
            done = [pool.submit(self._in_turn, work) for work in works]
            try:
                errors = [future.exception() for future in done]
            except BaseException:
                # On the user's interrupt, do not wait for twenty more calls to a silent region.
                self._ends = True
                raise
        raised = [error for error in errors if error is not None]
        if raised:
            raise next(
                (error for error in raised if not isinstance(error, CancelledError)), raised[0]
            )

    def _in_turn(self, work: Callable[[], object]) -> None:
        with self._turn:
            try:
                work()
            except BaseException:
                self._ends = True
                raise

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Release the turn during the block, which makes a call and does not use the store."""
        # A single function runs without a turn.
        if not self._turn.locked():
            yield
            return
        if self._ends:
            raise CancelledError
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()
