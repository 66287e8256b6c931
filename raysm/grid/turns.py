"""Work on several regions side by side: calls are waited for at the same time, and all else is done in turn.

What flows in is a piece of work for each region, in which a call is marked by ``away``. Whatever a step knows, its
store above all, is so used by one thread at a time, as if there were no threads: another region's work goes on only
while this one's waits for an answer.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor

__all__ = ["Turns"]


class Turns:
    """Whose turn it is."""

    def __init__(self) -> None:
        """Nobody works yet."""
        self._turn = threading.Lock()
        self._ends = False

    def each(self, works: Sequence[Callable[[], object]]) -> None:
        """Do all of these works, each in a thread of its own; return when all have ended.

        Raises:
            Exception: What the first of them raised; the others then end before their next call.
        """
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
                # The user's interrupt: of twenty calls to a region that is silent each would be waited for.
                self._ends = True
                raise
        raised = [error for error in errors if error is not None]
        if raised:
            raise next((error for error in raised if not isinstance(error, CancelledError)), raised[0])

    def _in_turn(self, work: Callable[[], object]) -> None:
        with self._turn:
            try:
                work()
            except BaseException:
                self._ends = True
                raise

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Within it a call is on its way, and others have their turn.

        Raises:
            CancelledError: Another one has failed: nothing more is to be called.
        """
        # Where nothing is done side by side nobody waits for a turn.
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

    @contextlib.contextmanager
    def back(self) -> Iterator[None]:
        """Within it, of a call that is on its way, it is this one's turn: what it uses is used by others too."""
        with self._turn:
            yield
