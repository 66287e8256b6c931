"""A problem solved by the tasks' own functions, and merged as the head does, without any cluster.

Tasks that run at once are told what was known when they were dispatched; here, so many deals are made before the first
of them is computed.
"""

from collections import deque
from dataclasses import replace
from functools import partial

import numpy as np

from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.keys import EMPTY_KEY, decode
from raysm.workloads.similarity.arithmetic.score import least_score
from raysm.workloads.similarity.arithmetic.topk_accumulator import TopKAccumulator, zero_row_keys
from raysm.workloads.similarity.layouts.sharded import schedule, tasks
from raysm.workloads.similarity.layouts.sharded.index import join, report
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import block_pairs
from raysm.workloads.similarity.layouts.sharded.resident_rows import ShardContext, portion
from raysm.workloads.similarity.modes.compute import full, threshold, topk
from raysm.workloads.similarity.modes.partial_merge import TileGroup
from raysm.workloads.similarity.reading.matrix import alike
from raysm.workloads.similarity.tasks.context import Context, Place, Source
from raysm.workloads.similarity.tasks.parts import measured
from raysm.workloads.similarity.tasks.preparing import prepare_block, prepared
from tests.support.problems import save

__all__ = ["Replicated", "Sharded"]

HOSTS = ("algo-1", "algo-2", "algo-3")


def nothing_known(source, dtype, sparse, **fields):
    none = np.empty(0, dtype=np.int16)
    return Context(source=source, dtype=dtype, norms=np.empty(0), exponents=none, sparse=sparse, **fields)


class Replicated:
    """The files of a problem, where every instance has them all."""

    def __init__(self, problem, folder):
        """Save the files, open them as the head does, and prepare all rows."""
        self.problem, self.folder = problem, folder
        sides = {"matrix": problem.parts} | ({} if problem.queries is None else {"queries": problem.queries})
        sources = []
        for name, parts in sides.items():
            save(parts, folder / name, problem.seed)
            sources.append(Source(channel=name, place=Place(folder / name, folder / f"{name}-scratch", HOSTS[0])))
        matrices = alike([source.open() for source in sources])
        contexts = [self._prepared(*side) for side in zip(sources, matrices, strict=True)]
        self.context = contexts[0] if len(contexts) == 1 else replace(contexts[0], queries=contexts[1])

    def _prepared(self, source, matrix):
        context = nothing_known(source, matrix.dtype, self.problem.sparse, rows=matrix.rows, columns=matrix.columns)
        step = self.problem.block_rows
        cuts = [RowBlock(at, min(at + step, matrix.rows)) for at in range(0, matrix.rows, step)]
        return replace(context, **prepared(context, [(cut, measured(prepare_block, context, cut)) for cut in cuts]))

    def solve(self, mode, engine=None):
        """Return keys, a list of (row, neighbor, similarity), or scores, as ``mode`` says; by that engine."""
        context = replace(self.context, engine=engine)
        rows, same, step = context.queries.rows, context.same, self.problem.block_rows
        if same:
            tiles = list(tiling.triangle(context.rows, step))
        else:
            tiles = list(tiling.rectangle(rows, context.rows, min(rows, step), step))
        if mode == "topk":
            return self._topk(context, tiles)
        if mode == "threshold":
            least = least_score(self.problem.threshold)
            return [pair for tile in tiles for pair in tile_pairs(context, least, tile)]
        scores = np.full((rows, context.rows), np.nan, dtype=np.float32)
        for tile in tiles:
            found = full.full_tile(context, "float32", tile)
            places = [np.arange(cut.start, cut.stop) for cut in (tile.rows, tile.columns)]
            fill(scores, *places, found)
            if same:
                fill(scores.T, *places, found)
        return scores

    def _topk(self, context, tiles):
        problem, same, rows = self.problem, context.same, context.queries.rows
        k, step = problem.k, problem.block_rows
        standing = TopKAccumulator(self.folder, rows, k)

        def deal(tile):
            both = same and tile.rows != tile.columns
            columns = standing.lower_bounds[tile.columns.start : tile.columns.stop] if both else standing.lower_bounds[:0]
            return topk.Deal(tile, standing.lower_bounds[tile.rows.start : tile.rows.stop].copy(), columns.copy())

        def computed(dealt):
            if not same or problem.merged_tiles == 1:
                return topk.topk_tile(context, k, dealt)
            group = TileGroup(k, dealt)

            def take_tile(tile, dealt):
                group.take(tile, topk.topk_tile(context, k, dealt))

            in_turn(tiling.cut(dealt.tile, step), problem.at_once, group.deal, take_tile)
            return group.arrays()

        def take(tile, dealt):
            arrays = computed(dealt)
            standing.merge(tile.rows, arrays["counts"], arrays["keys"])
            if "column_counts" in arrays:
                standing.merge(tile.columns, arrays["column_counts"], arrays["column_keys"])

        try:
            groups = tiling.triangle(context.rows, step * problem.merged_tiles) if same else tiles
            in_turn(groups, problem.at_once, deal, take)
            keys = standing.read(0, rows)
        finally:
            standing.close()
        return with_zero_rows(keys, context.queries.norms, k, same)


class Sharded:
    """The files of a problem, where each of some instances has its share."""

    def __init__(self, problem, folder):
        """Save the files, join what the instances report, and prepare all rows where they lie."""
        self.problem = problem
        rng = np.random.default_rng([problem.seed, 1])
        self.sources = {}
        for number, part in enumerate(problem.parts):
            host = HOSTS[rng.integers(len(HOSTS))]
            save([part], folder / host, problem.seed, number)
            self.sources[host] = Source(channel="matrix", place=Place(folder / host, folder / f"{host}-scratch", host))
        self.hosts = list(self.sources)
        self.index = join([report(self.sources[host]) for host in self.hosts], self.hosts, "matrix")
        self.starts = {}
        for shard in self.index.shards:
            self.starts[shard.host] = sum(other.rows for other in self.index.shards if other.host in self.starts)
        contexts = {host: self._begun(source) for host, source in self.sources.items()}
        parts = []
        for shard in self.index.shards:
            block = RowBlock(self.starts[shard.host], self.starts[shard.host] + shard.rows)
            parts.append((block, measured(prepare_block, contexts[shard.host], block)))
        self.known = prepared(contexts[self.hosts[0]], parts)

    def _begun(self, source):
        return ShardContext(
            source=source,
            rows=self.index.rows,
            columns=self.index.columns,
            norms=np.empty(0),
            exponents=np.empty(0, dtype=np.int16),
            sparse=self.problem.sparse,
            starts=self.starts,
            dtype=self.index.dtype,
        )

    def solve(self, mode, engine=None):
        """Return keys, a list of (row, neighbor, similarity), or scores, as ``mode`` says; by that engine."""
        problem, index, sources = self.problem, self.index, self.sources
        # Each stands for a process of its own instance.
        contexts = {host: replace(self._begun(source), **self.known, engine=engine) for host, source in sources.items()}
        cut = partial(schedule.cut, slots=1, max_tile_rows=problem.block_rows, exact=True)
        shares = [schedule.Share(host=one.host, slots=1, chunks=cut(one)) for one in index.shards]
        transfers = schedule.deal(shares)
        met = [pair for host in self.hosts for transfer in transfers[host] for pair in block_pairs(transfer)]

        def compare(function, pair):
            visitor = pair.visitor
            rows = None if visitor is None else portion(sources[visitor.host], visitor, index.dtype)
            return tasks.compare(function, contexts[pair.host], pair, rows).arrays

        if mode == "topk":
            return self._topk(met, compare)
        if mode == "threshold":
            least = least_score(problem.threshold)
            found = [compare(partial(tasks.threshold_arrays, least), pair) for pair in met]
            names = ("rows", "neighbors", "similarities")
            return [pair for arrays in found for pair in zip(*(arrays[name].tolist() for name in names), strict=True)]
        scores = np.full((index.rows, index.rows), np.nan, dtype=np.float32)
        for pair in met:
            tile = compare(partial(tasks.full_arrays, "float32"), pair)["scores"]
            fill(scores, pair.left.numbers(), pair.right.numbers(), tile)
            fill(scores.T, pair.left.numbers(), pair.right.numbers(), tile)
        return scores

    def _topk(self, met, compare):
        k, index = self.problem.k, self.index
        best = [[] for _ in range(index.rows)]

        def lower_bounds(chunk):
            known_keys = [sorted(best[row]) for row in chunk.numbers()]
            reached = [
                decode(np.array([keys[k - 1]], dtype=np.uint64))[0][0] if len(keys) >= k else -np.inf
                for keys in known_keys
            ]
            return np.array(reached, dtype=np.float32)

        def deal(pair):
            columns = lower_bounds(pair.right) if pair.left is not pair.right else np.empty(0, dtype=np.float32)
            return replace(pair, told=(lower_bounds(pair.left), columns))

        def take(pair, dealt):
            arrays = compare(partial(tasks.topk_arrays, k), dealt)
            offer(best, pair.left.numbers(), arrays["counts"], arrays["keys"])
            if "column_counts" in arrays:
                offer(best, pair.right.numbers(), arrays["column_counts"], arrays["column_keys"])

        in_turn(met, self.problem.at_once, deal, take)
        norms = np.empty(index.rows)
        for shard in index.shards:
            numbers = [index.number(shard, row) for row in range(shard.rows)]
            start = self.starts[shard.host]
            norms[numbers] = self.known["norms"][start : start + shard.rows]
        keys = np.full((index.rows, k), EMPTY_KEY)
        for row in np.flatnonzero(norms):
            # Fewer than k are wrong, and are said to be by the comparison.
            found = sorted(best[row])[:k]
            keys[row, : len(found)] = found
        return with_zero_rows(keys, norms, k, True)


def in_turn(items, at_once, deal, take):
    """Deal ``at_once`` items ahead of those whose result is taken."""
    running = deque()
    for item in items:
        running.append((item, deal(item)))
        if len(running) >= at_once:
            take(*running.popleft())
    while running:
        take(*running.popleft())


def fill(scores, rows, columns, found):
    scores[np.ix_(rows, columns)] = found


def tile_pairs(context, least, tile):
    arrays = threshold.threshold_tile(context, least, tile)
    rows = np.repeat(np.arange(tile.rows.start, tile.rows.stop), np.diff(arrays["offsets"]))
    return zip(rows.tolist(), arrays["neighbors"].tolist(), arrays["similarities"].tolist(), strict=True)


def with_zero_rows(keys, norms, k, same):
    zero = np.flatnonzero(norms == 0)
    keys[zero] = zero_row_keys(zero, k, same=same)
    return keys


def offer(best, numbers, counts, keys):
    ends = np.cumsum(counts)
    for number, end, count in zip(numbers, ends, counts, strict=True):
        best[number] += keys[end - count : end].tolist()
