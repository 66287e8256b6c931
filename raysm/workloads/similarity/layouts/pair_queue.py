"""Hands out pairs of chunks, so that rows travel while others are compared, and few are on their way.

A chunk that an instance lacks travels as an object of Ray's store, made by a task on the instance that has the rows, so
Ray makes it again if it is lost. At most ``window`` of them are on their way to an instance or being compared there,
and at most ``MAX_LEAVING`` times as many of an instance are on their way elsewhere. Each is dropped once it was
compared with all that it has to be. So

    object store of an instance <= (1 + MAX_LEAVING) * window * chunk + results on their way to the head.

The first pair of each chunk that was begun is handed out before the others, because Ray brings the rows of what is
queued: a link never waits for tasks that are behind.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from raysm.errors import InvalidInput
from raysm.workloads.blocks import LATER, TileBlock
from raysm.workloads.similarity.arithmetic.tiling import shifted
from raysm.workloads.similarity.layouts.rotation import BlockPair, RowChunk, Transfer, block_pairs
from raysm.workloads.similarity.reading.matrix import Matrix
from raysm.workloads.similarity.reading.source import Source
from raysm.workloads.similarity.tasks.context import Context, engine_cache_of
from raysm.workloads.similarity.tasks.parts import Comparing, Part, measured

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
