import pytest

from raysm.workloads.similarity.arithmetic.row_order import Run
from raysm.workloads.similarity.layouts.sharded.index import Shard
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import PairScheduler, block_pairs
from raysm.workloads.similarity.layouts.sharded.query_schedule import QueryOperand, deal_queries
from raysm.workloads.similarity.layouts.sharded.schedule import Share, cut, traffic
from tests.support.shards import Store, drained, shares

HOSTS = ("algo-1", "algo-2", "algo-3")


def spread(brings, rows, row_bytes=1.0, slots=None):
    return QueryOperand(brings=brings, shares=shares(rows, slots), everywhere=False, row_bytes=row_bytes)


def whole(brings, rows):
    runs = (Run(0, 0, rows),)
    chunks = {host: cut(Shard(host=host, runs=runs, bytes=0), 1000) for host in HOSTS}
    return QueryOperand(
        brings=brings, shares=[Share(host=host, slots=2, chunks=chunks[host]) for host in HOSTS], everywhere=True
    )


def pairs_of(transfers):
    return [pair for there in transfers.values() for transfer in there for pair in block_pairs(transfer)]


CASES = {
    "both": (spread("queries", [700, 0, 2500]), spread("matrix", [3000, 2000, 4000])),
    "queries": (spread("queries", [700, 900, 2500]), whole("matrix", 5000)),
    "matrix": (whole("queries", 1500), spread("matrix", [3000, 0, 4000])),
    "one instance each": (spread("queries", [700, 0, 0]), spread("matrix", [0, 0, 4000])),
}


@pytest.mark.parametrize("case", CASES)
def test_every_query_is_compared_with_every_row_once_where_one_of_them_is(case):
    queries, matrix = CASES[case]
    pairs = pairs_of(deal_queries(queries, matrix))
    cells = [(i, j) for pair in pairs for i in pair.left.numbers()[::50] for j in pair.right.numbers()[::50]]
    assert len(cells) == len(set(cells))
    assert sum(pair.area for pair in pairs) == queries.rows * matrix.rows
    assert all(pair.host in (pair.left.host, pair.right.host) and not pair.self_join for pair in pairs)


@pytest.mark.parametrize("case", ["queries", "matrix"])
def test_nothing_travels_where_one_of_the_two_lies_whole_everywhere(case):
    transfers = deal_queries(*CASES[case])
    assert not any(traffic(transfers).sent.values())


@pytest.mark.parametrize(("queries", "matrix", "moves"), [(1.0, 9.0, "queries"), (90.0, 1.0, "matrix")])
def test_of_two_that_are_shared_out_alike_the_smaller_one_travels(queries, matrix, moves):
    transfers = deal_queries(spread("queries", [1000] * 3, queries), spread("matrix", [1000] * 3, matrix))
    assert {one.brings for there in transfers.values() for one in there} == {moves}
    # Each instance sends all that it has to both of the others, and no row twice to one.
    assert traffic(transfers).sent == dict.fromkeys(HOSTS, 2000)


def test_what_is_shared_out_to_all_stays_where_the_other_lies_on_one_instance():
    transfers = deal_queries(spread("queries", [3000, 0, 0], 9.0), spread("matrix", [2000] * 3, 9.0))
    assert {one.brings for there in transfers.values() for one in there} == {"queries"}
    assert all(there for there in transfers.values())


def test_each_instance_begins_with_its_own_rows_and_goes_round_the_circle():
    transfers = deal_queries(spread("queries", [900] * 3), spread("matrix", [2000] * 3, 9.0))
    order = {host: list(dict.fromkeys(one.chunk.host for one in there)) for host, there in transfers.items()}
    assert order == {"algo-1": [*HOSTS], "algo-2": [*HOSTS[1:], HOSTS[0]], "algo-3": [HOSTS[2], *HOSTS[:2]]}


@pytest.mark.parametrize("seed", range(3))
def test_the_scheduler_hands_out_all_pairs(seed):
    transfers = deal_queries(*CASES["both"])
    done, _, _ = drained(PairScheduler(transfers, dict.fromkeys(HOSTS, 2), Store()), seed)
    assert sorted(map(str, done)) == sorted(map(str, pairs_of(transfers)))
