"""Wait for many calls at once: ``as_completed``, ``gather`` and ``progress``."""

import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO, TypeVar

from raysm.client.session.calls import Call
from raysm.client.units import deadline
from raysm.errors import InvalidRequest, NotDone

T = TypeVar("T")

BAR_CHARACTERS = 30
DRAWN_S = 0.2


def as_completed(calls: Iterable[Call[T]], timeout: float | None = None) -> Iterator[Call[T]]:
    """Yield calls as they end, whether they succeed or fail.

    Args:
        calls: Calls of any sessions.
        timeout: Seconds for all of them; None waits without limit.

    Raises:
        InvalidRequest: An element is not a call.
        NotDone: A TimeoutError: some calls are still running after ``timeout`` seconds.
    """
    waited = _checked("as_completed", calls)
    deadline(timeout)
    until_s = None if timeout is None else time.monotonic() + timeout
    ended: queue.SimpleQueue[Call[T]] = queue.SimpleQueue()
    for call in waited:
        call.add_done_callback(ended.put)
    for number in range(len(waited)):
        try:
            yield ended.get(timeout=None if until_s is None else max(0.0, until_s - time.monotonic()))
        except queue.Empty:
            left = len(waited) - number
            raise NotDone(f"{left} of {len(waited)} calls have not ended within {timeout:g} s; they go on") from None


def gather(calls: Any, *, return_exceptions: bool = False) -> Any:
    """Wait for all calls and return their values.

    Args:
        calls: A list of calls, or a dictionary whose values are calls. The result has the same form.
        return_exceptions: Return exceptions as values; otherwise the first one is raised.

    Raises:
        InvalidRequest: An element is not a call.
        Exception: The exception of a call, with the remote traceback as a note.
    """
    if isinstance(calls, Mapping):
        values = gather(list(calls.values()), return_exceptions=return_exceptions)
        return dict(zip(calls, values, strict=True))
    waited = list(calls)
    _checked("gather", waited)
    if return_exceptions:
        return [call.result() if (error := call.exception()) is None else error for call in waited]
    # In the order of their ends, so that a failure does not wait for slower calls.
    for call in as_completed(waited):
        call.result()
    return [call.result() for call in waited]


def progress(calls: Iterable[Call[Any]], out: TextIO | None = None) -> None:
    """Draw a progress bar until all calls have ended; Ctrl-C stops the bar, and the calls keep running.

    Args:
        calls: Calls of any sessions.
        out: Where to draw; None is stderr.

    Raises:
        InvalidRequest: An element is not a call.
    """
    waited, began_s = _checked("progress", calls), time.monotonic()
    news = threading.Event()
    for call in waited:
        call.add_done_callback(lambda _: news.set())
    while True:
        news.clear()
        done = [call for call in waited if call.is_over()]
        failed = sum(call.exception() is not None for call in done)
        filled = BAR_CHARACTERS * len(done) // max(1, len(waited))
        bar = "█" * filled + "·" * (BAR_CHARACTERS - filled)
        stream = out or sys.stderr
        failures = f", {failed} failed" if failed else ""
        stream.write(f"\r{bar} {len(done)}/{len(waited)}{failures}, {time.monotonic() - began_s:.0f} s")
        if len(done) == len(waited):
            stream.write("\n")
        stream.flush()
        if len(done) == len(waited):
            return
        news.wait()
        # Limits the redraws if calls take only milliseconds.
        time.sleep(DRAWN_S)


def _checked(name: str, calls: Iterable[Any]) -> list[Call[Any]]:
    waited = list(dict.fromkeys(calls))
    for each in waited:
        if not isinstance(each, Call):
            raise InvalidRequest(f"{name}: expected calls, as session.submit(…) returns them, got {each!r}")
    return waited
