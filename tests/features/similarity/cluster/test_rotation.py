"""What a task does with a pair of chunks, of which one came from another instance."""

import itertools
import random
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.engines import choice
from raysm.features.similarity.cluster.engines.cuda import CudaEngine
from raysm.features.similarity.cluster.layout import TileQueue
from raysm.features.similarity.cluster.rotation import (
    MAX_LEAVING,
    PairQueue,
    Side,
    block_pairs,
    order_query_transfers,
    order_transfers,
)
from raysm.features.similarity.cluster.shards import Shard, read_chunk, split_shard
from raysm.features.similarity.cluster.tasks import TileTask
from raysm.features.similarity.cluster.tiling import RowRun
from raysm.instance.work.blocks import LATER
from raysm.instance.work.row_blocks import RowBlock, TileBlock
from tests.support.comparing import wrong_keys, wrong_pairs
from tests.support.dense_rows import kinds_of_rows
from tests.support.problems import drawn
from tests.support.shards import Store, drained, sent_rows, shares
from tests.support.similarity import saved
from tests.support.solving import Sharded

KINDS = kinds_of_rows(rows=90)


def test_a_portion_is_pickled_without_the_rows_beside_it(tmp_path):
    source = saved(KINDS["float32"], tmp_path)
    some = read_chunk(source, SimpleNamespace(start=10, stop=30), np.dtype(np.float64))
    assert (some.rows, some.dtype) == (20, np.float64)
    np.testing.assert_array_equal(some.read(0, 20), KINDS["float32"][10:30].astype(np.float64))


def test_rows_that_went_away_while_the_job_ran_are_told_with_the_instance(tmp_path):
    source = saved(KINDS["float32"], tmp_path)
    with pytest.raises(InvalidInput, match="algo-3 .* 90 rows"):
        read_chunk(source, SimpleNamespace(start=80, stop=91, host="algo-3"), np.dtype(np.float32))


ROWS = [
    ([9000] * 3, [2] * 3),
    ([4000, 9000, 0, 7000], [1, 4, 2, 2]),
    ([5000] * 6, [2] * 6),
    ([900], [3]),
]


def queue_of(given, slots, store=None, **more):
    transfers = order_transfers(given)
    return PairQueue(
        transfers, dict(zip(given, slots, strict=True)), store or Store(), **more
    ), transfers


@pytest.mark.parametrize(("rows", "slots"), ROWS)
@pytest.mark.parametrize("window", [1, 2, 5])
def test_every_pair_is_computed_once_with_few_remote_chunks_at_a_time(rows, slots, window):
    store = Store()
    queue, transfers = queue_of(shares(rows), slots, store, window=window)
    done, here, away = drained(queue, window)
    expected = [
        pair for there in transfers.values() for transfer in there for pair in block_pairs(transfer)
    ]
    assert sorted(map(str, done)) == sorted(map(str, expected))
    assert all((pair.inputs == ()) == (pair.remote is None) for pair in done)
    assert here <= window
    assert away <= MAX_LEAVING * window
    assert dict(queue.sent) == {host: rows for host, rows in sent_rows(transfers).items() if rows}
    assert len(store.sent) == sum(
        not transfer.at_home for there in transfers.values() for transfer in there
    )


def is_whole(pair):
    return pair.tile == TileBlock(pair.left.range, pair.right.range)


def test_a_pair_that_is_given_up_is_computed_in_pieces_while_its_remote_chunk_stays():
    store, piece = Store(), TileBlock(RowBlock(2, 10), RowBlock(3, 10))
    queue, _ = queue_of(shares([3000] * 3), [2] * 3, store)
    done, _, _ = drained(
        queue, again=lambda pair: [piece] if pair.remote and is_whole(pair) else []
    )
    pieces = [pair for pair in done if not is_whole(pair)]
    assert len(pieces) == sum(pair.remote is not None and is_whole(pair) for pair in done) > 0
    assert all(pair.inputs for pair in pieces)
    for pair in pieces:
        above, beside = pair.left.range.start, pair.right.range.start
        assert pair.tile == TileBlock(
            RowBlock(above + 2, above + 10), RowBlock(beside + 3, beside + 10)
        )
    assert len(store.sent) == len(set(store.sent)) == 12


def test_the_pieces_of_a_tile_that_is_given_up_come_next_and_lie_within_it():
    tile, other = (TileBlock(RowBlock(20, 40), RowBlock(start, start + 30)) for start in (60, 90))
    queue = TileQueue(
        [TileTask(tile, True), TileTask(other, True)],
        {},
        SimpleNamespace(add_hint=lambda task: task),
    )
    queue.finish(
        next(queue), [TileBlock(RowBlock(0, 20), RowBlock(*cut)) for cut in ((0, 12), (12, 30))]
    )
    found = [next(queue) for _ in range(3)]
    assert [task.tile.columns for task in found] == [
        RowBlock(60, 72),
        RowBlock(72, 90),
        other.columns,
    ]
    assert [task.tile.rows for task in found] == [tile.rows] * 3
    # One that is computed may still be given up.
    assert next(queue) is LATER
    for task in found:
        queue.finish(task, ())
    assert list(queue) == []


HOSTS = ("algo-1", "algo-2", "algo-3")


def random_shares():
    rng = random.Random(5)
    return [[rng.randrange(0, 9000) for _ in range(count)] for count in (3, 4, 7)]


@pytest.mark.parametrize(
    "rows", [*random_shares(), [9000] * 3, [9000] * 4, [0, 500, 0], [10, 10], [0]]
)
def test_every_two_chunks_meet_once_where_one_of_them_lies(rows):
    given, met = shares(rows), Counter()
    for host, transfers in order_transfers(given).items():
        coming = [transfer.chunk for transfer in transfers if not transfer.at_home]
        assert len(coming) == len(set(coming))
        for transfer in transfers:
            for own in transfer.partners:
                assert own.host == host
                met[frozenset([transfer.chunk, own])] += 1
    chunks = [chunk for share in given.values() for chunk in share]
    assert met == Counter(
        frozenset(two) for two in itertools.combinations_with_replacement(chunks, 2)
    )


@pytest.mark.parametrize(("count", "each"), [(3, 8000), (5, 16000), (2, 6000), (4, 14000)])
def test_the_half_ring_sends_about_half_of_all_rows_to_each(count, each):
    transfers = order_transfers(shares([8000] * count, chunk_rows=1000))
    # Of an even ring, one of two opposites sends all of its rows, the other half of them.
    assert sum(sent_rows(transfers).values()) == each * count


def spread(moves, rows):
    return Side(moves=moves, shares=shares(rows), everywhere=False, bytes=float(sum(rows)))


def whole(moves, rows):
    chunks = {
        host: split_shard(Shard(host=host, runs=(RowRun(0, 0, rows),), bytes=0), 1000)
        for host in HOSTS
    }
    return Side(moves=moves, shares=chunks, everywhere=True)


CASES = {
    "both": (spread("queries", [700, 0, 2500]), spread("matrix", [3000, 2000, 4000]), 3200, 9000),
    "queries": (spread("queries", [700, 900, 2500]), whole("matrix", 5000), 4100, 5000),
    "matrix": (whole("queries", 1500), spread("matrix", [3000, 0, 4000]), 1500, 7000),
    "one instance each": (
        spread("queries", [700, 0, 0]),
        spread("matrix", [0, 0, 4000]),
        700,
        4000,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_query_is_compared_with_every_row_once_where_one_of_them_is(case):
    queries, matrix, asked, rows = CASES[case]
    transfers = order_query_transfers(queries, matrix)
    pairs = [
        pair for there in transfers.values() for transfer in there for pair in block_pairs(transfer)
    ]
    met = [
        (i, j)
        for pair in pairs
        for i in pair.left.numbers()[::50]
        for j in pair.right.numbers()[::50]
    ]
    assert len(met) == len(set(met))
    assert sum(pair.area for pair in pairs) == asked * rows
    assert all(
        pair.host in (pair.left.host, pair.right.host) and not pair.self_join for pair in pairs
    )
    # Nothing travels where one of the two lies whole everywhere.
    assert any(sent_rows(transfers).values()) == (case in ("both", "one instance each"))


SHARDED = [seed for seed in range(60) if (p := drawn(seed)).sharded and not p.sparse]
"""Problems whose rows lie on up to three instances, in shares of any size."""


@pytest.mark.parametrize("seed", SHARDED)
def test_gpus_find_in_sharded_rows_what_float64_finds(seed, tmp_path, monkeypatch):
    # A GPU of so little memory that it takes a chunk in panels; it computes on the CPU.
    monkeypatch.setattr(
        choice, "gpu_engine", lambda columns: CudaEngine("cpu", columns, free_bytes=1 << 17)
    )
    problem = drawn(seed)
    layout, expected = Sharded(problem, tmp_path, ["matrix"]), problem.scores()
    assert wrong_keys(layout.solve("topk", "cuda"), expected, True) == ""
    found = layout.solve("threshold", "cuda")
    assert wrong_pairs(found, problem.threshold, expected, True) == ""


def test_pairs_are_handed_out_to_as_many_gpus_as_each_instance_has():
    transfers = order_transfers(shares([3000, 6000]))
    slots = {"algo-1": 1, "algo-2": 4}
    queue = PairQueue(transfers, slots, Store(), options={"num_gpus": 1, "lasting": True})
    # Two pairs for each GPU, and the first pairs of two chunks that come.
    assert queue.options == {"num_gpus": 1, "lasting": True, "in_flight": 4 + 10}
