"""Hands the pairs of a schedule out, so that rows travel while others are compared, and few are on their way.

Each instance has two unfinished tasks for each slot, so the next one's rows come while a slot computes; and ``AHEAD``
more, each the first of one of the next remote chunks, whose rows come while all tasks before it are done, however many
those are: a link never waits for whoever is behind the others, nor for the head to hear that a chunk has come. At most
``window`` chunks are on their way to an instance or being compared there; at most ``LEAVING`` times as many of an
instance are on their way elsewhere or being compared. Each travels as an object of Ray's store of its own, made by a
task on the instance that has the rows (so Ray makes it anew if it is lost), and dropped as soon as it was compared with
all that it has to be. So

    object store of an instance <= (1 + LEAVING) * window * chunk + results on their way to the head.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.contract.names import natural
from raysm.workloads.blocks import LATER, RowBlock, TileBlock
from raysm.workloads.placed import PlacedBlock
from raysm.workloads.similarity.layouts.sharded.schedule import RowChunk, Transfer
from raysm.workloads.similarity.sizing.spread import AHEAD, LEAVING, WINDOW

__all__ = ["PairScheduler", "BlockPair", "block_pairs"]


@dataclass(frozen=True, slots=True, eq=False)
class BlockPair(PlacedBlock):
    """Two chunks, or one and itself, of which the host has at least one: what one task compares."""

    host: str
    """Where."""
    left: RowChunk
    """The rows of the tile: queries; of a self-join, the one of the two that comes first in place."""
    right: RowChunk
    """Its columns."""
    self_join: bool = True
    """Both are rows of one matrix."""
    piece: TileBlock | None = None
    """The part of the tile that is meant, in rows of the two chunks; None is all of it."""
    inputs: tuple[Any, ...] = ()
    """The rows of the one that is not the host's, as an object of Ray."""
    hint: Any = None
    """What the task is told that does not change its answer."""

    @property
    def remote(self) -> RowChunk | None:
        """The one that is not the host's."""
        return next((chunk for chunk in (self.left, self.right) if chunk.host != self.host), None)

    @property
    def needs(self) -> tuple[str, ...]:
        """The other instance that has to be there."""
        return () if self.remote is None else (self.remote.host,)

    @property
    def tile(self) -> TileBlock:
        """The places of the rows that are meant."""
        rows, columns = self.left.range, self.right.range
        if self.piece is None:
            return TileBlock(rows, columns)
        above, beside = self.piece.rows, self.piece.columns
        return TileBlock(
            RowBlock(rows.start + above.start, rows.start + above.stop),
            RowBlock(columns.start + beside.start, columns.start + beside.stop),
        )

    @property
    def mirrored(self) -> bool:
        """Whether the tile serves its columns too."""
        return self.self_join and self.left != self.right

    @property
    def area(self) -> float:
        """Pairs of rows; of one chunk and itself each unordered one is counted once, and a row with itself by half."""
        entries = self.tile.rows.rows * self.tile.columns.rows
        return entries / 2 if self.self_join and not self.mirrored else entries

    def row_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of the left chunk by their places."""
        return self.left.numbers_of(places)

    def column_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of the right chunk by their places."""
        return self.right.numbers_of(places)

    def __str__(self) -> str:
        """Return the name that messages and records know it by: it says which rows, not where they lie."""
        return f"{self.left} with {self.right}" + (f": {self.piece}" if self.piece is not None else "")


@dataclass(slots=True, eq=False)
class _Arrival:
    """A transfer whose pairs are being handed out."""

    transfer: Transfer
    waiting: deque[BlockPair]
    inputs: tuple[Any, ...] | None = None
    unfinished: int = 0


@dataclass(slots=True)
class HostQueue:
    """What one instance has to do."""

    limit: int
    """Most unfinished pairs, but for those that are ahead of their turn."""
    transfers: deque[Transfer]
    """What is to come in turn, what is ahead among it."""
    arrivals: list[_Arrival] = field(default_factory=list)
    """What has begun."""
    ahead: deque[_Arrival] = field(default_factory=deque)
    """What has begun before its turn: the next remote chunks, in turn."""
    unfinished: int = 0
    """Pairs that are handed out."""

    @property
    def has_room(self) -> bool:
        """Whether a pair may be handed out in its turn."""
        # What waits for its rows must not keep those out that have theirs.
        return self.unfinished - sum(arrival.unfinished for arrival in self.ahead) < self.limit


class PairScheduler(Iterator[Any]):
    """The pairs, as ``map_blocks`` asks for them; whoever consumes them says which are ``finished``."""

    def __init__(
        self,
        transfers: Mapping[str, Sequence[Transfer]],
        slots: Mapping[str, int],
        send: Callable[[RowChunk], Any],
        *,
        window: int = WINDOW,
        recorded: Callable[[BlockPair], bool] = lambda pair: False,
        hint: Callable[[BlockPair], Any] = lambda pair: None,
    ) -> None:
        """Begin with the whole schedule.

        Args:
            transfers: Of each instance, in order.
            slots: Tasks that each instance runs at once.
            send: Begins to bring a chunk's rows under way; returns the object of Ray that they become.
            window: Remote chunks that an instance has room for at a time.
            recorded: Whether a pair's part is recorded: it is handed out, but its rows need not travel.
            hint: Called when a pair is handed out; returns its ``hint``.
        """
        # Two for each slot: the rows of the next one come while it computes.
        self._hosts = {host: HostQueue(2 * slots[host], deque(there)) for host, there in transfers.items() if there}
        self._order = deque(self._hosts)
        self._window, self._leaving = window, LEAVING * window
        self._send, self._recorded, self._hint = send, recorded, hint
        self._handed_out: dict[str, _Arrival] = {}
        self._away: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        """Rows that each instance has sent."""
        self.received: Counter[str] = Counter()
        """Rows that each instance has been sent."""

    @property
    def in_flight(self) -> int:
        """Most unfinished pairs at a time."""
        return sum(queue.limit + AHEAD for queue in self._hosts.values())

    def __next__(self) -> Any:
        """Return a pair, or ``LATER``."""
        for _ in range(len(self._order)):
            # One after the other, or the first instance would have all its tasks before the last has one.
            self._order.rotate(-1)
            host = self._order[0]
            pair = self._next_of(self._hosts[host])
            if pair is not None:
                return pair
        # What is unfinished may still be given up, and come back in pieces.
        if any(queue.arrivals for queue in self._hosts.values()):
            return LATER
        raise StopIteration

    def finished(self, task: BlockPair, pieces: Sequence[TileBlock] = ()) -> Sequence[BlockPair]:
        """Say that a pair has its part; return the tasks of the pieces that are to be computed instead."""
        # By name: what was handed out is a copy, with its inputs and its hint.
        queue, arrival = self._hosts[task.host], self._handed_out.pop(str(task))
        queue.unfinished -= 1
        arrival.unfinished -= 1
        again = [replace(task, piece=piece, inputs=(), hint=None) for piece in pieces]
        # Next, while the rows that they need are here.
        arrival.waiting.extendleft(again)
        if not arrival.waiting and not arrival.unfinished:
            # Its rows are dropped here, and where they came from.
            queue.arrivals.remove(arrival)
            self._away[arrival.transfer.chunk.host] -= bool(arrival.inputs)
        return again

    def _next_of(self, queue: HostQueue) -> BlockPair | None:
        if queue.has_room and (arrival := _in_turn(queue)) is not None:
            pair = arrival.waiting[0]
            # Of a recorded pair no task reads the rows, so they need not travel.
            if self._recorded(pair) or self._bring(queue, arrival):
                return self._handed(queue, arrival)
            return None
        return self._one_ahead(queue)

    def _one_ahead(self, queue: HostQueue) -> BlockPair | None:
        """Hand out the first pair of a next remote chunk before its turn: Ray brings the rows of what is queued."""
        # Few: they share the link, and the one that is needed first comes later. Nor past one that has no room yet:
        # whoever holds what others wait for must not wait for them.
        if len(queue.ahead) >= AHEAD or any(map(_is_held_up, queue.arrivals)):
            return None
        coming = (transfer for transfer in queue.transfers if not transfer.at_home)
        transfer = next(islice(coming, len(queue.ahead), None), None)
        if transfer is None or not self._has_room(queue, transfer.chunk):
            return None
        arrival = _Arrival(transfer, deque(block_pairs(transfer)))
        # Where an earlier run did some of it, its rows may not be needed at all.
        if not arrival.waiting or self._recorded(arrival.waiting[0]):
            return None
        self._bring(queue, arrival)
        queue.ahead.append(arrival)
        queue.arrivals.append(arrival)
        return self._handed(queue, arrival)

    def _handed(self, queue: HostQueue, arrival: _Arrival) -> BlockPair:
        pair = arrival.waiting.popleft()
        arrival.unfinished += 1
        queue.unfinished += 1
        self._handed_out[str(pair)] = arrival
        return replace(pair, inputs=arrival.inputs or (), hint=self._hint(pair))

    def _bring(self, queue: HostQueue, arrival: _Arrival) -> bool:
        """Bring a remote chunk's rows under way, unless they are, or too many others are."""
        if arrival.inputs is not None:
            return True
        chunk = arrival.transfer.chunk
        if arrival.transfer.at_home:
            arrival.inputs = ()
            return True
        if not self._has_room(queue, chunk):
            return False
        arrival.inputs = (self._send(chunk),)
        self._away[chunk.host] += 1
        self.sent[chunk.host] += chunk.rows
        self.received[arrival.transfer.host] += chunk.rows
        return True

    def _has_room(self, queue: HostQueue, chunk: RowChunk) -> bool:
        # By what travelled: chunks that are at home take no room in the object store.
        here = sum(bool(other.inputs) for other in queue.arrivals)
        return here < self._window and self._away[chunk.host] < self._leaving


def _is_held_up(arrival: _Arrival) -> bool:
    return bool(arrival.waiting) and arrival.inputs is None


def _in_turn(queue: HostQueue) -> _Arrival | None:
    """Return the first arrival with a pair to hand out; begin the next transfer where those that began have none."""
    arrival = next((arrival for arrival in queue.arrivals if arrival.waiting and arrival not in queue.ahead), None)
    while arrival is None and queue.transfers:
        transfer = queue.transfers.popleft()
        if queue.ahead and queue.ahead[0].transfer is transfer:
            coming = queue.ahead.popleft()
        else:
            coming = _Arrival(transfer, deque(block_pairs(transfer)))
            # Of what an earlier run did whole there is none, and its rows never travel.
            if coming.waiting:
                queue.arrivals.append(coming)
        arrival = coming if coming.waiting else None
    return arrival


def block_pairs(transfer: Transfer) -> Iterator[BlockPair]:
    """Yield the pairs of a transfer: queries left, the matrix right, or of a self-join in the order of the places."""
    for own in transfer.partners:
        if transfer.brings == "either":
            # Whichever of the two travels: a pair has one name, by which a run that deals otherwise finds it recorded.
            left, right = sorted((transfer.chunk, own), key=lambda chunk: (natural(chunk.host), chunk.start))
        else:
            left, right = (transfer.chunk, own) if transfer.brings == "queries" else (own, transfer.chunk)
        yield BlockPair(transfer.host, left, right, self_join=transfer.brings == "either")
