"""Map a function over many items in a session, in batches.

At most ``window`` batches run or wait to be taken at any moment, so memory depends neither on the number of items nor
on how fast the caller takes results. Batches grow until each takes a fraction of a second: short items share a request,
and long items do not wait for others.
"""

import contextlib
import itertools
import pickle
import queue
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from raysm.client.session.arguments import check_number, check_whole
from raysm.client.session.calls import Call, Line, error_of, value_of
from raysm.contract.session import BATCH, CallRequest, Outcome, RemoteError
from raysm.errors import RaysmError

__all__ = ["BatchSize", "MapOptions", "Mapped"]

WANTED_S = 0.2
"""The desired run time of a batch: long compared to a request, and short for the user."""

# A request takes milliseconds, which are microseconds per item then: larger batches gain nothing.
MAX_ITEMS = 1000
MAX_BYTES = 256 << 10
"""Maximum size of a batch: a window of batches must fit into memory, and through a tunnel of 0.7 MB/s."""

MAX_GROWTH = 8
"""Maximum growth from one batch to the next, because the first items often take longest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MapOptions:
    """The options of a map.

    Raises:
        InvalidRequest: A number is out of range.
    """

    ordered: bool = True
    """Yield results in the order of the items; otherwise as they finish."""
    retries: int = 0
    """How often to retry an item whose function raised. Deaths of processes are retried separately."""
    return_exceptions: bool = False
    """Yield exceptions as results; otherwise the first one ends the map."""
    num_cpus: float = 1.0
    """CPUs for each process."""
    num_gpus: float = 0.0
    """GPUs for each process."""

    def __post_init__(self) -> None:
        check_whole("map: retries", self.retries)
        for name in ("num_cpus", "num_gpus"):
            check_number(f"map: {name}", getattr(self, name), example=f"{name}=1")

    def request(self, name: str, python: str, function: str, first: int, unpack: bool = False) -> CallRequest:
        """Build the request of one batch.

        Args:
            name: Name of the function.
            python: Version of the Python that pickled it.
            function: Digest under which it was sent.
            first: Index of the batch's first item.
            unpack: Each item is a tuple of arguments.
        """
        return CallRequest(
            kind=BATCH,
            name=name,
            python=python,
            function=function,
            first=first,
            unpack=unpack,
            retries=self.retries,
            return_exceptions=self.return_exceptions,
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus,
        )


class BatchSize:
    """The number of items of the next batch, from the run times of earlier batches."""

    def __init__(self) -> None:
        # The first batch measures one item.
        self.items = 1

    def learn(self, items: int, took_s: float) -> None:
        """Adapt the size to a batch of ``items`` that took ``took_s``."""
        fitting = int(WANTED_S * items / took_s) if took_s > 0 else MAX_ITEMS
        # A slow batch at most halves the size, because it may have waited for a core.
        self.items = max(1, min(fitting, items * MAX_GROWTH, MAX_ITEMS), min(self.items // 2, MAX_ITEMS))


@dataclass(slots=True)
class _Batch:
    number: int
    first: int
    items: list[Any]
    call: Call[Any] | None = None
    outcomes: list[Outcome] | None = None


class Mapped:
    """One map: sends batches and yields results.

    Attributes:
        window: Maximum number of batches that run or wait to be taken.
    """

    def __init__(
        self,
        items: Iterable[Any],
        options: MapOptions,
        window: int,
        submit: Callable[[int, bytes], Call[Any]],
        *,
        name: str,
        line: Line,
        pickled: Callable[[Any, str], bytes],
    ) -> None:
        """Create the map; ``results`` starts it.

        Args:
            items: The items.
            options: The options of the map.
            window: Maximum number of batches that run or wait to be taken.
            submit: Sends a batch: the index of its first item, and the pickled list of pickled items.
            name: Name of the function.
            line: The connection with the session.
            pickled: Pickles an item; the second argument is its name in messages.
        """
        # A batch counts until its results are taken, so a slow caller slows down the sending.
        self.window = window
        self._items = enumerate(items)
        self._options, self._submit, self._pickle = options, submit, pickled
        self._name, self._line = name, line
        self._size = BatchSize()
        self._under_way: dict[int, _Batch] = {}
        self._ended: queue.SimpleQueue[_Batch] = queue.SimpleQueue()
        self._is_exhausted = False

    def results(self) -> Iterator[Any]:
        """Yield the results; closing the iterator interrupts the running batches."""
        numbers = itertools.count()
        number = 0
        try:
            while True:
                while len(self._under_way) < self.window and self._send(next(numbers)):
                    pass
                if not self._under_way:
                    return
                batch = self._take(number)
                # Not strict, because there are no outcomes after an item that ends the map.
                for item, outcome in zip(batch.items, batch.outcomes or (), strict=False):
                    yield self._result(outcome, item)
                del self._under_way[batch.number]
                number += 1
        finally:
            self._cancel()

    def _take(self, number: int) -> _Batch:
        """Wait for the next batch whose results are due."""
        while True:
            ready = self._under_way.get(number) if self._options.ordered else self._any_ready()
            if ready is not None and ready.outcomes is not None:
                return ready
            # Not call.result() of the wanted batch, because every batch that ends adapts the batch size.
            batch = self._ended.get()
            batch.outcomes = self._read(batch)

    def _any_ready(self) -> _Batch | None:
        return next((batch for batch in self._under_way.values() if batch.outcomes is not None), None)

    def _send(self, number: int) -> bool:
        """Send another batch; return False if there are no more items."""
        if self._is_exhausted:
            return False
        first, items, pickled, size = 0, [], [], 0  # type: ignore[var-annotated]
        while len(items) < self._size.items and size < MAX_BYTES:
            # Items are taken one at a time, because the iterable may be endless.
            entry = next(self._items, None)
            if entry is None:
                self._is_exhausted = True
                break
            if not items:
                first = entry[0]
            items.append(entry[1])
            # Pickled one by one, so that an error names the item, and an item that cannot be loaded fails alone.
            pickled.append(self._pickle(entry[1], f"item {entry[0]}"))
            size += len(pickled[-1])
        if not items:
            return False
        batch = _Batch(number, first, items)
        self._under_way[number] = batch
        batch.call = self._submit(first, pickle.dumps(pickled))
        # A queue, because the callback runs in the connection's thread and the user takes results in another.
        batch.call.add_done_callback(lambda _: self._ended.put(batch))
        return True

    def _read(self, batch: _Batch) -> list[Outcome]:
        assert batch.call is not None
        _, outcome = batch.call.outcome()
        if outcome.error is not None:
            raise self._error(outcome.error, outcome.pickled)
        # Plain bytes and a number. The user's values are loaded one by one when they are taken.
        took_s, outcomes = pickle.loads(outcome.pickled)
        self._size.learn(len(batch.items), took_s)
        return [Outcome.decode(encoded) for encoded in outcomes]

    def _result(self, outcome: Outcome, item: Any) -> Any:
        if outcome.error is None:
            return value_of(outcome, self._name, self._line.loads)
        error = self._error(outcome.error, outcome.pickled)
        shown = repr(item)
        # The repr of an item may be very long.
        error.add_note(f"item {outcome.error.item}: {shown if len(shown) <= 200 else shown[:197] + '...'}")
        if not self._options.return_exceptions:
            raise error
        return error

    def _error(self, error: RemoteError, pickled: bytes) -> BaseException:
        return error_of(error, pickled, self._name, self._line.session, self._line.loads)

    def _cancel(self) -> None:
        for batch in self._under_way.values():
            if batch.call is not None and not batch.call.done():
                # The caller gets the error that ended the map, not a failure to cancel.
                with contextlib.suppress(RaysmError):
                    batch.call.cancel()
