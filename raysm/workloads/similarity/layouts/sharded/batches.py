"""Hands the transfers of a schedule out in batches, whose pairs each instance hands out itself.

The head says who compares what, a batch of transfers at a time, and hears which pairs are done; who begins when, and
which chunk is asked for, an instance decides for itself, with the same ``PairScheduler``. So of W instances with one
chunk each the head has some W messages to send, and not W**2 / 2.

An instance has two batches, so that the second keeps its slots busy while the first ends. A batch has half as many
chunks as the instance has room for, and begins when those that have the chunks have room for them on their way: it
counts as if all its chunks were away until it ends. So the bound of the object stores is that of ``pair_scheduler``,
and nobody who holds a chunk waits for one that others hold.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raysm.workloads.blocks import LATER, TileBlock, map_blocks
from raysm.workloads.placed import PlacedBlock
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import BlockPair, PairScheduler, block_pairs
from raysm.workloads.similarity.layouts.sharded.schedule import RowChunk, Transfer
from raysm.workloads.similarity.sizing.spread import LEAVING
from raysm.workloads.similarity.tasks.parts import Part

__all__ = ["BatchScheduler", "TransferBatch", "compare_batch"]

AT_ONCE = 2
"""Batches of an instance at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class TransferBatch(PlacedBlock):
    """Transfers to one instance, which hands out their pairs."""

    host: str
    """Which."""
    transfers: tuple[Transfer, ...]
    """In the order in which they are to be computed."""

    @property
    def chunks(self) -> Iterator[RowChunk]:
        """Those that come from other instances."""
        return (transfer.chunk for transfer in self.transfers if not transfer.at_home)

    @property
    def needs(self) -> tuple[str, ...]:
        """The other instances that have to be there."""
        return tuple(dict.fromkeys(chunk.host for chunk in self.chunks))

    def __str__(self) -> str:
        """Return its name in messages."""
        first, last = self.transfers[0].chunk, self.transfers[-1].chunk
        return f"{len(self.transfers)} chunks on {self.host}, {first} to {last}"


class BatchScheduler(Iterator[Any]):
    """The batches, as ``map_blocks`` asks for them; whoever consumes them says which are ``ended``."""

    def __init__(
        self,
        transfers: Mapping[str, Sequence[Transfer]],
        *,
        most: int,
        room: float,
        recorded: Callable[[BlockPair], bool] = lambda pair: False,
    ) -> None:
        """Begin with the whole schedule.

        Args:
            transfers: Of each instance, in order.
            most: Transfers of a batch at most.
            room: Remote chunks that an instance has room for at a time.
            recorded: Whether a pair's part is there already: it is in no batch.
        """
        self._waiting = {host: deque(_batches(host, there, most, recorded)) for host, there in transfers.items()}
        self._order = deque(self._waiting)
        self._unfinished: Counter[str] = Counter()
        self._away: Counter[str] = Counter()
        # A batch alone may always begin.
        self._leaving = max(LEAVING * room, most)
        self.sent: Counter[str] = Counter()
        """Rows that each instance has sent, or is about to."""

    @property
    def in_flight(self) -> int:
        """Most unfinished batches at a time."""
        return AT_ONCE * len(self._order)

    def __next__(self) -> Any:
        """Return a batch, or ``LATER``."""
        for _ in range(len(self._order)):
            self._order.rotate(-1)
            host = self._order[0]
            waiting = self._waiting[host]
            if waiting and self._unfinished[host] < AT_ONCE and self._has_room(waiting[0]):
                return self._begun(waiting.popleft())
        if any(self._waiting.values()):
            return LATER
        raise StopIteration

    def ended(self, batch: TransferBatch) -> None:
        """Say that all pairs of a batch are done."""
        self._unfinished[batch.host] -= 1
        self._away.subtract(chunk.host for chunk in batch.chunks)

    def finished(self, task: BlockPair, pieces: Sequence[TileBlock]) -> Sequence[BlockPair]:
        """Do nothing: a pair that was given up was done in pieces within its batch."""
        return ()

    def _has_room(self, batch: TransferBatch) -> bool:
        counts = Counter(chunk.host for chunk in batch.chunks)
        return all(self._away[host] + count <= self._leaving for host, count in counts.items())

    def _begun(self, batch: TransferBatch) -> TransferBatch:
        self._unfinished[batch.host] += 1
        for chunk in batch.chunks:
            self._away[chunk.host] += 1
            self.sent[chunk.host] += chunk.rows
        return batch


def _batches(
    host: str, transfers: Sequence[Transfer], most: int, recorded: Callable[[BlockPair], bool]
) -> Iterator[TransferBatch]:
    left = []
    for transfer in transfers:
        pairs = zip(transfer.partners, block_pairs(transfer), strict=True)
        # Of what an earlier run did whole there is nothing left, and its rows never travel.
        if partners := tuple(own for own, pair in pairs if not recorded(pair)):
            left.append(replace(transfer, partners=partners))
    for at in range(0, len(left), most):
        yield TransferBatch(host, tuple(left[at : at + most]))


def compare_batch(
    function: Any,
    given_up: Callable[[Any, Any], Sequence[TileBlock]],
    send: Callable[[RowChunk], Any],
    slots: Mapping[str, int],
    batch: TransferBatch,
) -> list[tuple[BlockPair, Part]]:
    """Hand out the pairs of a batch, on the instance that compares them; return each with what its task handed back.

    Args:
        function: What is called for each pair, with the rows that came, as an object of Ray.
        given_up: Says into which pieces a pair is cut that its task gave up.
        send: Begins to bring a chunk's rows under way; returns the object of Ray that they become.
        slots: Tasks that each instance runs at once.
        batch: Which transfers.
    """
    queue = PairScheduler({batch.host: batch.transfers}, slots, send, window=len(batch.transfers))
    done = []
    for pair, part in map_blocks(function, queue, in_flight=queue.in_flight):
        again = given_up(pair, part.arrays)
        queue.finished(pair, again)
        if not again:
            # Without the object of its rows, which would stay in the store as long as this list.
            done.append((replace(pair, inputs=(), hint=None), part))
    return done
