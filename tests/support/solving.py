"""A problem solved by the tasks' own functions, and merged as the head does, without any cluster."""

from collections import deque
from dataclasses import replace
from functools import partial

import numpy as np

from raysm.features.similarity.cluster import tiling
from raysm.features.similarity.cluster.arithmetic.score import least_score
from raysm.features.similarity.cluster.modes.full import Full
from raysm.features.similarity.cluster.modes.mode import OwnedRange
from raysm.features.similarity.cluster.modes.threshold import Threshold
from raysm.features.similarity.cluster.modes.topk import TopK
from raysm.features.similarity.cluster.preparation import make_operand, prepare_block
from raysm.features.similarity.cluster.reading.columns import agree_on_features
from raysm.features.similarity.cluster.reading.matrix import Location, Source
from raysm.features.similarity.cluster.rotation import (
    Side,
    block_pairs,
    compare_pair,
    order_query_transfers,
    order_transfers,
)
from raysm.features.similarity.cluster.shards import (
    Shard,
    join_reports,
    read_chunk,
    report_files,
    split_shard,
)
from raysm.features.similarity.cluster.tasks import Context, RowShape, TileTask, run_preparation
from raysm.features.similarity.cluster.tiling import RowOrder, RowRun, find_runs
from raysm.instance.work.row_blocks import RowBlock
from tests.support.problems import save

HOSTS = ("algo-1", "algo-2", "algo-3")


class WholeOperand:
    """The files of one channel, where every instance has them all."""

    def __init__(self, parts, problem, folder, channel, expected=None):
        """Save the files; they have the ``expected`` features of the matrix that they are compared with."""
        save(parts, folder / channel, problem.seed)
        location = Location(folder / channel, folder / f"{channel}-scratch", HOSTS[0])
        source = Source(channel=channel, selection=problem.selection, location=location)
        source = replace(source, expected=agree_on_features([source.features()], expected))
        self.problem, self.sources = problem, dict.fromkeys(HOSTS, source)
        matrix = source.open()
        self.rows, self.columns, self.dtype = matrix.rows, matrix.columns, matrix.dtype
        self.order = RowOrder.identity(matrix.rows)

    def shape(self, dtype, host):
        return RowShape(
            source=self.sources[host],
            rows=self.rows,
            columns=self.columns,
            dtype=dtype,
            sparse=self.problem.sparse,
        )

    def prepared(self, dtype):
        cuts = tiling.split_rows(RowBlock(0, self.rows), self.problem.block_rows)
        shape = self.shape(dtype, HOSTS[0])
        return dict.fromkeys(
            HOSTS,
            make_operand(
                shape, [(cut, run_preparation(prepare_block, shape, cut)) for cut in cuts]
            ),
        )

    def side(self, moves, hosts):
        shards = [Shard(host=host, runs=(RowRun(0, 0, self.rows),), bytes=0) for host in hosts]
        return Side(moves=moves, shares=self._chunks(shards), everywhere=True)

    def _chunks(self, shards):
        origins, size = getattr(self, "starts", {}), self.problem.block_rows
        return {one.host: split_shard(one, size, origins.get(one.host, 0)) for one in shards}


class SpreadOperand(WholeOperand):
    """The files of one channel, where each of some instances has its share."""

    def __init__(self, parts, problem, folder, channel, expected=None):
        """Save the files, and join what the instances report."""
        self.problem, self.sources = problem, {}
        rng = np.random.default_rng([problem.seed, 1, len(channel)])
        for number, part in enumerate(parts):
            host = HOSTS[rng.integers(len(HOSTS))]
            save([part], folder / channel / host, problem.seed, number)
        for host in HOSTS:
            (folder / channel / host).mkdir(parents=True, exist_ok=True)
            location = Location(folder / channel / host, folder / f"{channel}-{host}-scratch", host)
            self.sources[host] = Source(
                channel=channel, selection=problem.selection, location=location, sharded=True
            )
        expected = agree_on_features(
            [source.features() for source in self.sources.values()], expected
        )
        self.sources = {
            host: replace(source, expected=expected) for host, source in self.sources.items()
        }
        self.index = join_reports(
            [report_files(source) for source in self.sources.values()],
            HOSTS,
            Source(channel=channel),
        )
        self.rows, self.columns, self.dtype = self.index.rows, self.index.columns, self.index.dtype
        ends = np.cumsum([0, *(shard.rows for shard in self.index.shards)]).tolist()
        self.starts = {
            shard.host: start for shard, start in zip(self.index.shards, ends, strict=False)
        }
        self.ranges = {
            shard.host: RowBlock(self.starts[shard.host], self.starts[shard.host] + shard.rows)
            for shard in self.index.shards
        }
        self.order = RowOrder.of(
            [
                RowRun(run.start, self.starts[shard.host] + run.offset, run.rows)
                for shard in self.index.shards
                for run in shard.runs
            ]
        )

    def shape(self, dtype, host):
        return replace(super().shape(dtype, host), ranges=self.ranges)

    def prepared(self, dtype):
        """Return, by instance, the rows ready to be compared: each prepares its own."""
        parts = [
            (block, run_preparation(prepare_block, self.shape(dtype, host), block))
            for host, block in self.ranges.items()
            if block.rows
        ]
        return {host: make_operand(self.shape(dtype, host), parts) for host in HOSTS}

    def chunks(self):
        return self._chunks(self.index.shards)

    def side(self, moves, hosts):
        return Side(moves=moves, shares=self.chunks(), everywhere=False, bytes=float(self.rows))


class Solver:
    @property
    def max_tile_rows(self):
        """Most rows that a task of top-k makes ready at once: fewer than a tile has where there are many slots."""
        return max(1, self.problem.block_rows // 3)

    def __init__(self, problem, folder, spread=()):
        """Save the files, and prepare all rows where they lie; those of the channels in ``spread`` are sharded."""
        self.problem, self.folder = problem, folder
        sides = {"matrix": problem.parts} | (
            {} if problem.queries is None else {"queries": problem.queries}
        )
        self.operands, expected = [], None
        for name, parts in sides.items():
            kind = SpreadOperand if name in spread else WholeOperand
            self.operands.append(kind(parts, problem, folder, name, expected))
            expected = self.operands[0].sources[HOSTS[0]].expected
        dtype = np.result_type(*(operand.dtype for operand in self.operands))
        ready = [operand.prepared(dtype) for operand in self.operands]
        # Each stands for a process of its own instance.
        self.contexts = {
            host: Context(
                matrix=ready[0][host],
                other_queries=ready[1][host] if len(ready) > 1 else None,
                operand_rows=self.max_tile_rows,
            )
            for host in HOSTS
        }
        self.context = self.contexts[HOSTS[0]]

    def solve(self, mode, engine=None):
        """Return keys, a list of (row, neighbor, similarity), or scores, as ``mode`` says; by that engine."""
        contexts = {
            host: replace(context, engine=engine) for host, context in self.contexts.items()
        }
        compare = partial(self.compare, contexts)
        if mode == "topk":
            return self._topk(compare)
        if mode == "threshold":
            found = (
                compare(Threshold(least_score(self.problem.threshold)), task)
                for task in self.tasks()
            )
            return [pair for arrays in found for pair in pairs_of(arrays)]
        shape = self.operands[-1].rows, self.operands[0].rows
        scores = np.full(shape, np.nan, dtype=np.float32)
        for task in self.tasks():
            tile = compare(Full("float32"), task)["scores"]
            rows = task.row_numbers(np.arange(task.tile.rows.start, task.tile.rows.stop))
            columns = task.column_numbers(
                np.arange(task.tile.columns.start, task.tile.columns.stop)
            )
            scores[np.ix_(rows, columns)] = tile
            if task.mirrored:
                scores.T[np.ix_(rows, columns)] = tile
        return scores

    def _topk(self, compare):
        """Have owners of ranges of rows merge the pieces, as a run does."""
        rows, mode = self.operands[-1].rows, TopK(self.problem.k)
        ranges = mode.ranges(rows, self.problem.ranges, self_join=self.context.self_join)
        norms = np.empty(rows)
        for run in self.operands[-1].order.between(0, rows):
            norms[run.start : run.start + run.rows] = self.context.queries.norms[
                run.offset : run.offset + run.rows
            ]
        owners = [
            mode.merger(
                OwnedRange(
                    rows=block,
                    columns=self.operands[0].rows,
                    self_join=self.context.self_join,
                    zero_rows=np.flatnonzero(norms == 0),
                ),
                self.folder,
                self.folder,
                None,
            )
            for block in ranges
        ]

        def ask(numbers):
            known = [
                owners[at].bounds(list(find_runs(numbers[some]))) for at, some in ranges.of(numbers)
            ]
            return np.concatenate(known)

        def take(task, dispatched):
            for at, piece in mode.split(task, compare(mode, dispatched), ranges):
                owners[at].take(str(task), piece)

        try:
            in_turn(self.tasks(), self.problem.at_once, lambda task: mode.add_hint(task, ask), take)
            keys = [
                owner.read(block.start, block.stop)
                for owner, block in zip(owners, ranges, strict=True)
            ]
            return np.concatenate(keys)
        finally:
            for owner in owners:
                owner.close()


class Replicated(Solver):
    def ids(self):
        matrices = [operand.sources[HOSTS[0]].open() for operand in self.operands]
        return [
            [one for batch in matrix.id_batches() for one in batch.to_pylist()]
            for matrix in matrices
        ]

    def tasks(self):
        step, rows, columns = self.problem.block_rows, self.operands[-1].rows, self.operands[0].rows
        if self.context.self_join:
            return [TileTask(tile, True) for tile in tiling.triangle(columns, step)]
        return [
            TileTask(tile, False) for tile in tiling.rectangle(rows, columns, min(rows, step), step)
        ]

    def compare(self, contexts, mode, task):
        return mode.compare(contexts[HOSTS[0]], task)


class Sharded(Solver):
    """The files of a problem, of whose channels at least one is shared out over the instances."""

    def tasks(self):
        """Return the pairs of chunks, each for one instance."""
        matrix = self.operands[0]
        if self.context.self_join:
            transfers = order_transfers(matrix.chunks())
        else:
            # Those that have all rows of one channel compare them with their share of the other.
            transfers = order_query_transfers(
                self.operands[1].side("queries", HOSTS), matrix.side("matrix", HOSTS)
            )
        return [
            pair
            for there in transfers.values()
            for transfer in there
            for pair in block_pairs(transfer)
        ]

    def compare(self, contexts, mode, pair):
        """Do one task where it is to run, with the rows that have to come."""
        remote, rows = pair.remote, None
        if remote is not None:
            operand = self.operands[-1 if remote is pair.left else 0]
            rows = read_chunk(operand.sources[remote.host], remote, self.context.matrix.dtype)
        return compare_pair(mode, contexts[pair.host], pair, rows).arrays


def in_turn(items, at_once, dispatch, take):
    """Dispatch ``at_once`` items ahead of those whose result is taken."""
    running = deque()
    for item in items:
        running.append((item, dispatch(item)))
        if len(running) >= at_once:
            take(*running.popleft())
    while running:
        take(*running.popleft())


def pairs_of(arrays):
    rows = np.repeat(arrays["rows"], arrays["counts"])
    return zip(
        rows.tolist(), arrays["neighbors"].tolist(), arrays["similarities"].tolist(), strict=True
    )
