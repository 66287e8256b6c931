"""The rotation of sharded rows: which chunks are sent to which instance, and in which order.

A share is cut into *chunks* of consecutive rows. Every unordered pair of chunks, and each chunk
with itself, is compared once, on an instance that has at least one of the two. A *transfer* is a
chunk that comes to an instance, with all the chunks of that instance that it must be compared with
there; so a chunk is sent to each instance at most once.

**Half ring.** Of n instances, the chunks of i + 1, i + 2, … i + (n - 1) // 2 around the circle come
to i. For even n, the instances i and i + n/2 divide their work: half of the one's chunks go to the
other, which sends all of its own back to be compared with the other half. With equal shares of N
rows each instance sends and receives (n - 1) / 2 * N / n
rows, or about as many for even n. Instances with larger shares have more to do: files should have
about the same size.

**Queries.** If there are queries, one of the two channels stays and the other travels: each of its
chunks comes to every instance that has rows of the channel that stays. A channel that every
instance has never travels. If both are sharded, the one with fewer bytes travels.

**The queue of pairs** hands out pairs so that rows travel while others are compared, and few are on
their way. A task on the instance that has a chunk puts it into Ray's object store, so Ray makes it
again if it is lost. At most ``window`` chunks are on their way to an instance or being compared
there, and at most ``MAX_LEAVING`` times as many are on their way from an instance. Each is dropped
after its last comparison. So

    object store of an instance <= (1 + MAX_LEAVING) * window * chunk + results on their way to the
    head.

The first pair of each new chunk is handed out before the remaining pairs of older ones, because Ray
fetches the rows of queued tasks: so the network does not wait for slow tasks.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysm.core.protocol.names import natural
from raysm.features.similarity.cluster.reading.matrix import Matrix
from raysm.features.similarity.cluster.shards import RowChunk
from raysm.features.similarity.cluster.tasks import (
    Comparing,
    Context,
    Part,
    TileTask,
    get_engine_cache,
    run_task,
)
from raysm.features.similarity.cluster.tiling import shift_tile
from raysm.instance.work.blocks import LATER
from raysm.instance.work.nodes import PlacedBlock
from raysm.instance.work.row_blocks import TileBlock

Moving = Literal["either", "queries", "matrix"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A chunk that comes to an instance, and the chunks that it is compared with there."""

    host: str
    chunk: RowChunk
    """The chunk that comes, or one of the instance's own."""
    partners: tuple[RowChunk, ...]
    """They include ``chunk`` if it is compared with itself."""
    moves: Moving = "either"

    @property
    def at_home(self) -> bool:
        return self.chunk.host == self.host


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockPair(TileTask, PlacedBlock):
    """The task to compare two chunks, or one with itself, on a host that has one of them."""

    host: str
    left: RowChunk
    """The rows of the tile: queries, or in a self-join the chunk with the lower places."""
    right: RowChunk
    inputs: tuple[Any, ...] = ()
    """The rows of the remote chunk, as a Ray object; empty if there is none."""

    @property
    def remote(self) -> RowChunk | None:
        return next((chunk for chunk in (self.left, self.right) if chunk.host != self.host), None)

    @property
    def needs(self) -> tuple[str, ...]:
        return () if self.remote is None else (self.remote.host,)

    @property
    def mirrored(self) -> bool:
        return self.self_join and self.left != self.right

    @property
    def in_order(self) -> bool:
        return self.left.in_order and self.right.in_order

    def row_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.left.numbers_of(places)

    def column_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.right.numbers_of(places)

    def __str__(self) -> str:
        # Use numbers of rows, and for a piece its position in the pair: names in a record must not
        # depend on places.
        piece = shift_tile(self.tile, -self.left.range.start, -self.right.range.start)
        is_whole = (piece.rows.rows, piece.columns.rows) == (self.left.rows, self.right.rows)
        return f"{self.left} with {self.right}" + ("" if is_whole else f": {piece}")


def block_pairs(transfer: Transfer) -> Iterator[BlockPair]:
    """Yield the pairs of a transfer: queries left and the matrix right.

    In a self-join, in the order of places.
    """
    for own in transfer.partners:
        if transfer.moves == "either":
            # Sort, so that a pair has the same name in the record whichever of the two chunks
            # is sent.
            left, right = sorted(
                (transfer.chunk, own), key=lambda chunk: (natural(chunk.host), chunk.start)
            )
        else:
            left, right = (
                (transfer.chunk, own) if transfer.moves == "queries" else (own, transfer.chunk)
            )
        tile = TileBlock(left.range, right.range)
        self_join = transfer.moves == "either"
        yield BlockPair(tile=tile, self_join=self_join, host=transfer.host, left=left, right=right)


def order_transfers(shares: Mapping[str, Sequence[RowChunk]]) -> dict[str, list[Transfer]]:
    """Return the transfers of each instance, in the order of computation.

    First come the instance's own chunks, each with itself, which gives every row its first bound.
    Then each is compared with the instance's later chunks. Then come chunks of other instances,
    beginning with the next one on the circle, so that at any moment each instance sends to one and
    receives from one.
    """
    transfers: dict[str, list[Transfer]] = {}
    for host, own in shares.items():
        transfers[host] = [Transfer(host, chunk, (chunk,)) for chunk in own]
        transfers[host] += [
            Transfer(host, chunk, tuple(own[at:])) for at, chunk in enumerate(own[:-1], start=1)
        ]
    # Leave out instances without rows, which would make the halves of the ring unequal.
    ring = [host for host, own in shares.items() if own]
    count = len(ring)
    for at, host in enumerate(ring):
        own = tuple(shares[host])
        for distance in range(1, count // 2 + 1):
            other = shares[ring[(at + distance) % count]]
            if 2 * distance < count:
                coming = other
                partners = own
            elif at < count // 2:
                # Of two opposite instances, the first receives the first half of the other's
                # chunks.
                coming = other[: len(other) // 2]
                partners = own
            else:
                # The second receives all chunks of the first, and compares them with its own second
                # half.
                coming = other
                partners = own[len(own) // 2 :]
            transfers[host] += [Transfer(host, chunk, partners) for chunk in coming if partners]
    return transfers


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    moves: Moving
    shares: Mapping[str, Sequence[RowChunk]]
    """The chunks of each instance; if every instance has all rows, each has all chunks."""
    everywhere: bool
    bytes: float = 0.0


def order_query_transfers(queries: Side, matrix: Side) -> dict[str, list[Transfer]]:
    staying, moving = (queries, matrix) if matrix.everywhere else (matrix, queries)
    if not (queries.everywhere or matrix.everywhere) and matrix.bytes < queries.bytes:
        staying = queries
        moving = matrix
    transfers: dict[str, list[Transfer]] = {host: [] for host in staying.shares}
    hosts = list(moving.shares)
    for host, own in staying.shares.items():
        # Begin with the instance's own chunks, then follow the circle, so that each instance sends
        # to one at a time.
        at = hosts.index(host) if host in hosts else 0
        sources = [host] if moving.everywhere else [*hosts[at:], *hosts[:at]]
        coming = [chunk for source in sources for chunk in moving.shares[source]]
        transfers[host] += [
            Transfer(host, chunk, tuple(own), moving.moves) for chunk in coming if own
        ]
    return transfers


MAX_LEAVING = 2
"""Most chunks that leave an instance at a time, as a multiple of those that come: instances are not
exactly in step."""


@dataclass(slots=True, eq=False)
class _Arrival:
    transfer: Transfer
    waiting: deque[BlockPair]
    inputs: tuple[Any, ...]
    unfinished: int = 0
    is_started: bool = False


@dataclass(slots=True)
class _HostQueue:
    slots: int
    limit: int
    transfers: deque[Transfer]
    arrivals: list[_Arrival] = field(default_factory=list)
    unfinished: int = 0


class PairQueue(Iterator[Any]):
    """Hands out pairs to ``map_blocks``; the caller reports each that is ``finished``."""

    def __init__(
        self,
        transfers: Mapping[str, Sequence[Transfer]],
        slots: Mapping[str, int],
        send: Callable[[RowChunk], Any],
        *,
        window: int = 2,
        options: Mapping[str, Any] = MappingProxyType({}),
        recorded: Callable[[BlockPair], bool] = lambda pair: False,
        add_hint: Callable[[BlockPair], Any] = lambda pair: pair,
    ) -> None:
        """Start with all transfers of each instance, in order.

        ``send`` puts a chunk's rows into Ray's object store, and returns the reference. ``window``
        is how many remote chunks an instance has room for at a time. ``slots`` are tasks that each
        instance runs at a time, with the ``options`` of ``map_blocks``. If a pair's part is
        ``recorded``, its rows need not be sent. ``add_hint`` returns a pair with its ``hint`` when
        it is handed out.
        """
        # Two pairs for each slot, so that rows come while it computes, and the first pairs of new
        # chunks.
        queued = {host: deque(there) for host, there in transfers.items() if there}
        self._hosts = {
            host: _HostQueue(slots[host], 2 * slots[host] + window, queued[host]) for host in queued
        }
        self._order = deque(self._hosts)
        self._window = window
        self._options = options
        self._max_leaving = MAX_LEAVING * window
        self._send = send
        self._recorded = recorded
        self._add_hint = add_hint
        self._handed_out: dict[str, _Arrival] = {}
        self._away: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()

    @property
    def in_flight(self) -> int:
        return max(1, sum(queue.limit for queue in self._hosts.values()))

    @property
    def options(self) -> dict[str, Any]:
        return {**self._options, "in_flight": self.in_flight}

    def __next__(self) -> Any:
        for _ in range(len(self._order)):
            # Take instances in turn: otherwise the first would get all its tasks before the last
            # gets one.
            self._order.rotate(-1)
            pair = self._next_of(self._hosts[self._order[0]])
            if pair is not None:
                return pair
        # An unfinished pair may still be given up, and come back in pieces.
        if any(queue.arrivals for queue in self._hosts.values()):
            return LATER
        raise StopIteration

    def finish(self, task: BlockPair, pieces: Sequence[TileBlock] = ()) -> Sequence[BlockPair]:
        """Note that a pair is done; return the pieces to compute instead if it was given up."""
        # Look it up by name: the pair that was handed out is a copy, with inputs and a hint.
        queue = self._hosts[task.host]
        arrival = self._handed_out.pop(str(task))
        queue.unfinished -= 1
        arrival.unfinished -= 1
        rows = task.tile.rows.start
        columns = task.tile.columns.start
        again = [
            replace(task, tile=shift_tile(piece, rows, columns), inputs=(), hint=None)
            for piece in pieces
        ]
        # The pieces come next, while their rows are here.
        arrival.waiting.extendleft(again)
        if not arrival.waiting and not arrival.unfinished:
            # This drops the last reference to its rows, so Ray frees them on both instances.
            queue.arrivals.remove(arrival)
            self._away[arrival.transfer.chunk.host] -= len(arrival.inputs)
        return again

    def _next_of(self, queue: _HostQueue) -> BlockPair | None:
        while queue.transfers and self._begin(queue, queue.transfers[0]):
            queue.transfers.popleft()
        if queue.unfinished >= queue.limit:
            return None
        waiting = [arrival for arrival in queue.arrivals if arrival.waiting]
        arrival = waiting[0] if waiting else None
        if queue.unfinished >= queue.slots:
            # Every slot has a pair, so prefer the first pair of a new chunk: its rows come
            # meanwhile.
            arrival = next((one for one in waiting if one.inputs and not one.is_started), arrival)
        if arrival is None:
            return None
        pair = arrival.waiting.popleft()
        arrival.is_started = True
        arrival.unfinished += 1
        queue.unfinished += 1
        self._handed_out[str(pair)] = arrival
        hinted: BlockPair = self._add_hint(pair)
        return replace(hinted, inputs=arrival.inputs)

    def _begin(self, queue: _HostQueue, transfer: Transfer) -> bool:
        """Send a transfer's rows, if they must be sent.

        Return False while there is no room for them.
        """
        pairs = deque(block_pairs(transfer))
        inputs: tuple[Any, ...] = ()
        if not transfer.at_home and not all(map(self._recorded, pairs)):
            chunk = transfer.chunk
            here = sum(len(other.inputs) for other in queue.arrivals)
            if here >= self._window or self._away[chunk.host] >= self._max_leaving:
                return False
            inputs = (self._send(chunk),)
            self._away[chunk.host] += 1
            self.sent[chunk.host] += chunk.rows
        if pairs:
            queue.arrivals.append(_Arrival(transfer, pairs, inputs))
        return True


def compare_pair(
    comparing: Comparing, context: Context, pair: BlockPair, rows: Matrix | None = None
) -> Part:
    """Compare a pair in the process of its task; ``rows`` are those of the remote chunk."""
    remote = pair.remote
    comes_left = pair.remote is not None and pair.remote is pair.left
    for operand, left in ((context.matrix, False), (context.queries, True)):
        # In a self-join both operands are the same rows, so the remote chunk belongs to either.
        comes = remote is not None and (context.self_join or left == comes_left)
        operand.open().load_remote(
            0 if remote is None else remote.range.start, rows if comes else None
        )
    # Operands of the last remote chunk would keep its rows in the object store.
    get_engine_cache(context).drop_absent_operands()
    return run_task(comparing.compare, context, pair)
