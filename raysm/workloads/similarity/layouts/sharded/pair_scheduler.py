"""Hands the pairs of a schedule out, so that rows travel while others are compared, and few are on their way.

Each instance has two unfinished tasks for each slot, so the next one's rows come while a slot computes. At most
``WINDOW`` chunks are on their way to an instance or being compared there; at most ``LEAVING`` chunks of an instance are
on their way elsewhere or being compared. Each travels as an object of Ray's store of its own, made by a task on the
instance that has the rows (so Ray makes it anew if it is lost), and dropped as soon as it was compared with all that it
has to be. So

    object store of an instance <= (WINDOW + LEAVING) * chunk + results on their way to the head.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.contract.natural_order import natural
from raysm.workloads.blocks import LATER, RowBlock, TileBlock
from raysm.workloads.placed import PlacedBlock
from raysm.workloads.similarity.layouts.sharded.schedule import RowChunk, Transfer

__all__ = ["LEAVING", "WINDOW", "PairScheduler", "BlockPair", "block_pairs"]

WINDOW = 2
"""Remote chunks of an instance at a time: one is compared, the next one travels."""

LEAVING = 4
"""Chunks of an instance that are away at a time: instances do not keep exactly in step."""


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


@dataclass(slots=True)
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
    """Most unfinished pairs."""
    transfers: deque[Transfer]
    """What has not begun."""
    arrivals: list[_Arrival] = field(default_factory=list)
    """What has."""
    unfinished: int = 0
    """Pairs that are handed out."""


class PairScheduler(Iterator[Any]):
    """The pairs, as ``map_blocks`` asks for them; whoever consumes them says which are ``finished``."""

    def __init__(
        self,
        transfers: Mapping[str, Sequence[Transfer]],
        slots: Mapping[str, int],
        send: Callable[[RowChunk], Any],
        *,
        recorded: Callable[[BlockPair], bool] = lambda pair: False,
        hint: Callable[[BlockPair], Any] = lambda pair: None,
    ) -> None:
        """Begin with the whole schedule.

        Args:
            transfers: Of each instance, in order.
            slots: Tasks that each instance runs at once.
            send: Begins to bring a chunk's rows under way; returns the object of Ray that they become.
            recorded: Whether a pair's part is recorded: it is handed out, but its rows need not travel.
            hint: Called when a pair is handed out; returns its ``hint``.
        """
        # Two for each slot: the rows of the next one come while it computes.
        self._hosts = {host: HostQueue(2 * slots[host], deque(there)) for host, there in transfers.items() if there}
        self._order = deque(self._hosts)
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
        return sum(queue.limit for queue in self._hosts.values())

    def __next__(self) -> Any:
        """Return a pair, or ``LATER``."""
        for _ in range(len(self._order)):
            # One after the other, or the first instance would have all its tasks before the last has one.
            self._order.rotate(-1)
            host = self._order[0]
            pair = self._next_of(host, self._hosts[host])
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

    def _next_of(self, host: str, queue: HostQueue) -> BlockPair | None:
        if queue.unfinished >= queue.limit:
            return None
        arrival = next((arrival for arrival in queue.arrivals if arrival.waiting), None)
        while arrival is None:
            if not queue.transfers:
                return None
            transfer = queue.transfers.popleft()
            waiting = deque(block_pairs(transfer))
            # Of what an earlier run did whole there is none, and its rows never travel.
            if waiting:
                arrival = _Arrival(transfer, waiting)
                queue.arrivals.append(arrival)
        pair = arrival.waiting[0]
        # Of a recorded pair no task reads the rows, so they need not travel.
        if not self._recorded(pair) and not self._bring(queue, arrival):
            return None
        arrival.waiting.popleft()
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
        # By what travelled: chunks that are at home take no room in the object store.
        if sum(bool(other.inputs) for other in queue.arrivals) >= WINDOW or self._away[chunk.host] >= LEAVING:
            return False
        arrival.inputs = (self._send(chunk),)
        self._away[chunk.host] += 1
        self.sent[chunk.host] += chunk.rows
        self.received[arrival.transfer.host] += chunk.rows
        return True


def block_pairs(transfer: Transfer) -> Iterator[BlockPair]:
    """Yield the pairs of a transfer: queries left, the matrix right, or of a self-join in the order of the places."""
    for own in transfer.partners:
        if transfer.brings == "either":
            # Whichever of the two travels: a pair has one name, by which a run that deals otherwise finds it recorded.
            left, right = sorted((transfer.chunk, own), key=lambda chunk: (natural(chunk.host), chunk.start))
        else:
            left, right = (transfer.chunk, own) if transfer.brings == "queries" else (own, transfer.chunk)
        yield BlockPair(transfer.host, left, right, self_join=transfer.brings == "either")
