"""Which instance has which rows.

Split all pairs of rows into tasks, dispatch them, collect the parts. If every instance has all rows
(FullyReplicated, ``WholeRows``), they are loaded everywhere at once, and any free slot takes the
next task. For rows of a channel that is sharded over the instances, see ``shards`` and
``rotation``.
"""

import functools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
import ray

from raysm.core.protocol.names import natural
from raysm.features.similarity.cluster.engines.choice import compile_ahead
from raysm.features.similarity.cluster.modes.mode import Mode
from raysm.features.similarity.cluster.owners import Collector
from raysm.features.similarity.cluster.preparation import (
    compares_elements,
    make_operand,
    prepare_block,
    prepare_blocks,
)
from raysm.features.similarity.cluster.reading.columns import Features, agree_on_features
from raysm.features.similarity.cluster.reading.files import (
    digest,
    matrix_files,
)
from raysm.features.similarity.cluster.reading.matrix import Matrix, MatrixInfo, Source
from raysm.features.similarity.cluster.rotation import (
    MAX_LEAVING,
    PairQueue,
    Side,
    Transfer,
    block_pairs,
    compare_pair,
    order_query_transfers,
    order_transfers,
)
from raysm.features.similarity.cluster.run import Report
from raysm.features.similarity.cluster.shards import (
    RowChunk,
    Shard,
    ShardedRows,
    features_here,
    name_instance_in_errors,
    send_chunk,
    split_shard,
)
from raysm.features.similarity.cluster.tasks import (
    Comparing,
    Context,
    Part,
    RowShape,
    TileTask,
    run_preparation,
    run_task,
)
from raysm.features.similarity.cluster.tiling import (
    TILES_A_SLOT,
    Footprint,
    RowOrder,
    RowRun,
    Sizing,
    shift_tile,
)
from raysm.instance.log import remark
from raysm.instance.work.blocks import LATER, map_blocks, map_here, task_slots
from raysm.instance.work.nodes import answers, ask_every_node, cluster_nodes
from raysm.instance.work.record import BlockRecord
from raysm.instance.work.report import ProgressThrottle
from raysm.instance.work.row_blocks import RowBlock, TileBlock


@dataclass(frozen=True, slots=True)
class WholeRows:
    source: Source
    described: Matrix
    computed_here: bool = False
    """This process computes all of the result, because starting workers would take longer."""

    slots: ClassVar[Mapping[str, int]] = {}
    row_bytes: ClassVar[float] = 0.0
    store_bytes: ClassVar[float] = math.inf

    @property
    def largest_share(self) -> int:
        return self.described.rows

    @property
    def order(self) -> RowOrder:
        """Numbers and places of the rows, which are equal."""
        return RowOrder.identity(self.described.rows)

    def as_type(self, dtype: np.dtype[Any]) -> MatrixInfo:
        return self.described.as_type(dtype)

    def compares_elements(self) -> bool:
        return compares_elements(self.described)

    def shape(self, dtype: np.dtype[Any], *, sparse: bool) -> RowShape:
        rows = self.described.rows
        columns = self.described.columns
        return RowShape(source=self.source, rows=rows, columns=columns, dtype=dtype, sparse=sparse)

    def digest(self) -> "Future[str]":
        """Return a future of the digest of the files.

        The digest may have been started while the cluster formed.
        """
        return digest(self.source.here().channel)

    def prepared_parts(self, shape: RowShape, name: str) -> Iterator[tuple[RowBlock, Part]]:
        run_blocks = map_here if self.computed_here else map_blocks
        blocks = prepare_blocks(shape, task_slots())
        yield from run_blocks(partial(run_preparation, prepare_block, shape), blocks)

    def chunks(self, hosts: Mapping[str, int], chunk_rows: int) -> dict[str, tuple[RowChunk, ...]]:
        """Return all rows for each of those instances, in chunks that every instance has."""
        runs = (RowRun(0, 0, self.described.rows),)
        return {
            host: split_shard(Shard(host=host, runs=runs, bytes=0), chunk_rows) for host in hosts
        }

    def sent_bytes(self, sent_rows: Mapping[str, int]) -> dict[str, int]:
        return {}


SMALL_WORK = 1 << 29
"""Multiplications that a process does in less time than it takes to start another one."""


def load_everywhere(sources: Sequence[Source], small_bytes: int = 0) -> list[WholeRows]:
    """Map the matrices here, while every other instance does the same.

    If their files have at most ``small_bytes``, and comparing their rows is little work, only this
    process needs them.
    """
    if not sources:
        return []
    nodes = cluster_nodes()
    own_id = ray.get_runtime_context().get_node_id()
    if (
        small_bytes
        and any(node.node_id == own_id and node.cpus for node in nodes)
        and not any(n.gpus for n in nodes)
    ):
        files = [file for source in sources for _, file in matrix_files(source.here().channel)]
        if sum(file.stat().st_size for file in files) <= small_bytes:
            matrices = [source.open() for source in sources]
            if matrices[0].rows * matrices[-1].rows * matrices[0].columns <= SMALL_WORK:
                if len(nodes) > 1:
                    remark("the head computes all of it alone, because there is little to compute")
                return [
                    WholeRows(*each, computed_here=True)
                    for each in zip(sources, matrices, strict=True)
                ]
    # A node without CPUs computes nothing, and needs no rows.
    others = [node for node in nodes if node.node_id != own_id and node.cpus]
    # Start the others before the head maps its own rows, so that all instances convert at the same
    # time. Converted files stay in an instance's scratch folder, where the processes of its tasks
    # map them.
    loading = ask_every_node(_load_there, list(sources), nodes=others, num_cpus=1)
    opened = [WholeRows(source, source.open()) for source in sources]
    # A lost instance gives no answer; if it comes back, the next task there converts its files.
    answers(loading.values())
    return opened


def _load_there(sources: Sequence[Source]) -> None:
    # Compile now, so that no task waits for the compiler.
    compile_ahead()
    for source in sources:
        with name_instance_in_errors(source):
            source.open()


def add_features(source: Source, expected: Features | None = None) -> Source:
    """Return the source with the features, in order, of its files and of the matrix."""
    found = (
        answers(ask_every_node(features_here, source).values())
        if source.sharded
        else [source.features()]
    )
    return replace(source, expected=agree_on_features(found, expected))


LoadedRows: TypeAlias = WholeRows | ShardedRows

CHUNK_BYTES = 256 << 20
"""Largest chunk that is sent, a fifth of a second at 10 Gbit/s. Ray repeats transfers of more than
ten seconds."""

MIN_CHUNKS = 4
"""Fewest chunks of an instance, so that slots end at about the same time."""

BALANCED_CHUNKS = 64
"""Number of chunks of all instances beyond which more do not help."""


def load(matrix: Source, queries: Source | None = None, *, small_bytes: int = 0) -> "Layout":
    """Have every instance map its rows, or convert them once; return the layout of both channels.

    Files of at most ``small_bytes`` may be for this process alone.
    """
    sources = [add_features(matrix)]
    if queries is not None:
        sources.append(add_features(queries, sources[0].expected))
    unsharded = [source for source in sources if not source.sharded]
    whole = iter(load_everywhere(unsharded, small_bytes if unsharded == sources else 0))
    rows: list[LoadedRows] = [
        ShardedRows(source) if source.sharded else next(whole) for source in sources
    ]
    return Layout(rows[0], None if queries is None else rows[1])


# No slots, because ``cached_property`` needs ``__dict__``.
@dataclass(frozen=True)
class Layout:
    rows: LoadedRows
    other_queries: LoadedRows | None = None
    """The rows that look for them; None: the same rows do."""

    @property
    def operands(self) -> list[LoadedRows]:
        return [self.rows] if self.other_queries is None else [self.rows, self.other_queries]

    @property
    def self_join(self) -> bool:
        return self.other_queries is None

    @property
    def is_sharded(self) -> bool:
        return any(isinstance(rows, ShardedRows) for rows in self.operands)

    @property
    def without_gpus(self) -> str:
        """The reason why GPUs do not compare these rows, in one phrase; empty if they do."""
        hosts = {
            host
            for rows in self.operands
            if isinstance(rows, ShardedRows)
            for host in rows.hosts_without_gpus
        }
        if not hosts:
            return ""
        # Sharded rows are compared where they lie: pairs of two such instances would have no GPU.
        return f"{', '.join(sorted(hosts, key=natural))} has rows of a sharded matrix and no GPU"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The common type that all rows are read as.

        It changes no score, because scores are defined on float64: the common type either holds all
        numbers of both types, or is float64 (for int64 and uint64, for example, which round beyond
        2**53 as the definition does).
        """
        return np.result_type(*(rows.described.dtype for rows in self.operands))

    @functools.cached_property
    def matrix(self) -> MatrixInfo:
        return self.rows.as_type(self.dtype)

    @functools.cached_property
    def queries(self) -> MatrixInfo:
        return self.matrix if self.other_queries is None else self.other_queries.as_type(self.dtype)

    @property
    def slots(self) -> Mapping[str, int]:
        return {host: slots for rows in self.operands for host, slots in rows.slots.items()}

    def tasks_at_once(self, footprint: Footprint) -> Mapping[str, int]:
        """Return how many tasks each instance with sharded rows runs at a time."""
        num_gpus = footprint.task.get("num_gpus", 0)
        return {
            host: tasks
            for rows in self.operands
            if isinstance(rows, ShardedRows)
            for host, tasks in rows.tasks_at_once(num_gpus).items()
        }

    def compares_elements(self) -> bool:
        """Return whether all rows are sparse, and are compared by the columns that they share."""
        # Check ``sparse`` first: for sharded rows, the second check asks an instance to count
        # elements.
        return (
            all(rows.described.sparse for rows in self.operands) and self.rows.compares_elements()
        )

    def prepare(
        self, report: Report, *, sparse: bool, engine: str | None, operand_rows: int
    ) -> tuple[Context, Mapping[str, str]]:
        """Prepare all rows; return the context of the tasks, and the digest of each channel."""
        # Digesting reads the same files at the same time as the tasks, so the disk is read once.
        digesting = {rows.source.channel: rows.digest() for rows in self.operands}
        operands = []
        # Not strict: without other queries the matrix stands alone.
        for rows, name in zip(self.operands, ("the matrix", "the queries"), strict=False):
            shape = rows.shape(self.dtype, sparse=sparse)
            operands.append(
                make_operand(
                    shape, _report_parts(report, rows.prepared_parts(shape, name)), name=name
                )
            )
        queries = None if self.self_join else operands[1]
        context = Context(
            matrix=operands[0], other_queries=queries, engine=engine, operand_rows=operand_rows
        )
        # Wait for the digests last: only the record needs them.
        return context, {channel: digest.result() for channel, digest in digesting.items()}

    def dispatch(
        self, mode: Mode, sizing: Sizing, record: BlockRecord[Any], context: Context
    ) -> "Dispatch":
        return (
            _dispatch_pairs(self, sizing, context)
            if self.is_sharded
            else _dispatch_tiles(self, sizing, mode, record)
        )

    def transfers(self, query_rows: int, matrix_rows: int) -> Mapping[str, list[Transfer]]:
        if self.other_queries is None:
            return order_transfers(self.rows.chunks(self.slots, matrix_rows))
        return order_query_transfers(
            self._side("queries", self.other_queries, query_rows),
            self._side("matrix", self.rows, matrix_rows),
        )

    def _side(self, moves: Any, rows: LoadedRows, chunk_rows: int) -> Side:
        shares = rows.chunks(self.slots, chunk_rows)
        size = rows.described.rows * rows.row_bytes
        return Side(moves=moves, shares=shares, everywhere=isinstance(rows, WholeRows), bytes=size)


def _report_parts(
    report: Report, parts: Iterator[tuple[RowBlock, Part]]
) -> Iterator[tuple[RowBlock, Part]]:
    for block, part in parts:
        report.add_prepared(block, part)
        yield block, part


def compare(
    dispatch: "Dispatch", collector: Collector, context: Context, rows: int, report: Report
) -> None:
    """Run every task that no earlier run did, collect the parts, and report progress in rows."""
    queue = dispatch.queue(collector)
    throttle = ProgressThrottle("similarity", rows, "rows", report.emit_event)
    # A task counts by its pairs; the pieces of one that was given up may count more than it did.
    whole = sum(task.area for task in dispatch.tasks)
    reached = 0.0
    report.count(dispatch.tasks, collector.recorded)
    function = partial(dispatch.compare, collector.comparing, context)
    with report.phase("similarity"):
        run: Callable[..., Any] = (
            map_here if dispatch.sender.computed_here else partial(map_blocks, **queue.options)
        )
        for task, part in run(function, queue, record=collector.recorded):
            report.add(part)
            if not queue.finish(task, collector.take(task, part)):
                report.add_compared(task.area, part)
                reached += task.area
                throttle.reach(min(rows, math.floor(rows * reached / whole)))
            # Free this part before the next one arrives.
            del part
        # Rounding down may have left the progress one row short.
        throttle.reach(rows)
    report.sent_bytes.update(dispatch.sender.sent_bytes(queue.sent))


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    tasks: Sequence[TileTask]
    row_order: RowOrder
    in_strips: bool = False
    queue: Callable[[Collector], Any]
    compare: Callable[..., Part]
    """Compares a task, given ``Comparing`` and the ``Context``, in the task's process."""
    sender: LoadedRows
    """The rows that are sent, if any are."""


def _dispatch_tiles(
    layout: Layout, sizing: Sizing, mode: Mode, record: BlockRecord[Any]
) -> Dispatch:
    """Dispatch tiles of rows that every instance has, to whichever slot is free."""
    tasks = mode.tiles(sizing, record)
    queue = partial(TileQueue, tasks, sizing.footprint.task)
    order = layout.operands[-1].order
    return Dispatch(
        tasks=tasks,
        row_order=order,
        in_strips=mode.in_strips,
        queue=queue,
        compare=compare_tile,
        sender=layout.rows,
    )


def compare_tile(comparing: Comparing, context: Context, task: TileTask) -> Part:
    return run_task(comparing.compare, context, task)


def _dispatch_pairs(layout: Layout, sizing: Sizing, context: Context) -> Dispatch:
    """Dispatch pairs of chunks, each to the instance that has at least one of them."""
    slots = layout.tasks_at_once(sizing.footprint)
    rows, window = chunk_limits(layout, sizing, slots)
    transfers = layout.transfers(*rows)
    # The rows of only one of the two channels are sent.
    moving = {
        transfer.moves for there in transfers.values() for transfer in there if not transfer.at_home
    }
    sender = (layout.other_queries or layout.rows) if "queries" in moving else layout.rows

    def queue(collector: Collector) -> PairQueue:
        return PairQueue(
            transfers,
            slots,
            # Send the rows as the common type of all instances, not as the type of the sender's own
            # files.
            partial(send_chunk, sender.source, context.matrix.dtype),
            window=window,
            options=sizing.footprint.task,
            recorded=collector.recorded.__contains__,
            add_hint=collector.add_hint,
        )

    tasks = [
        pair for there in transfers.values() for transfer in there for pair in block_pairs(transfer)
    ]
    order = layout.operands[-1].order
    return Dispatch(tasks=tasks, row_order=order, queue=queue, compare=compare_pair, sender=sender)


class TileQueue(Iterator[Any]):
    """Hands out tiles in order; the pieces of one that was given up come next."""

    sent: ClassVar[Mapping[str, int]] = {}

    def __init__(
        self, tasks: Sequence[TileTask], options: Mapping[str, Any], collector: Collector
    ) -> None:
        self.options = options
        self._collector = collector
        self._waiting = deque(tasks)
        self._unfinished = 0

    def __next__(self) -> Any:
        """Return a tile, with what is known of it now.

        Return ``LATER`` while a tile that runs may still be given up.
        """
        if self._waiting:
            self._unfinished += 1
            return self._collector.add_hint(self._waiting.popleft())
        if self._unfinished:
            return LATER
        raise StopIteration

    def finish(self, task: TileTask, pieces: Sequence[TileBlock]) -> Sequence[TileTask]:
        """Note that a task is done; return the pieces to compute instead if it was given up."""
        self._unfinished -= 1
        rows = task.tile.rows.start
        columns = task.tile.columns.start
        # Drop the old hint: each piece gets a new one when it is dispatched.
        again = [
            replace(task, tile=shift_tile(piece, rows, columns), hint=None) for piece in pieces
        ]
        # ``extendleft`` reverses the order.
        self._waiting.extendleft(reversed(again))
        return again


def chunk_limits(
    layout: Layout, sizing: Sizing, slots: Mapping[str, int]
) -> tuple[tuple[int, int], int]:
    """Return the most rows of a chunk, and the most remote chunks of an instance.

    ``slots`` says how many tasks each instance runs at a time.
    A chunk has as many rows as these limits allow: the most rows of a task; ``TILES_A_SLOT`` pairs
    of chunks for each slot; and room for two chunks for each slot in half of the smallest object
    store.
    """
    query_share = layout.operands[-1].largest_share
    matrix_share = layout.operands[0].largest_share
    wanted = max(3, 2 * max(slots.values()))
    each = [rows.row_bytes for rows in layout.operands]
    # If every instance has all rows of one side, nothing is sent.
    row_bytes = max(each) if min(each) else 0.0
    room_bytes = min(rows.store_bytes for rows in layout.operands) / 2 / (1 + MAX_LEAVING)
    if sizing.block_rows:
        query_rows = matrix_rows = min(sizing.block_rows, sizing.operand_rows)
    else:
        most = sizing.max_block_rows
        least = sizing.footprint.min_rows
        if row_bytes:
            most = max(1, int(min(most, room_bytes / wanted / row_bytes, CHUNK_BYTES / row_bytes)))
        if sizing.self_join:
            fewest = min(MIN_CHUNKS * len(slots), BALANCED_CHUNKS)
            most = min(most, math.ceil(layout.matrix.rows / fewest))
        pairs = sizing.pairs / (TILES_A_SLOT * max(1, sum(slots.values())))
        query_rows = min(most, query_share, max(least, math.ceil(math.sqrt(pairs))))
        # If the shares of one side are too small for such chunks, the other side gets larger ones.
        matrix_rows = min(most, matrix_share, max(least, math.ceil(pairs / query_rows)))
    rows = _equal_chunk_rows(query_share, query_rows), _equal_chunk_rows(matrix_share, matrix_rows)
    if not row_bytes or math.isinf(room_bytes):
        return rows, wanted
    return rows, max(2, min(wanted, int(room_bytes / (max(rows) * row_bytes))))


def _equal_chunk_rows(share: int, rows: int) -> int:
    """Return a chunk's most rows if a share is cut into equal chunks of up to ``rows`` rows."""
    count = max(1, math.ceil(share / rows))
    # Opposite instances on the ring halve one's chunks between them, which an odd small number
    # makes uneven.
    if 1 < count < BALANCED_CHUNKS:
        count += count % 2
    return math.ceil(share / count)
