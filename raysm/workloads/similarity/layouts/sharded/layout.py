"""The matrix, the queries, or both are spread over the instances: tasks run where rows are, and chunks travel."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.layouts.layout import Dispatch, Layout, LoadedRows, Queue
from raysm.workloads.similarity.layouts.sharded import asking
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import BlockPair, PairScheduler, block_pairs
from raysm.workloads.similarity.layouts.sharded.pair_task import compare_pair
from raysm.workloads.similarity.layouts.sharded.query_schedule import QueryOperand, deal_queries
from raysm.workloads.similarity.layouts.sharded.schedule import RowChunk, Share, Transfer, deal
from raysm.workloads.similarity.modes import Collector, Mode
from raysm.workloads.similarity.runs import Run
from raysm.workloads.similarity.sizing.sizing import Chunks, Sizing
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part
from raysm.workloads.similarity.tasks.tile_task import Comparing

__all__ = ["Sharded"]


@dataclass(frozen=True)
class Sharded(Layout):
    """Instances have shares of the matrix, of the queries, or of both."""

    suffix: ClassVar[str] = " of shards"
    without_gpus: ClassVar[str] = "the rows of a sharded matrix are compared by CPUs, where they lie"

    def chunks(self, sizing: Sizing) -> Chunks:
        """Return how large the chunks are, and what travels."""
        columns, rows = (max(_chunk_rows(self._shares(one, sizing))) for one in (self.operands[0], self.operands[-1]))
        return Chunks(rows=rows, columns=columns, coming_bytes=self._coming_bytes())

    def _coming_bytes(self) -> float:
        every = [rows.described.rows * rows.row_bytes for rows in self.operands]
        # Of a self-join half of all rows come to each instance (``schedule``); of what meets other rows all of the one
        # that travels, and none where the other lies whole everywhere.
        return every[0] / 2 if self.other_queries is None else min(every)

    def cut(self, run: Run, mode: Mode, sizing: Sizing, record: BlockRecord[Any]) -> Dispatch:
        """Cut every share into chunks, and say which of them meet where."""
        return _Dispatch(self, sizing, run.context)

    @property
    def slots(self) -> Mapping[str, int]:
        """Tasks that each instance runs at once."""
        return {host: slots for rows in self.operands for host, slots in rows.slots.items()}

    def transfers(self, sizing: Sizing) -> Mapping[str, list[Transfer]]:
        """Return what comes to each instance, and what it is compared with there."""
        if self.other_queries is None:
            return deal(self._shares(self.rows, sizing))
        queries, matrix = (
            self._operand(brings, rows, sizing)
            for brings, rows in (("queries", self.other_queries), ("matrix", self.rows))
        )
        return deal_queries(queries, matrix)

    def _operand(self, brings: Any, rows: LoadedRows, sizing: Sizing) -> QueryOperand:
        shares = self._shares(rows, sizing)
        return QueryOperand(brings=brings, shares=shares, everywhere=rows.everywhere, row_bytes=rows.row_bytes)

    def _shares(self, rows: LoadedRows, sizing: Sizing) -> list[Share]:
        return rows.shares(self.slots, sizing.max_tile_rows(), sizing.block_rows)


def _chunk_rows(shares: Sequence[Share]) -> list[int]:
    return [chunk.rows for share in shares for chunk in share.chunks]


class _Dispatch(Dispatch):
    """Pairs of chunks, each for the instance that has at least one of them."""

    def __init__(self, layout: Sharded, sizing: Sizing, context: Context) -> None:
        self._layout = layout
        self._transfers = layout.transfers(sizing)
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
        record, source = collector.recorded, self._moving.source

        def send(chunk: RowChunk) -> Any:
            return asking.chunk_of(source, chunk, self._dtype)

        return PairScheduler(
            self._transfers,
            self._layout.slots,
            send,
            recorded=(lambda pair: False) if record is None else record.__contains__,
            hint=collector.hint,
        )

    def function(self, mode: Comparing, context: Context) -> Callable[..., Part]:
        """Return what is called for each pair, with the rows that came."""
        return partial(compare_pair, mode.compare, context)

    def options(self, queue: Any) -> Mapping[str, Any]:
        """Return how many pairs are unfinished at a time."""
        return {"in_flight": max(1, queue.in_flight)}

    def sent_bytes(self, queue: Any) -> Mapping[str, int]:
        """Return how many bytes of rows each instance sent."""
        return self._moving.sent_bytes(queue.sent)
