"""300 small problems of every kind, solved by the tasks' own functions and merged, without any cluster.

A problem follows from its seed alone: ``pytest -k "[17]"`` is the same one again. Tasks that run at once are told what
was known when they were dispatched; here, so many deals are made before the first of them is computed.
"""

from collections import Counter, deque
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse

from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity import dealing, full, threshold, topk
from raysm.workloads.similarity.context import Context, Place, Source
from raysm.workloads.similarity.keys import decode
from raysm.workloads.similarity.merging import Group
from raysm.workloads.similarity.parts import measured
from raysm.workloads.similarity.preparing import prepare_block, prepared
from raysm.workloads.similarity.sharded import schedule, tasks
from raysm.workloads.similarity.sharded.at_hand import ShardContext, portion
from raysm.workloads.similarity.sharded.feed import meetings
from raysm.workloads.similarity.sharded.index import join, report
from raysm.workloads.similarity.standing import Standing, zero_row_keys
from tests.support.reference import score_rows

PROBLEMS = 300

DTYPES = ("float16", "float32", "float64", "int8", "int32", "bool")

HOSTS = ("algo-1", "algo-2", "algo-3")


@dataclass(frozen=True)
class Problem:
    """What is asked, of which rows, and how it is dealt."""

    rows: np.ndarray
    queries: np.ndarray | None
    mode: str
    k: int
    least: np.float32
    block_rows: int
    at_once: int
    engine: str | None
    sparse: bool
    sharded: bool
    merged_tiles: int


def problem(seed):
    rng = np.random.default_rng(seed)
    count, columns = int(rng.integers(2, 50)), int(rng.choice([1, 2, 7, 8, 17, 64, 129, 260]))
    sparse = bool(rng.random() < 0.4)
    layout = rng.choice(["one", "sharded", "two"])
    # SciPy knows no sparse float16.
    dtype = str(rng.choice(DTYPES[1:] if sparse else DTYPES))
    rows = some_rows(rng, count, columns, dtype, sparse)
    queries = some_rows(rng, int(rng.integers(1, 30)), columns, dtype, sparse) if layout == "two" else None
    if queries is not None and rng.random() < 0.5:
        queries[: min(len(queries), count)] = rows[: min(len(queries), count)]
    exact = score_rows(rows, range(count))
    # Often exactly a score that occurs.
    least = np.float32(exact[tuple(rng.integers(count, size=2))] if rng.random() < 0.5 else rng.uniform(-0.3, 1))
    return Problem(
        rows=rows,
        queries=queries,
        mode=str(rng.choice(["topk", "topk", "topk", "threshold", "full"])),
        k=int(rng.integers(1, count if queries is None else count + 1)),
        least=np.clip(least, np.float32(-1), np.float32(1)),
        block_rows=int(rng.integers(1, count + 1)) if rng.random() < 0.7 else count,
        at_once=int(rng.integers(1, 5)),
        engine=[None, None, "float32", "NumPy"][rng.integers(4)],
        sparse=sparse,
        sharded=bool(layout == "sharded"),
        merged_tiles=int(rng.integers(1, 5)),
    )


def some_rows(rng, count, columns, dtype, sparse):
    """Rows with copies, opposites, zeros and near ties among them."""
    if dtype == "bool":
        rows = rng.random((count, columns)) < 0.4
    else:
        rows = rng.standard_normal((count, columns)) * 20
        if rng.random() < 0.2:
            rows = 100 + rows / 100
        if rng.random() < 0.1:
            rows[:, 0] *= 100
        if dtype in ("float64", "float32") and rng.random() < 0.2:
            rows *= np.exp2(rng.integers(-60, 60, (count, 1)))
        if dtype == "float64" and rng.random() < 0.2:
            rows *= np.exp2(rng.integers(-900, 900, (count, 1)))
        rows = np.clip(rows, -120, 120).astype(dtype) if dtype.startswith("int") else rows.astype(dtype)
    if sparse:
        rows = np.where(rng.random(rows.shape) < rng.choice([0.02, 0.2, 0.6]), rows, 0).astype(dtype)
    for _ in range(int(rng.integers(0, count))):
        source, target = rng.integers(count, size=2)
        rows[target] = rows[source] * np.array(0 if rng.random() < 0.2 else 1, dtype=dtype)
        if rng.random() < 0.2 and dtype != "bool":
            rows[target] = -rows[target]
        if dtype.startswith("float") and rng.random() < 0.5:
            place = rng.integers(columns)
            rows[target, place] = np.nextafter(rows[target, place], np.array(np.inf, dtype=dtype))
    return rows


def saved(rows, folder, name, sparse):
    folder.mkdir(parents=True, exist_ok=True)
    if not sparse:
        np.save(folder / f"{name}.npy", rows)
        return
    matrix = scipy.sparse.csr_matrix(rows)
    # In any order within a row, as CSR allows.
    for begin, end in zip(matrix.indptr, matrix.indptr[1:], strict=False):
        matrix.indices[begin:end] = matrix.indices[begin:end][::-1].copy()
        matrix.data[begin:end] = matrix.data[begin:end][::-1].copy()
    scipy.sparse.save_npz(folder / f"{name}.npz", matrix, compressed=False)


def begun(source, sparse, **fields):
    nothing = np.empty(0, dtype=np.int16)
    return Context(source=source, norms=np.empty(0), exponents=nothing, sparse=sparse, **fields)


def one_context(rows, folder, name, asked):
    saved(rows, folder / name, "part", asked.sparse)
    source = Source(channel=name, place=Place(folder / name, folder / f"{name}-scratch", HOSTS[0]))
    context = begun(source, asked.sparse, rows=rows.shape[0], columns=rows.shape[1], dtype=rows.dtype)
    cuts = [RowBlock(at, min(at + asked.block_rows, len(rows))) for at in range(0, len(rows), asked.block_rows)]
    parts = [(cut, measured(prepare_block, context, cut)) for cut in cuts]
    return replace(context, **prepared(context, parts))


def expected_scores(asked):
    """Return scores[seekers, rows] of float64."""
    if asked.queries is None:
        return score_rows(asked.rows, range(len(asked.rows)))
    together = np.concatenate([asked.queries, asked.rows])
    return score_rows(together, range(len(asked.queries)))[:, len(asked.queries) :]


def neighbors_of(scores, k, same):
    found = []
    for i, row in enumerate(scores):
        order = np.lexsort((np.arange(len(row)), -row.astype(np.float64)))
        found.append([j for j in order if not (same and i == j)][:k])
    return np.array(found)


def in_turn(items, at_once, deal, take):
    """Deal ``at_once`` items ahead of those whose result is taken."""
    running = deque()
    for item in items:
        running.append((item, deal(item)))
        if len(running) >= at_once:
            take(*running.popleft())
    while running:
        take(*running.popleft())


def solved(asked, folder):
    """Solve it as the tasks of replicated matrices do; return keys, pairs or scores."""
    context = one_context(asked.rows, folder, "matrix", asked)
    if asked.queries is not None:
        context = replace(context, queries=one_context(asked.queries, folder, "queries", asked))
    context = replace(context, engine=asked.engine)
    seekers, same = context.seekers.rows, context.same
    if same:
        tiles = list(dealing.triangle(context.rows, asked.block_rows))
    else:
        tiles = list(dealing.rectangle(seekers, context.rows, min(seekers, asked.block_rows), asked.block_rows))
    if asked.mode == "topk":
        standing = Standing(folder, seekers, asked.k)

        def deal(tile):
            both = same and tile.rows != tile.columns
            columns = standing.floors[tile.columns.start : tile.columns.stop] if both else standing.floors[:0]
            return topk.Deal(tile, standing.floors[tile.rows.start : tile.rows.stop].copy(), columns.copy())

        def computed(dealt):
            if not same or asked.merged_tiles == 1:
                return topk.topk_tile(context, asked.k, dealt)
            group = Group(asked.k, dealt)

            def take_tile(tile, dealt):
                group.take(tile, topk.topk_tile(context, asked.k, dealt))

            in_turn(dealing.cut(dealt.tile, asked.block_rows), asked.at_once, group.deal, take_tile)
            return group.arrays()

        def take(tile, dealt):
            arrays = computed(dealt)
            standing.merge(tile.rows, arrays["counts"], arrays["keys"])
            if "column_counts" in arrays:
                standing.merge(tile.columns, arrays["column_counts"], arrays["column_keys"])

        groups = dealing.triangle(context.rows, asked.block_rows * asked.merged_tiles) if same else tiles
        in_turn(groups, asked.at_once, deal, take)
        keys = standing.read(0, seekers)
        standing.close()
        return with_zero_rows(keys, context.seekers.norms, asked.k, same)
    if asked.mode == "threshold":
        return [pair for tile in tiles for pair in tile_pairs(context, asked.least, tile)]
    scores = np.full((seekers, context.rows), np.nan, dtype=np.float32)
    for tile in tiles:
        found = full.full_tile(context, "float32", tile)
        fill(
            scores, np.arange(tile.rows.start, tile.rows.stop), np.arange(tile.columns.start, tile.columns.stop), found
        )
        if same:
            fill(
                scores.T,
                np.arange(tile.rows.start, tile.rows.stop),
                np.arange(tile.columns.start, tile.columns.stop),
                found,
            )
    return scores


def fill(scores, rows, columns, found):
    scores[np.ix_(rows, columns)] = found


def tile_pairs(context, least, tile):
    arrays = threshold.threshold_tile(context, least, tile)
    rows = np.repeat(np.arange(tile.rows.start, tile.rows.stop), np.diff(arrays["offsets"]))
    return zip(rows.tolist(), arrays["neighbors"].tolist(), arrays["similarities"], strict=True)


def with_zero_rows(keys, norms, k, same):
    zero = np.flatnonzero(norms == 0)
    keys[zero] = zero_row_keys(zero, k, same=same)
    return keys


def solved_in_shards(asked, folder, seed):
    """Solve it as the tasks of three instances do, of which each has some of the files."""
    rng = np.random.default_rng(seed)
    edges = np.unique([0, *rng.integers(0, len(asked.rows), 4), len(asked.rows)]).tolist()
    sources = {}
    for at, (start, stop) in enumerate(zip(edges, edges[1:], strict=False)):
        host = HOSTS[at % rng.integers(1, 4)]
        saved(asked.rows[start:stop], folder / host, f"part-{at}", asked.sparse)
        sources[host] = Source(channel="matrix", place=Place(folder / host, folder / f"{host}-scratch", host))
    hosts = list(sources)
    index = join([report(sources[host]) for host in hosts], hosts, "matrix")
    starts = {}
    for shard in index.shards:
        starts[shard.host] = sum(other.rows for other in index.shards if other.host in starts)
    contexts = {
        host: ShardContext(
            source=source,
            rows=index.rows,
            columns=index.columns,
            norms=np.empty(0),
            exponents=np.empty(0, dtype=np.int16),
            sparse=asked.sparse,
            starts=starts,
            dtype=index.dtype,
        )
        for host, source in sources.items()
    }
    parts = []
    for shard in index.shards:
        block = RowBlock(starts[shard.host], starts[shard.host] + shard.rows)
        parts.append((block, measured(prepare_block, contexts[shard.host], block)))
    known = prepared(contexts[hosts[0]], parts)
    # Each stands for a process of its own instance.
    contexts = {host: replace(one, **known, engine=asked.engine) for host, one in contexts.items()}
    cut = partial(schedule.cut, slots=1, most_rows=asked.block_rows, exact=True)
    shares = [schedule.Share(host=one.host, slots=1, parcels=cut(one)) for one in index.shards]
    visits = schedule.deal(shares)
    met = [meeting for host in hosts for visit in visits[host] for meeting in meetings(visit)]

    def compare(function, meeting):
        visitor = meeting.visitor
        rows = None if visitor is None else portion(sources[visitor.host], visitor, index.dtype)
        return tasks.compare(function, contexts[meeting.host], meeting, rows).arrays

    if asked.mode == "topk":
        best = [[] for _ in asked.rows]

        def floors(parcel):
            known_keys = [sorted(best[row]) for row in parcel.numbers()]
            reached = [
                decode(np.array([keys[asked.k - 1]], dtype=np.uint64))[0][0] if len(keys) >= asked.k else -np.inf
                for keys in known_keys
            ]
            return np.array(reached, dtype=np.float32)

        def deal(meeting):
            columns = floors(meeting.right) if meeting.left is not meeting.right else np.empty(0, dtype=np.float32)
            return replace(meeting, told=(floors(meeting.left), columns))

        def take(meeting, dealt):
            arrays = compare(partial(tasks.topk_arrays, asked.k), dealt)
            offer(best, meeting.left.numbers(), arrays["counts"], arrays["keys"])
            if "column_counts" in arrays:
                offer(best, meeting.right.numbers(), arrays["column_counts"], arrays["column_keys"])

        in_turn(met, asked.at_once, deal, take)
        norms = np.empty(index.rows)
        for shard in index.shards:
            numbers = [index.number(shard, row) for row in range(shard.rows)]
            norms[numbers] = known["norms"][starts[shard.host] : starts[shard.host] + shard.rows]
        keys = np.full((index.rows, asked.k), np.uint64(2**64 - 1))
        for row in np.flatnonzero(norms):
            keys[row] = sorted(best[row])[: asked.k]
        return with_zero_rows(keys, norms, asked.k, True)
    if asked.mode == "threshold":
        found = [compare(partial(tasks.threshold_arrays, asked.least), meeting) for meeting in met]
        names = ("rows", "neighbors", "similarities")
        return [pair for arrays in found for pair in zip(*(arrays[name].tolist() for name in names), strict=True)]
    scores = np.full((index.rows, index.rows), np.nan, dtype=np.float32)
    for meeting in met:
        tile = compare(partial(tasks.full_arrays, "float32"), meeting)["scores"]
        fill(scores, meeting.left.numbers(), meeting.right.numbers(), tile)
        fill(scores.T, meeting.left.numbers(), meeting.right.numbers(), tile)
    return scores


def offer(best, numbers, counts, keys):
    ends = np.cumsum(counts)
    for number, end, count in zip(numbers, ends, counts, strict=True):
        best[number] += keys[end - count : end].tolist()


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_the_answer_is_that_of_float64(seed, tmp_path):
    asked = problem(seed)
    found = solved_in_shards(asked, tmp_path, seed) if asked.sharded else solved(asked, tmp_path)
    scores = expected_scores(asked)
    same = asked.queries is None
    if asked.mode == "topk":
        expected = neighbors_of(scores, asked.k, same)
        near, indices = decode(found)
        assert np.array_equal(indices, expected)
        assert np.array_equal(near, np.take_along_axis(scores, expected, axis=1))
    elif asked.mode == "threshold":
        rows, columns = np.nonzero(scores >= asked.least)
        kept = rows < columns if same else np.full(len(rows), True)
        expected = zip(rows[kept].tolist(), columns[kept].tolist(), scores[rows[kept], columns[kept]], strict=True)
        assert sorted(found) == sorted(expected)
    else:
        assert np.array_equal(found, scores)


def test_the_problems_are_of_every_kind():
    asked = [problem(seed) for seed in range(PROBLEMS)]
    kinds = Counter((one.mode, one.sparse, one.sharded, one.queries is not None) for one in asked)
    assert len(kinds) == 3 * 2 * 3
    assert {one.rows.dtype.name for one in asked} == set(DTYPES)
    assert {one.at_once for one in asked} == {1, 2, 3, 4}
    assert {one.merged_tiles for one in asked} == {1, 2, 3, 4}
    assert sum((~one.rows.any(axis=1)).any() for one in asked) > 50
