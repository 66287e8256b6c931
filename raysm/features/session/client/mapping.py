"""Map a function over many items in a session, in batches.

At most ``window`` batches run or wait to be taken at any moment, so memory depends neither on the
number of items nor
on how fast the caller takes results. Batches grow until each takes a fraction of a second: short
items share a request, and long items do not wait for others.
"""

import contextlib
import pickle
import queue
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

from raysm.errors import RaysmError
from raysm.features.session.client.calls import Call, Line, error_of, value_of
from raysm.features.session.protocol import Outcome

WANTED_S = 0.2
"""The desired run time of a batch: long compared to a request, and short for the user."""

# A request takes milliseconds, which are microseconds per item then: larger batches gain nothing.
MAX_ITEMS = 1000
MAX_BYTES = 256 << 10
"""Maximum size of a batch: a window of batches must fit into memory, and through a tunnel of 0.7
MB/s."""

MAX_GROWTH = 8
"""Maximum growth from one batch to the next, because the first items often take longest."""


class BatchSize:
    def __init__(self) -> None:
        # The first batch measures one item.
        self.items = 1

    def learn(self, items: int, took_s: float) -> None:
        fitting = int(WANTED_S * items / took_s) if took_s > 0 else MAX_ITEMS
        # A slow batch at most halves the size, because it may have waited for a core.
        self.items = max(
            1, min(fitting, items * MAX_GROWTH, MAX_ITEMS), min(self.items // 2, MAX_ITEMS)
        )


@dataclass(slots=True)
class _Batch:
    items: list[Any]
    call: Call[Any]
    outcomes: list[Outcome] | None = None


class Mapped:
    def __init__(
        self,
        items: Iterable[Any],
        submit: Callable[[int, bytes], Call[Any]],
        pickled: Callable[[Any, str], bytes],
        *,
        window: int,
        name: str,
        line: Line,
        ordered: bool = True,
        return_exceptions: bool = False,
    ) -> None:
        self._items = enumerate(items)
        self._submit, self._pickled, self._window = submit, pickled, window
        self._name, self._line = name, line
        self._ordered, self._return_exceptions = ordered, return_exceptions
        self._size = BatchSize()
        # The oldest first. A batch stays until its results are taken, so a slow caller slows down
        # the sending.
        self._batches: list[_Batch] = []
        self._ended: queue.SimpleQueue[_Batch] = queue.SimpleQueue()

    def results(self) -> Generator[Any, None, None]:
        try:
            while True:
                while len(self._batches) < self._window and self._send():
                    pass
                if not self._batches:
                    return
                batch = self._take()
                # Not strict, because there are no outcomes after an item that ends the map.
                for item, outcome in zip(batch.items, batch.outcomes or (), strict=False):
                    yield self._result(outcome, item)
                self._batches.remove(batch)
        finally:
            for batch in self._batches:
                if not batch.call.done():
                    # The caller gets the error that ended the map, not a failure to cancel.
                    with contextlib.suppress(RaysmError):
                        batch.call.cancel()

    def _take(self) -> _Batch:
        while True:
            for batch in self._batches[:1] if self._ordered else self._batches:
                if batch.outcomes is not None:
                    return batch
            # Not call.result() of the wanted batch, because every batch that ends adapts the batch
            # size.
            batch = self._ended.get()
            batch.outcomes = self._read(batch)

    def _send(self) -> bool:
        first, items, pickled, size = 0, [], [], 0  # type: ignore[var-annotated]
        while len(items) < self._size.items and size < MAX_BYTES:
            # Items are taken one at a time, because the iterable may be endless.
            entry = next(self._items, None)
            if entry is None:
                break
            number, item = entry
            first = number - len(items)
            items.append(item)
            # Pickled one by one, so that an error names the item, and an item that cannot be loaded
            # fails alone.
            pickled.append(self._pickled(item, f"item {number}"))
            size += len(pickled[-1])
        if not items:
            return False
        batch = _Batch(items, self._submit(first, pickle.dumps(pickled)))
        self._batches.append(batch)
        # A queue, because the callback runs in the connection's thread and the user takes results
        # in another.
        batch.call.on_end(lambda _: self._ended.put(batch))
        return True

    def _read(self, batch: _Batch) -> list[Outcome]:
        _, outcome = batch.call.outcome()
        if outcome.error is not None:
            raise self._error(outcome)
        # Plain bytes and a number. The user's values are loaded one by one when they are taken.
        took_s, outcomes = pickle.loads(outcome.pickled)
        self._size.learn(len(batch.items), took_s)
        return [Outcome.decode(encoded) for encoded in outcomes]

    def _result(self, outcome: Outcome, item: Any) -> Any:
        if outcome.error is None:
            return value_of(outcome, self._name, self._line.loads)
        error = self._error(outcome)
        shown = repr(item)
        # The repr of an item may be very long.
        error.add_note(
            f"item {outcome.error.item}: {shown if len(shown) <= 200 else shown[:197] + '...'}"
        )
        if not self._return_exceptions:
            raise error
        return error

    def _error(self, outcome: Outcome) -> BaseException:
        return error_of(outcome, self._name, self._line.session, self._line.loads)
