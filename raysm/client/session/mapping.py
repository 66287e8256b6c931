"""A function over many items in a session: batches are under way while results are taken.

At most ``window`` batches are under way or wait to be taken at any moment, so memory depends neither on the number of
items nor on how fast the caller takes results. Batches grow until each takes a fraction of a second, so that an item of
microseconds does not pay for its own request, and one of minutes does not wait for others.
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
"""How long a batch is to take: long beside a request's milliseconds, short beside anybody's patience."""

# A request's own milliseconds are microseconds an item by then: a larger batch gains nothing.
MOST_ITEMS = 1000
MOST_BYTES = 256 << 10
"""Of one batch: a window of them has to fit into memory, and through a tunnel of 0.7 MB/s."""

GROWTH = 8
"""By which a batch may be larger than the one that was measured: the first items often take longest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MapOptions:
    """How items are worked on.

    Raises:
        InvalidRequest: A number is out of its range.
    """

    ordered: bool = True
    """Whether results come in the order of the items; else as they are finished."""
    retries: int = 0
    """How often an item is tried again whose function raised. One whose process died is tried three times anyhow."""
    return_exceptions: bool = False
    """Whether an exception is a result like any other; else the first one ends the map."""
    num_cpus: float = 1.0
    """CPUs for each process."""
    num_gpus: float = 0.0
    """GPUs for each process."""

    def __post_init__(self) -> None:
        check_whole("map: retries", self.retries)
        for name in ("num_cpus", "num_gpus"):
            check_number(f"map: {name}", getattr(self, name), example=f"{name}=1")

    def request(self, name: str, python: str, function: str, first: int, unpack: bool = False) -> CallRequest:
        """Return what is asked for of one batch.

        Args:
            name: Of the function.
            python: Who pickled it.
            function: The digest under which it was sent.
            first: The number of the batch's first item.
            unpack: Whether each item is a tuple of arguments.
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
    """How many items the next batch has, by what earlier ones took."""

    def __init__(self) -> None:
        # Nobody knows how long an item takes: one is tried first.
        self.items = 1

    def learn(self, items: int, took_s: float) -> None:
        """Take what a batch of ``items`` took."""
        fitting = int(WANTED_S * items / took_s) if took_s > 0 else MOST_ITEMS
        # One slow batch halves the size at most: it may have waited for a core.
        self.items = max(1, min(fitting, items * GROWTH, MOST_ITEMS), min(self.items // 2, MOST_ITEMS))


@dataclass(slots=True)
class _Batch:
    number: int
    first: int
    items: list[Any]
    call: Call[Any] | None = None
    outcomes: list[Outcome] | None = None


class Mapped:
    """One map: an iterator over its results.

    Attributes:
        window: Batches under way at a time, at most.
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
        """Take nothing yet.

        Args:
            items: Any number.
            options: How they are worked on.
            window: Batches under way at a time.
            submit: Sends a batch: the number of its first item, and the pickled list of pickled items.
            name: Of the function.
            line: To the session.
            pickled: Pickles an item, which it calls by the name that it gets.
        """
        # A batch counts until its results are taken: so a slow reader holds back what is sent.
        self.window = window
        self._items = enumerate(items)
        self._options, self._submit, self._pickle = options, submit, pickled
        self._name, self._line = name, line
        self._size = BatchSize()
        self._under_way: dict[int, _Batch] = {}
        self._ended: queue.SimpleQueue[_Batch] = queue.SimpleQueue()
        self._is_exhausted = False

    def results(self) -> Iterator[Any]:
        """Yield the results; who takes no more of them ends what is under way."""
        numbers = itertools.count()
        number = 0
        try:
            while True:
                while len(self._under_way) < self.window and self._send(next(numbers)):
                    pass
                if not self._under_way:
                    return
                batch = self._take(number)
                # Not strict: where an item ends the map, the server tells of none behind it.
                for item, outcome in zip(batch.items, batch.outcomes or (), strict=False):
                    yield self._result(outcome, item)
                del self._under_way[batch.number]
                number += 1
        finally:
            self._cancel()

    def _take(self, number: int) -> _Batch:
        """Wait for the batch that comes next."""
        while True:
            ready = self._under_way.get(number) if self._options.ordered else self._any_ready()
            if ready is not None and ready.outcomes is not None:
                return ready
            # Not ``call.result()`` of the wanted one: others that end meanwhile tell how long the next batch may be.
            batch = self._ended.get()
            batch.outcomes = self._read(batch)

    def _any_ready(self) -> _Batch | None:
        return next((batch for batch in self._under_way.values() if batch.outcomes is not None), None)

    def _send(self, number: int) -> bool:
        """Send a further batch; return whether there was an item for it."""
        if self._is_exhausted:
            return False
        first, items, pickled, size = 0, [], [], 0  # type: ignore[var-annotated]
        while len(items) < self._size.items and size < MOST_BYTES:
            # One at a time, and no more than the batch takes: what yields them may be endless, or read a file.
            entry = next(self._items, None)
            if entry is None:
                self._is_exhausted = True
                break
            if not items:
                first = entry[0]
            items.append(entry[1])
            # Each by itself: one item that cannot be pickled is named, and one that cannot be read there fails alone.
            pickled.append(self._pickle(entry[1], f"item {entry[0]}"))
            size += len(pickled[-1])
        if not items:
            return False
        batch = _Batch(number, first, items)
        self._under_way[number] = batch
        batch.call = self._submit(first, pickle.dumps(pickled))
        # A queue, since the callback comes from the loop's thread and the results are taken in the user's.
        batch.call.add_done_callback(lambda _: self._ended.put(batch))
        return True

    def _read(self, batch: _Batch) -> list[Outcome]:
        assert batch.call is not None
        _, outcome = batch.call.outcome()
        if outcome.error is not None:
            raise self._error(outcome.error, outcome.pickled)
        # Bytes of the session's own, not the user's values: those are read one by one, where each is taken.
        took_s, outcomes = pickle.loads(outcome.pickled)
        self._size.learn(len(batch.items), took_s)
        return [Outcome.decode(encoded) for encoded in outcomes]

    def _result(self, outcome: Outcome, item: Any) -> Any:
        if outcome.error is None:
            return value_of(outcome, self._name, self._line.loads)
        error = self._error(outcome.error, outcome.pickled)
        shown = repr(item)
        # An item may be an array of gigabytes whose repr is a screen or more.
        error.add_note(f"item {outcome.error.item}: {shown if len(shown) <= 200 else shown[:197] + '...'}")
        if not self._options.return_exceptions:
            raise error
        return error

    def _error(self, error: RemoteError, pickled: bytes) -> BaseException:
        return error_of(error, pickled, self._name, self._line.session, self._line.loads)

    def _cancel(self) -> None:
        for batch in self._under_way.values():
            if batch.call is not None and not batch.call.done():
                # A session that has ended has none under way; and what ended the map is what its caller is to hear.
                with contextlib.suppress(RaysmError):
                    batch.call.cancel()
