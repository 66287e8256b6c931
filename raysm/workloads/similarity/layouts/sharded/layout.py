"""The matrix, the queries, or both are spread over the instances: tasks run where rows are, and chunks travel."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import ray

from raysm.workloads.blocks import Record, map_blocks
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.layouts.layout import Dispatch, Layout, LoadedRows, Queue
from raysm.workloads.similarity.layouts.sharded import asking
from raysm.workloads.similarity.layouts.sharded.batches import BatchScheduler, compare_batch
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import BlockPair, PairScheduler, block_pairs
from raysm.workloads.similarity.layouts.sharded.pair_task import compare_pair
from raysm.workloads.similarity.layouts.sharded.query_schedule import QueryOperand, deal_queries
from raysm.workloads.similarity.layouts.sharded.schedule import RowChunk, Transfer, deal
from raysm.workloads.similarity.modes import Collector, Mode
from raysm.workloads.similarity.runs import Run
from raysm.workloads.similarity.sizing.sizing import Sizing
from raysm.workloads.similarity.sizing.spread import Spread, ring_share
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import Comparing

__all__ = ["Sharded"]


@dataclass(frozen=True)
class Sharded(Layout):
    """Instances have shares of the matrix, of the queries, or of both."""

    suffix: ClassVar[str] = " of shards"
    without_gpus: ClassVar[str] = "the rows of a sharded matrix are compared by CPUs, where they lie"

    @property
    def spread(self) -> Spread:
        """How the rows are shared out, and what travels."""
        return Spread(
            instances=len(self.slots),
            slots=max(self.slots.values()),
            query_rows=self.operands[-1].largest_share,
            matrix_rows=self.operands[0].largest_share,
            row_bytes=self._travelling_bytes(),
            coming_bytes=self._coming_bytes(),
            store_bytes=min(rows.store_bytes for rows in self.operands),
        )

    def _travelling_bytes(self) -> float:
        # Where one side lies whole everywhere, the other stays.
        each = [rows.row_bytes for rows in self.operands]
        return max(each) if min(each) else 0.0

    def _coming_bytes(self) -> float:
        every = [rows.described.rows * rows.row_bytes for rows in self.operands]
        count = len(self.slots)
        # Of what meets other rows all that the others have of the one that travels, and none where the other lies whole
        # everywhere.
        return every[0] * ring_share(count) if self.other_queries is None else min(every) * (1 - 1 / count)

    def cut(self, run: Run, mode: Mode, sizing: Sizing, record: BlockRecord[Any]) -> Dispatch:
        """Cut every share into chunks, and say which of them meet where."""
        dispatch = _Batched if sizing.batch_count(sizing.range_count(record)) else _Dispatch
        return dispatch(self, sizing, run.context)

    @property
    def slots(self) -> Mapping[str, int]:
        """Tasks that each instance runs at once."""
        return {host: slots for rows in self.operands for host, slots in rows.slots.items()}

    def transfers(self, query_rows: int, matrix_rows: int) -> Mapping[str, list[Transfer]]:
        """Return what comes to each instance, and what it is compared with there, in chunks of so many rows."""
        if self.other_queries is None:
            return deal(self.rows.shares(self.slots, matrix_rows))
        queries, matrix = (
            self._operand(brings, rows, chunk_rows)
            for brings, rows, chunk_rows in (
                ("queries", self.other_queries, query_rows),
                ("matrix", self.rows, matrix_rows),
            )
        )
        return deal_queries(queries, matrix)

    def _operand(self, brings: Any, rows: LoadedRows, chunk_rows: int) -> QueryOperand:
        shares = rows.shares(self.slots, chunk_rows)
        return QueryOperand(brings=brings, shares=shares, everywhere=rows.everywhere, row_bytes=rows.row_bytes)


class _Dispatch(Dispatch):
    """Pairs of chunks, each for the instance that has at least one of them."""

    def __init__(self, layout: Sharded, sizing: Sizing, context: Context) -> None:
        self._layout = layout
        spread = layout.spread
        chunk_rows = sizing.chunk_rows(spread)
        self._spread, self._longest = spread, max(chunk_rows)
        self._transfers = layout.transfers(*chunk_rows)
        self.tasks: list[BlockPair] = [
            pair for there in self._transfers.values() for transfer in there for pair in block_pairs(transfer)
        ]
        # The last is whoever looks for neighbors: the queries, or the matrix itself.
        self.row_order = layout.operands[-1].order
        # Only one of the two ever travels: of what every instance has, nothing does.
        moving = {transfer.brings for there in self._transfers.values() for transfer in there if not transfer.at_home}
        self._moving: LoadedRows = (layout.other_queries or layout.rows) if "queries" in moving else layout.rows
        # The common type: what travels was read from files of the sender's own types, and meets those of others.
        self._dtype: np.dtype[Any] = context.matrix.dtype

    def queue(self, collector: Collector) -> Queue:
        """Begin to dispatch, so that rows travel while others are compared."""
        record = collector.recorded
        return PairScheduler(
            self._transfers,
            self._layout.slots,
            self._send,
            window=self._spread.window(self._longest),
            recorded=(lambda pair: False) if record is None else record.__contains__,
            hint=collector.hint,
        )

    def function(self, mode: Comparing, context: Context) -> Callable[..., Part]:
        """Return what is called for each pair, with the rows that came."""
        return partial(compare_pair, mode.compare, context)

    @property
    def _send(self) -> Callable[[RowChunk], Any]:
        return partial(asking.chunk_of, self._moving.source, dtype=self._dtype)

    def options(self, queue: Any) -> Mapping[str, Any]:
        """Return how many pairs are unfinished at a time."""
        return {"in_flight": max(1, queue.in_flight)}

    def sent_bytes(self, queue: Any) -> Mapping[str, int]:
        """Return how many bytes of rows each instance sent."""
        return self._moving.sent_bytes(queue.sent)


class _Batched(_Dispatch):
    """The same pairs, which each instance hands out itself; their parts go to the owners of their rows."""

    def __init__(self, layout: Sharded, sizing: Sizing, context: Context) -> None:
        super().__init__(layout, sizing, context)
        self.note = "each instance hands out the pairs of chunks that it compares; the head says which those are"

    def queue(self, collector: Collector) -> Queue:
        """Begin to dispatch batches of what is not recorded."""
        record = collector.recorded
        return BatchScheduler(
            self._transfers,
            most=self._spread.batch(self._longest),
            room=self._spread.room(self._longest),
            recorded=(lambda pair: False) if record is None else record.__contains__,
        )

    def function(self, mode: Any, context: Context) -> Callable[..., Any]:
        """Return what is called for each batch; what is called for each pair is shipped once."""
        each = ray.put(super().function(mode, context))
        return partial(compare_batch, each, mode.owned.given_up, self._send, dict(self._layout.slots))

    def options(self, queue: Any) -> Mapping[str, Any]:
        """Return what a batch needs: no CPU of its own, since it mostly waits for those who have one."""
        return {"num_cpus": 0, "in_flight": max(1, queue.in_flight)}

    def parts(
        self, function: Callable[..., Any], queue: Any, record: Record[Part] | None
    ) -> Iterator[tuple[BlockPair, Part]]:
        """Yield the pairs that are recorded, and then those of each batch that is done."""
        if record is not None:
            yield from ((task, record.load(task)) for task in self.tasks if task in record)
        for batch, done in map_blocks(function, queue, **self.options(queue)):
            queue.ended(batch)
            yield from done
