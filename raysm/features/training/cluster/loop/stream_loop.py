"""The batches of a stream: of all data ranks together, until no process has rows left."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from raysm.errors import InvalidInput
from raysm.features.training.cluster.loop.batch import on_device
from raysm.features.training.cluster.loop.loader import Loader
from raysm.features.training.cluster.loop.position import (
    BatchSlice,
    DataOrder,
    StreamPosition,
    WorkerPosition,
)
from raysm.features.training.cluster.loop.session import Session
from raysm.features.training.cluster.loop.stream import (
    Start,
    StreamBatch,
    StreamRequest,
    part_of,
)


@dataclass(frozen=True, slots=True)
class StreamLoop:
    session: Session
    loader: Loader
    order: DataOrder
    drop_last: bool
    readers: int
    """Processes of this rank that read the stream, at least 1."""
    is_sharded: bool

    def one_pass(self, epoch: int, offset: int) -> Iterator[tuple[BatchSlice, Any]]:
        session = self.session
        kept = session.position.stream if offset else None
        position = kept or StreamPosition(workers=(WorkerPosition(),) * self.readers)
        if any(each.rows and not each.is_over and not each.state for each in position.workers):
            session.say(
                "the stream has no state_dict() and load_state_dict(): the rows before the "
                f"checkpoint, {offset} of epoch {epoch}, are read again and left out"
            )
        read = self._own_batches(epoch, position)
        spare = None
        needs_spare = self.is_sharded and session.cpu_group is not None
        left_out = 0
        while True:
            with session.span("data"):
                found = next(read, None)
                own: StreamBatch | None = None
                if found is not None:
                    own, position = found
                    if needs_spare and spare is None:
                        spare = _first_row(own.batch)
                batch, rows, own_rows, spare = self._complete(own, spare)
                if not rows:
                    break
                batch = on_device(batch, session.device)
            if self.drop_last and rows < self.order.batch_size:
                left_out += rows
                continue
            part = BatchSlice(
                order=self.order,
                epoch=epoch,
                begin=offset,
                end=offset + rows,
                rows=(),
                share=own_rows / rows,
                slice_rows=-(-self.order.batch_size // session.data_ranks),
                stream=position,
                digest=own.digest if own else None,
            )
            offset += rows
            yield part, batch
        if offset == 0:
            raise InvalidInput(
                f"batches: the {left_out} rows of the stream in epoch {epoch} make no batch of "
                f"{self.order.batch_size}: check the channel and the paths, or lower batch_size"
            )

    def _own_batches(
        self, epoch: int, begin: StreamPosition
    ) -> Iterator[tuple[StreamBatch, StreamPosition]]:
        """Yield what this rank's processes read, in turns, and how far they are then."""
        rank = (self.session.data_rank, self.session.data_ranks)
        first, stop = part_of(self.order.batch_size, rank)
        rows, part = (stop - first, (0, 1)) if self.is_sharded else (self.order.batch_size, rank)

        def share(worker: int) -> tuple[int, int] | None:
            if not self.is_sharded:
                return None
            return rank[0] * self.readers + worker, rank[1] * self.readers

        def requests() -> Iterator[StreamRequest]:
            # Request ``n`` goes to worker ``n % readers``.
            for number in itertools.count():
                start = None
                if number < self.readers:
                    position = begin.workers[number]
                    start = Start(
                        epoch=epoch,
                        share=share(number),
                        position=position,
                        is_compared=rank[1] > 1,
                    )
                has_turn = number >= begin.next_worker
                yield StreamRequest(rows=rows if has_turn else 0, part=part, start=start)

        positions = list(begin.workers)
        for number, found in enumerate(self.loader.read(requests())):
            worker = number % self.readers
            if number < begin.next_worker:
                continue
            positions[worker] = found.position
            if found.rows:
                next_worker = (worker + 1) % self.readers
                yield found, StreamPosition(workers=tuple(positions), next_worker=next_worker)
            if all(each.is_over for each in positions):
                return

    def _complete(self, own: StreamBatch | None, spare: Any) -> tuple[Any, int, int, Any]:
        """Return this rank's slice of a batch, the rows of the batch, and those of the slice.

        The last value is the spare row, which may be that of another rank.
        """
        if not self.is_sharded:
            return (None, 0, 0, None) if own is None else (own.batch, own.rows, own.own_rows, None)
        session = self.session
        own_rows = 0 if own is None else own.rows
        batch = spare if own is None else own.batch
        if session.cpu_group is None:
            return batch, own_rows, own_rows, None
        # Lengths of shares differ, and only their processes learn where they end: all ranks count
        # the rows of each batch, and so all end after the same one.
        counted = [torch.empty(3, dtype=torch.int64) for _ in range(session.world_size)]
        mine = torch.tensor([session.data_rank, own_rows, spare is not None], dtype=torch.int64)
        dist.all_gather(counted, mine, group=session.cpu_group)
        of_ranks = [each.tolist() for each in counted]
        total = sum(dict((rank, rows) for rank, rows, _ in of_ranks).values())
        if total and not all(has_spare for _, _, has_spare in of_ranks):
            # A share without any row: its rank takes part in the steps with another one's row.
            source = next(number for number, (_, rows, _) in enumerate(of_ranks) if rows)
            row = [spare]
            dist.broadcast_object_list(row, src=source, group=session.cpu_group)
            if spare is None:
                batch = spare = row[0]
        return batch, total, own_rows, spare


def _first_row(batch: Any) -> Any:
    # Cloned, because a view would keep the whole batch.
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[:1].clone(), batch)
