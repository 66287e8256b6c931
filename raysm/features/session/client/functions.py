"""Call functions in a session: one call, a map in batches, and values that are sent once."""

import contextlib
import dataclasses
import hashlib
import pickle
import queue
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import Any

from raysm.core.client.source.function import (
    call_with_source,
    check_function,
    parcel_of_call,
    title_of,
)
from raysm.core.protocol.parcels import Scattered, size_of
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.session.client.calls import Call, load_error, load_value
from raysm.features.session.client.checks import check_integer, check_number
from raysm.features.session.client.connection import SessionConnection
from raysm.features.session.client.many_calls import MapResults
from raysm.features.session.protocol import BATCH, CALL, FUNCTION, SCATTER, CallRequest, Outcome

BATCH_S = 0.2
"""The desired run time of a batch: long compared to a request, and short for the user."""

# A request takes milliseconds, which are microseconds per item then: larger batches gain nothing.
MAX_ITEMS = 1000
MAX_BYTES = 256 << 10
"""Maximum size of a batch: a window of batches must fit into memory, and through a tunnel of 0.7
MB/s."""

MAX_GROWTH = 8
"""Maximum growth from one batch to the next, because the first items often take longest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MapOptions:
    """Options of a map; ``Session.map`` describes the fields."""

    ordered: bool
    retries: int
    return_exceptions: bool
    num_cpus: float
    num_gpus: float

    def __post_init__(self) -> None:
        check_integer("map: retries", self.retries)
        for name in ("num_cpus", "num_gpus"):
            check_number(f"map: {name}", getattr(self, name), example=f"{name}=1")


class Functions:
    """Calls of functions over one connection; the methods of ``Session`` describe theirs."""

    def __init__(self, connection: SessionConnection) -> None:
        self._connection = connection

    def submit(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call[Any]:
        check_function(fn, args, kwargs)
        name = title_of(fn)
        self._connection.check_python(f"the function {name}")
        self._connection.check_ray(f"a call of {name}", fn, args, kwargs)
        request = CallRequest(kind=CALL, name=name, python=self._connection.pickle_version)
        return self._connection.send_call(request, parcel_of_call(fn, args, kwargs))

    def map(
        self, fn: Callable[..., Any], iterables: Sequence[Iterable[Any]], options: MapOptions
    ) -> MapResults[Any]:
        connection = self._connection
        check_function(fn, (None,) * len(iterables), {})
        name = title_of(fn)
        for each in iterables:
            if not isinstance(each, Iterable):
                raise InvalidRequest(
                    f"map: items must be what a for loop takes, got {each!r}; "
                    f"[{each!r}] is one item"
                )
        connection.check_python(f"the function {name}")
        connection.check_ray(f"the function {name}", fn)
        # The function is sent once, under its digest. Batches send only their items.
        pickled = call_with_source(fn, (), {})
        digest = hashlib.sha256(pickled).hexdigest()
        # Raises if no process fits, before the function is sent.
        resources = {"num_cpus": options.num_cpus, "num_gpus": options.num_gpus}
        slots = connection.ask("GET", "/slots", params=resources)["slots"]
        function = CallRequest(
            kind=FUNCTION, name=name, python=connection.pickle_version, function=digest
        )
        connection.send_call(function, [pickled]).result()
        request = dataclasses.replace(
            function,
            kind=BATCH,
            num_cpus=options.num_cpus,
            num_gpus=options.num_gpus,
            unpack=len(iterables) > 1,
            retries=options.retries,
            return_exceptions=options.return_exceptions,
        )
        items = zip(*iterables, strict=False) if request.unpack else iterables[0]
        # Twice as many batches as run at once, so that no process waits for the next request.
        batches = _Batches(connection, request, items, 2 * slots + 1, is_ordered=options.ordered)
        lengths = [len(each) for each in iterables if isinstance(each, Sized)]
        total = min(lengths) if len(lengths) == len(iterables) else None
        return MapResults(batches.results(), total)

    def scatter(self, value: Any) -> Scattered:
        self._connection.check_python("what is scattered")
        self._connection.check_ray("what is scattered", list, value)
        parcel = parcel_of_call(list, (value,), {}, what="what is scattered")
        request = CallRequest(kind=SCATTER, name="scatter", python=self._connection.pickle_version)
        reference = self._connection.send_call(request, parcel).result()
        return Scattered(reference, size_of(parcel))


@dataclass(slots=True)
class _Batch:
    items: list[Any]
    call: Call[Any]
    outcomes: list[Outcome] | None = None


class _Batches:
    """The batches of one map.

    At most ``window`` batches run or wait for the caller at any moment, so memory depends neither
    on the number of items nor on how fast the caller takes results. Batches grow until each takes
    a fraction of a second: short items share a request, and long items do not wait for others.
    """

    def __init__(
        self,
        connection: SessionConnection,
        request: CallRequest,
        items: Iterable[Any],
        window: int,
        *,
        is_ordered: bool,
    ) -> None:
        self._connection = connection
        self._request = request
        self._items = enumerate(items)
        self._window = window
        self._is_ordered = is_ordered
        # The first batch measures one item.
        self._batch_items = 1
        # The oldest first. A batch stays until its results are taken, so a slow caller slows down
        # the sending.
        self._batches: list[_Batch] = []
        self._ended: queue.SimpleQueue[_Batch] = queue.SimpleQueue()

    def results(self) -> Generator[Any, None, None]:
        """Yield the results of all items; when it is closed, interrupt the batches that run."""
        try:
            while True:
                while len(self._batches) < self._window and self._send():
                    pass
                if not self._batches:
                    return
                batch = self._await_batch()
                # Not strict, because there are no outcomes after an item that ends the map.
                for item, outcome in zip(batch.items, batch.outcomes or (), strict=False):
                    yield self._load_result(outcome, item)
                self._batches.remove(batch)
        finally:
            for batch in self._batches:
                if not batch.call.done():
                    # The caller gets the error that ended the map, not a failure to cancel.
                    with contextlib.suppress(RaysmError):
                        batch.call.cancel()

    def _await_batch(self) -> _Batch:
        while True:
            for batch in self._batches[:1] if self._is_ordered else self._batches:
                if batch.outcomes is not None:
                    return batch
            # Not call.result() of the wanted batch, because every batch that ends adapts the batch
            # size.
            batch = self._ended.get()
            batch.outcomes = self._read_outcomes(batch)

    def _send(self) -> bool:
        """Send the next batch; return False if there are no more items."""
        first = 0
        size = 0
        items: list[Any] = []
        pickled: list[bytes] = []
        while len(items) < self._batch_items and size < MAX_BYTES:
            # Items are taken one at a time, because the iterable may be endless.
            entry = next(self._items, None)
            if entry is None:
                break
            number, item = entry
            first = number - len(items)
            items.append(item)
            # Pickled one by one, so that an error names the item, and an item that cannot be loaded
            # fails alone.
            pickled.append(self._connection.pickle_item(item, f"item {number}"))
            size += len(pickled[-1])
        if not items:
            return False
        request = dataclasses.replace(self._request, first=first)
        batch = _Batch(items, self._connection.send_call(request, [pickle.dumps(pickled)]))
        self._batches.append(batch)
        # A queue, because the callback runs in the connection's thread and the user takes results
        # in another.
        batch.call.on_end(lambda _: self._ended.put(batch))
        return True

    def _read_outcomes(self, batch: _Batch) -> list[Outcome]:
        _, outcome = batch.call.outcome()
        if outcome.error is not None:
            raise self._load_error(outcome)
        # Plain bytes and a number. The user's values are loaded one by one when they are taken.
        took_s, outcomes = pickle.loads(outcome.pickled)
        self._adapt_size(len(batch.items), took_s)
        return [Outcome.decode(encoded) for encoded in outcomes]

    def _adapt_size(self, items: int, took_s: float) -> None:
        fitting = int(BATCH_S * items / took_s) if took_s > 0 else MAX_ITEMS
        # A slow batch at most halves the size, because it may have waited for a core.
        smallest = min(self._batch_items // 2, MAX_ITEMS)
        self._batch_items = max(1, min(fitting, items * MAX_GROWTH, MAX_ITEMS), smallest)

    def _load_result(self, outcome: Outcome, item: Any) -> Any:
        if outcome.error is None:
            return load_value(outcome, self._request.name, self._connection.context.loads)
        error = self._load_error(outcome)
        shown = repr(item)
        # The repr of an item may be very long.
        if len(shown) > 200:
            shown = f"{shown[:197]}..."
        error.add_note(f"item {outcome.error.item}: {shown}")
        if not self._request.return_exceptions:
            raise error
        return error

    def _load_error(self, outcome: Outcome) -> BaseException:
        context = self._connection.context
        return load_error(outcome, self._request.name, context.session, context.loads)
