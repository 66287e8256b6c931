"""The rotation of sharded rows: which chunks travel to which instance, in which order. Pure functions.

A share is cut into *chunks* of consecutive rows. Every unordered pair of chunks, and each with itself, is compared
once, on an instance that has at least one of the two. A foreign chunk that comes to an instance is a *transfer*, and is
compared there with all the own chunks that it has to be; so it is sent to each instance at most once.

**Half ring.** Of n instances, the chunks of i + 1, i + 2, … i + (n - 1) // 2 around the circle come to i. For even n,
the instances i and i + n/2 share their work: half of the one's chunks go to the other, which sends all of its own back
to be compared with the other half. With equal shares of N rows each instance sends and receives (n - 1) / 2 * N / n of
them, or of even n about as many. Instances with larger shares have more to do: the files should be of about one size.

**Queries.** If queries look into a matrix, one of the two stays where it is, and the other travels: each of its chunks
comes to every instance that has some of what stays. What every instance has never travels. Where both are sharded, that
one travels which has fewer bytes.

**The queue of pairs** hands out pairs so that rows travel while others are compared, and few are on their way. A chunk
that an instance lacks travels as an object of Ray's store, made by a task on the instance that has the rows, so Ray
makes it again if it is lost. At most ``window`` of them are on their way to an instance or being compared there, and at
most ``MAX_LEAVING`` times as many of an instance are on their way elsewhere. Each is dropped once it was compared with
all that it has to be. So

    object store of an instance <= (1 + MAX_LEAVING) * window * chunk + results on their way to the head.

The first pair of each chunk that was begun is handed out before the others, because Ray brings the rows of what is
queued: a link never waits for tasks that are behind.
"""

import hashlib
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysm.contract.names import natural
from raysm.errors import InvalidInput
from raysm.workloads.blocks import LATER, RowBlock, TileBlock
from raysm.workloads.nodes import PlacedBlock
from raysm.workloads.similarity.arithmetic.tiling import RowRun, shifted
from raysm.workloads.similarity.layouts.shards import Shard
from raysm.workloads.similarity.reading.matrix import Matrix, Source
from raysm.workloads.similarity.tasks.context import Context, engine_cache_of
from raysm.workloads.similarity.tasks.parts import Comparing, Part, TileTask, measured


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Consecutive rows of one instance: what is sent at once, and one side of a task."""

    host: str
    start: int
    """The first, among the instance's own rows."""
    stop: int
    runs: tuple[RowRun, ...]
    """Their numbers in the matrix, rising; offsets count from the chunk's first row."""
    origin: int = 0
    """The place of the instance's own first row."""

    @property
    def range(self) -> RowBlock:
        """The places of its rows."""
        return RowBlock(self.origin + self.start, self.origin + self.stop)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    @property
    def in_order(self) -> bool:
        """True if the places of its rows are their numbers."""
        return len(self.runs) == 1 and self.runs[0].start == self.range.start

    def numbers(self) -> NDArray[np.int64]:
        """Return the rows' numbers[rows] in the matrix, rising."""
        return np.concatenate([np.arange(run.start, run.start + run.rows) for run in self.runs])

    def numbers_of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of some of its rows by their places."""
        return places if self.in_order else self.numbers()[places - self.range.start]

    def __str__(self) -> str:
        """Name it by its rows in the matrix alone: wherever they lie, they are the same."""
        first, last = self.runs[0].start, self.runs[-1].start + self.runs[-1].rows - 1
        if len(self.runs) == 1:
            return f"rows {first} to {last}"
        # Digested: of thousands of small files the runs would be a name as long, in each message and line of the log.
        text = ",".join(f"{run.start}+{run.rows}" for run in self.runs)
        return f"{self.rows} of rows {first} to {last} ({hashlib.sha256(text.encode()).hexdigest()[:16]})"


Brings = Literal["either", "queries", "matrix"]
"""The channel of a chunk that travels; in a self-join both are the same rows."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A chunk, and the chunks of one instance that it is compared with there."""

    host: str
    chunk: RowChunk
    """The chunk that comes; one of the instance's own is at home already."""
    partners: tuple[RowChunk, ...]
    """With what; itself among them where it is compared with itself."""
    brings: Brings = "either"
    """The channel of the chunk that comes."""

    @property
    def at_home(self) -> bool:
        """True if nothing has to be sent."""
        return self.chunk.host == self.host


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockPair(TileTask, PlacedBlock):
    """Two chunks, or one and itself, of which the host has at least one: what one task compares."""

    host: str
    left: RowChunk
    """The rows of the tile: queries; of a self-join, the one of the two that comes first in place."""
    right: RowChunk
    inputs: tuple[Any, ...] = ()
    """The rows of the one that is not the host's, as an object of Ray."""

    @property
    def remote(self) -> RowChunk | None:
        """The one that is not the host's."""
        return next((chunk for chunk in (self.left, self.right) if chunk.host != self.host), None)

    @property
    def needs(self) -> tuple[str, ...]:
        """The other instance that has to be there."""
        return () if self.remote is None else (self.remote.host,)

    @property
    def mirrored(self) -> bool:
        """True if the tile serves its columns too."""
        return self.self_join and self.left != self.right

    @property
    def in_order(self) -> bool:
        """True if the places of its rows and columns are their numbers."""
        return self.left.in_order and self.right.in_order

    def row_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of the left chunk by their places."""
        return self.left.numbers_of(places)

    def column_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of the right chunk by their places."""
        return self.right.numbers_of(places)

    def __str__(self) -> str:
        # By the rows' numbers alone, and a piece by where it lies in the pair: a record does not say where rows lie.
        piece = shifted(self.tile, -self.left.range.start, -self.right.range.start)
        is_whole = (piece.rows.rows, piece.columns.rows) == (self.left.rows, self.right.rows)
        return f"{self.left} with {self.right}" + ("" if is_whole else f": {piece}")


def block_pairs(transfer: Transfer) -> Iterator[BlockPair]:
    """Yield the pairs of a transfer: queries left, the matrix right, or of a self-join in the order of the places."""
    for own in transfer.partners:
        if transfer.brings == "either":
            # Whichever of the two travels: a pair has one name, by which a run that sends others finds it recorded.
            left, right = sorted((transfer.chunk, own), key=lambda chunk: (natural(chunk.host), chunk.start))
        else:
            left, right = (transfer.chunk, own) if transfer.brings == "queries" else (own, transfer.chunk)
        yield BlockPair(
            tile=TileBlock(left.range, right.range),
            self_join=transfer.brings == "either",
            host=transfer.host,
            left=left,
            right=right,
        )


def cut(shard: Shard, chunk_rows: int, origin: int = 0) -> tuple[RowChunk, ...]:
    """Cut an instance's rows into chunks of nearly equal size.

    Args:
        shard: The rows.
        chunk_rows: No chunk has more.
        origin: The place of the instance's first row.
    """
    rows = shard.rows
    count = math.ceil(rows / chunk_rows)
    # Each from the whole: sizes differ by one row at most, and the last is no small rest.
    edges = [rows * at // count for at in range(count + 1)] if count else [0]
    return tuple(
        RowChunk(shard.host, start, stop, shard.portion(start, stop), origin)
        for start, stop in zip(edges, edges[1:], strict=False)
        if start < stop
    )


def rotate(shares: Mapping[str, Sequence[RowChunk]]) -> dict[str, list[Transfer]]:
    """Return the transfers of each instance, in the order in which they are to be computed.

    First come the instance's own chunks, each with itself: that gives every row its first bound. Then each meets those
    behind it, then the others' chunks come, those of the next one on the circle first, so that at any moment each
    instance sends to one and receives from one.
    """
    transfers: dict[str, list[Transfer]] = {}
    for host, own in shares.items():
        transfers[host] = [Transfer(host, chunk, (chunk,)) for chunk in own]
        transfers[host] += [Transfer(host, chunk, tuple(own[at:])) for at, chunk in enumerate(own[:-1], start=1)]
    # An instance without rows has nothing to compare: on the ring it would only spoil the halves.
    ring = [host for host, own in shares.items() if own]
    count = len(ring)
    for at, host in enumerate(ring):
        own = tuple(shares[host])
        for distance in range(1, count // 2 + 1):
            other = shares[ring[(at + distance) % count]]
            if 2 * distance < count:
                coming, partners = other, own
            elif at < count // 2:
                # Opposites: the first half of the other's chunks comes here,
                coming, partners = other[: len(other) // 2], own
            else:
                # and all of this one's opposite come to it, for its own second half.
                coming, partners = other, own[len(own) // 2 :]
            transfers[host] += [Transfer(host, chunk, partners) for chunk in coming if partners]
    return transfers


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The queries, or the matrix, in chunks."""

    brings: Brings
    shares: Mapping[str, Sequence[RowChunk]]
    """The chunks of each instance; if every instance has all rows, each has all chunks."""
    everywhere: bool
    """True if every instance has all of them."""
    bytes: float = 0.0


def rotate_queries(queries: Side, matrix: Side) -> dict[str, list[Transfer]]:
    """Return the transfers of each instance, in the order in which they are to be computed."""
    staying, moving = (queries, matrix) if matrix.everywhere else (matrix, queries)
    if not (queries.everywhere or matrix.everywhere) and matrix.bytes < queries.bytes:
        staying, moving = queries, matrix
    transfers: dict[str, list[Transfer]] = {host: [] for host in staying.shares}
    hosts = list(moving.shares)
    for host, own in staying.shares.items():
        # The instance's own first, then those of the next ones on the circle: each sends to one at a time.
        at = hosts.index(host) if host in hosts else 0
        sources = [host] if moving.everywhere else [*hosts[at:], *hosts[:at]]
        coming = [chunk for source in sources for chunk in moving.shares[source]]
        transfers[host] += [Transfer(host, chunk, tuple(own), moving.brings) for chunk in coming if own]
    return transfers


MAX_LEAVING = 2
"""Chunks of an instance that are away at a time, for each that comes to it: instances do not keep exactly in step."""


@dataclass(slots=True, eq=False)
class _Arrival:
    """A transfer whose pairs are being handed out."""

    transfer: Transfer
    waiting: deque[BlockPair]
    inputs: tuple[Any, ...]
    unfinished: int = 0
    is_begun: bool = False


@dataclass(slots=True)
class _HostQueue:
    """The work of one instance."""

    slots: int
    limit: int
    transfers: deque[Transfer]
    arrivals: list[_Arrival] = field(default_factory=list)
    unfinished: int = 0


class PairQueue(Iterator[Any]):
    """The pairs, as ``map_blocks`` asks for them; the caller says which are ``finished``."""

    def __init__(
        self,
        transfers: Mapping[str, Sequence[Transfer]],
        slots: Mapping[str, int],
        send: Callable[[RowChunk], Any],
        *,
        window: int = 2,
        recorded: Callable[[BlockPair], bool] = lambda pair: False,
        informed: Callable[[BlockPair], Any] = lambda pair: pair,
    ) -> None:
        """Start with all transfers.

        Args:
            transfers: Of each instance, in order.
            slots: Tasks that each instance runs at once.
            send: Has a chunk's rows sent; returns the object of Ray that they become.
            window: Remote chunks that an instance has room for at a time.
            recorded: Whether a pair's part is recorded: it is handed out, but its rows need not travel.
            informed: Called when a pair is handed out; returns it with its ``hint``.
        """
        # Two for each slot, so that the next one's rows come while it computes, and those that are ahead of their turn.
        self._hosts = {
            host: _HostQueue(slots[host], 2 * slots[host] + window, deque(there))
            for host, there in transfers.items()
            if there
        }
        self._order = deque(self._hosts)
        self._window, self._max_leaving = window, MAX_LEAVING * window
        self._send, self._recorded, self._informed = send, recorded, informed
        self._handed_out: dict[str, _Arrival] = {}
        self._away: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        """Rows that each instance has sent."""

    @property
    def in_flight(self) -> int:
        """Most unfinished pairs at a time."""
        return max(1, sum(queue.limit for queue in self._hosts.values()))

    def __next__(self) -> Any:
        """Return a pair, or ``LATER``."""
        for _ in range(len(self._order)):
            # One after the other, or the first instance would have all its tasks before the last has one.
            self._order.rotate(-1)
            pair = self._next_of(self._hosts[self._order[0]])
            if pair is not None:
                return pair
        # An unfinished one may still be given up, and come back in pieces.
        if any(queue.arrivals for queue in self._hosts.values()):
            return LATER
        raise StopIteration

    def finished(self, task: BlockPair, pieces: Sequence[TileBlock] = ()) -> Sequence[BlockPair]:
        """Say that a pair has its part; return the tasks of the pieces that are to be computed instead."""
        # By name: what was handed out is a copy, with its inputs and its hint.
        queue, arrival = self._hosts[task.host], self._handed_out.pop(str(task))
        queue.unfinished -= 1
        arrival.unfinished -= 1
        rows, columns = task.tile.rows.start, task.tile.columns.start
        again = [replace(task, tile=shifted(piece, rows, columns), inputs=(), hint=None) for piece in pieces]
        # Next, while the rows that they need are here.
        arrival.waiting.extendleft(again)
        if not arrival.waiting and not arrival.unfinished:
            # Its rows are dropped here, and where they came from.
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
            # Each slot has a pair: now rows may come for the next ones.
            arrival = next((one for one in waiting if one.inputs and not one.is_begun), arrival)
        if arrival is None:
            return None
        pair = arrival.waiting.popleft()
        arrival.is_begun = True
        arrival.unfinished += 1
        queue.unfinished += 1
        self._handed_out[str(pair)] = arrival
        informed: BlockPair = self._informed(pair)
        return replace(informed, inputs=arrival.inputs)

    def _begin(self, queue: _HostQueue, transfer: Transfer) -> bool:
        """Have a transfer's rows sent, if they have to travel; return False while there is no room for them."""
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


def compare_pair(comparing: Comparing, context: Context, pair: BlockPair, rows: Matrix | None = None) -> Part:
    """Compare a pair where it runs, with the remote chunk's rows at hand, and say what it took."""
    remote, comes_left = pair.remote, pair.remote is not None and pair.remote is pair.left
    for operand, left in ((context.matrix, False), (context.queries, True)):
        # Of a self-join both are the same rows, and whichever chunk came is one of them.
        comes = remote is not None and (context.self_join or left == comes_left)
        operand.open().load_remote(0 if remote is None else remote.range.start, rows if comes else None)
    # Operands of the chunk before this one would keep its rows in the object store.
    engine_cache_of(context).drop_what_left()
    return measured(comparing.compare, context, pair)


def portion(source: Source, chunk: RowChunk, dtype: np.dtype[Any]) -> Matrix:
    """Return a chunk's rows on the instance that has them; what is pickled of it are these rows alone.

    Raises:
        InvalidInput: They are not there any more.
    """
    own = source.open()
    if own.rows < chunk.stop:
        raise InvalidInput(f"{chunk.host} has {own.rows} rows, and had more: its files changed while the job ran")
    return own.portion(chunk.start, chunk.stop, dtype)
