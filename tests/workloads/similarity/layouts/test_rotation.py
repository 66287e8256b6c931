"""Every two chunks meet once, at an instance that has one of them, whichever channels are spread."""

import itertools
import random
from collections import Counter

import pytest

from raysm.workloads.similarity.arithmetic.tiling import RowRun
from raysm.workloads.similarity.layouts.rotation import Side, block_pairs, cut, rotate, rotate_queries
from raysm.workloads.similarity.layouts.shards import Shard
from tests.support.shards import sent_rows, shares

HOSTS = ("algo-1", "algo-2", "algo-3")


def random_shares():
    rng = random.Random(5)
    return [[rng.randrange(0, 9000) for _ in range(count)] for count in (3, 4, 7)]


@pytest.mark.parametrize("rows", [*random_shares(), [9000] * 3, [9000] * 4, [0, 500, 0], [10, 10], [0]])
def test_every_two_chunks_meet_once_where_one_of_them_lies(rows):
    given, met = shares(rows), Counter()
    for host, transfers in rotate(given).items():
        coming = [transfer.chunk for transfer in transfers if not transfer.at_home]
        assert len(coming) == len(set(coming))
        for transfer in transfers:
            for own in transfer.partners:
                assert own.host == host
                met[frozenset([transfer.chunk, own])] += 1
    chunks = [chunk for share in given.values() for chunk in share]
    assert met == Counter(frozenset(two) for two in itertools.combinations_with_replacement(chunks, 2))


@pytest.mark.parametrize(("count", "each"), [(3, 8000), (5, 16000), (2, 6000), (4, 14000)])
def test_the_half_ring_sends_about_half_of_all_rows_to_each(count, each):
    transfers = rotate(shares([8000] * count, chunk_rows=1000))
    # Of an even ring, one of two opposites sends all of its rows, the other half of them.
    assert sum(sent_rows(transfers).values()) == each * count


def spread(brings, rows):
    return Side(brings=brings, shares=shares(rows), everywhere=False, bytes=float(sum(rows)))


def whole(brings, rows):
    chunks = {host: cut(Shard(host=host, runs=(RowRun(0, 0, rows),), bytes=0), 1000) for host in HOSTS}
    return Side(brings=brings, shares=chunks, everywhere=True)


CASES = {
    "both": (spread("queries", [700, 0, 2500]), spread("matrix", [3000, 2000, 4000]), 3200, 9000),
    "queries": (spread("queries", [700, 900, 2500]), whole("matrix", 5000), 4100, 5000),
    "matrix": (whole("queries", 1500), spread("matrix", [3000, 0, 4000]), 1500, 7000),
    "one instance each": (spread("queries", [700, 0, 0]), spread("matrix", [0, 0, 4000]), 700, 4000),
}


@pytest.mark.parametrize("case", CASES)
def test_every_query_is_compared_with_every_row_once_where_one_of_them_is(case):
    queries, matrix, asked, rows = CASES[case]
    transfers = rotate_queries(queries, matrix)
    pairs = [pair for there in transfers.values() for transfer in there for pair in block_pairs(transfer)]
    met = [(i, j) for pair in pairs for i in pair.left.numbers()[::50] for j in pair.right.numbers()[::50]]
    assert len(met) == len(set(met))
    assert sum(pair.area for pair in pairs) == asked * rows
    assert all(pair.host in (pair.left.host, pair.right.host) and not pair.self_join for pair in pairs)
    # Nothing travels where one of the two lies whole everywhere.
    assert any(sent_rows(transfers).values()) == (case in ("both", "one instance each"))
