"""Many calls of sessions at once: in the order of their ends, all values, and a progress bar."""

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, TextIO, TypeVar

from raysm.core.client.units import deadline
from raysm.errors import InvalidRequest, NotDone
from raysm.features.session.client.calls import Call

T = TypeVar("T")

BAR_CHARACTERS = 30
REDRAW_S = 0.2


def as_completed(calls: Iterable[Call[T]], timeout: float | None = None) -> Iterator[Call[T]]:
    """Yield calls as they end, whether they succeed or fail.

    Args:
        calls: Calls of any sessions.
        timeout: Seconds for all of them; None waits without limit.

    Raises:
        InvalidRequest: An element is not a call.
        NotDone: A TimeoutError: some calls are still running after ``timeout`` seconds.
    """
    waited = _collect_calls("as_completed", calls)
    deadline(timeout)
    until_s = None if timeout is None else time.monotonic() + timeout
    ended: queue.SimpleQueue[Call[T]] = queue.SimpleQueue()
    for call in waited:
        call.on_end(ended.put)
    for number in range(len(waited)):
        try:
            yield ended.get(
                timeout=None if until_s is None else max(0.0, until_s - time.monotonic())
            )
        except queue.Empty:
            left = len(waited) - number
            raise NotDone(
                f"{left} of {len(waited)} calls have not ended within {timeout:g} s; "
                "they keep running"
            ) from None


def gather(calls: Any, *, return_exceptions: bool = False) -> Any:
    """Wait for all calls and return their values.

    Args:
        calls: A call, or a list or dictionary of calls, also nested. The result has the same form.
        return_exceptions: Return exceptions as values; otherwise the first one is raised.

    Raises:
        InvalidRequest: An element is not a call.
        Exception: The exception of a call, with the remote traceback as a note.
    """
    calls = calls if isinstance(calls, Call | Mapping) else list(calls)
    waited = _collect_calls("gather", calls)
    if not return_exceptions:
        # In the order of their ends, so that a failure does not wait for slower calls.
        for call in as_completed(waited):
            call.result()
    values = {
        call: call.result() if (error := call.exception()) is None else error for call in waited
    }

    def fill(each: Any) -> Any:
        if isinstance(each, Call):
            return values[each]
        if isinstance(each, Mapping):
            return {name: fill(item) for name, item in each.items()}
        return [fill(item) for item in each]

    return fill(calls)


class MapResults(Iterator[T]):
    """The results of a map, one by one, which ``progress`` can fetch ahead.

    Attributes:
        total: Number of items; None if an iterable of the items does not know its length.
    """

    def __init__(self, results: Generator[T, None, None], total: int | None) -> None:
        self.total = total
        self._results = results
        self._fetched: deque[T] = deque()
        self._error: BaseException | None = None

    def __next__(self) -> T:
        if self._fetched:
            return self._fetched.popleft()
        if self._error is not None:
            error = self._error
            self._error = None
            raise error
        return next(self._results)

    def fetch(self) -> Iterator[bool]:
        """Fetch all results, which stay for ``next``; yield for each whether its item succeeded.

        An exception that ends the map is raised when ``next`` comes to it.
        """
        try:
            for result in self._results:
                self._fetched.append(result)
                yield not isinstance(result, BaseException)
        except Exception as error:
            self._error = error
            yield False

    def close(self) -> None:
        """End the map, and interrupt the items that run."""
        self._fetched.clear()
        self._results.close()


def progress(calls: "Iterable[Call[Any]] | MapResults[Any]", out: TextIO | None = None) -> None:
    """Draw a progress bar until all calls have ended; Ctrl-C stops the bar, not the calls.

    Args:
        calls: Calls of any sessions; or what ``session.map`` returned, which is then fetched to its
            end into memory, and yields its results afterwards.
        out: Where to draw; None is stderr.

    Raises:
        InvalidRequest: An element is not a call.
    """
    bar = _Bar(out or sys.stderr)
    if isinstance(calls, MapResults):
        done = failed = 0
        bar.draw(done, calls.total)
        for has_succeeded in calls.fetch():
            done += 1
            failed += not has_succeeded
            bar.draw_sometimes(done, calls.total, failed)
        bar.draw(done, calls.total, failed)
        bar.end()
        return
    waited = _collect_calls("progress", calls)
    news = threading.Event()
    for call in waited:
        call.on_end(lambda _: news.set())
    while True:
        news.clear()
        over = [call for call in waited if call.is_over()]
        bar.draw(len(over), len(waited), sum(call.exception() is not None for call in over))
        if len(over) == len(waited):
            bar.end()
            return
        news.wait()
        # Limits the redraws if calls take only milliseconds.
        time.sleep(REDRAW_S)


class _Bar:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._started_s = time.monotonic()
        self._drawn_s = self._started_s

    def draw(self, done: int, total: int | None, failed: int = 0) -> None:
        self._drawn_s = time.monotonic()
        bar = count = ""
        if total is not None:
            filled = BAR_CHARACTERS * done // max(1, total)
            bar = "█" * filled + "·" * (BAR_CHARACTERS - filled) + " "
            count = f"/{total}"
        failures = f", {failed} failed" if failed else ""
        self._out.write(f"\r{bar}{done}{count}{failures}, {self._drawn_s - self._started_s:.0f} s")
        self._out.flush()

    def draw_sometimes(self, done: int, total: int | None, failed: int) -> None:
        if time.monotonic() - self._drawn_s >= REDRAW_S:
            self.draw(done, total, failed)

    def end(self) -> None:
        self._out.write("\n")
        self._out.flush()


def _collect_calls(name: str, calls: Any) -> list[Call[Any]]:
    if isinstance(calls, Call):
        return [calls]
    if isinstance(calls, str) or not isinstance(calls, Iterable):
        raise InvalidRequest(
            f"{name}: expected calls, as session.submit(…) returns them, got {calls!r}"
        )
    each_of = calls.values() if isinstance(calls, Mapping) else calls
    return list(dict.fromkeys(call for each in each_of for call in _collect_calls(name, each)))
