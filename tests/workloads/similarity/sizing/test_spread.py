"""Rows that are spread over the instances are cut for the slots of all, into what their stores have room for."""

import random
from dataclasses import replace

import numpy as np
import pytest

from raysm.workloads.similarity.layouts.sharded.batches import BatchScheduler
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import block_pairs
from raysm.workloads.similarity.layouts.sharded.schedule import deal, traffic
from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.sizing.scaling import PART_S, total_s
from raysm.workloads.similarity.sizing.spread import BALANCED, LEAVING, WINDOW, Spread
from tests.support.scaling import rows_of, sizing_of, spread_of
from tests.support.shards import shares


def sizing_for(rows, instances, cores=8, **more):
    matrix = rows_of(rows)
    return sizing_of(matrix, instances, cores=cores, spread=spread_of(matrix, instances, cores), **more)


def tasks_of(sizing):
    """Return how many tasks there are, by the model."""
    return sizing._tiles(sizing.chosen_ranges)[0]


@pytest.mark.parametrize(("rows", "instances"), [(10**6, 4), (10**6, 16), (10**6, 64), (10**7, 64), (3 * 10**6, 63)])
def test_the_head_hands_out_as_many_pairs_as_the_model_counts(rows, instances):
    sizing = sizing_for(rows, instances)
    each = [rows * (at + 1) // instances - rows * at // instances for at in range(instances)]
    transfers = deal(shares(each, [8] * instances, sizing.chunk_rows(sizing.spread)[0]))
    pairs = sum(1 for there in transfers.values() for transfer in there for _ in block_pairs(transfer))
    assert pairs == tasks_of(sizing)


@pytest.mark.parametrize("instances", [2, 3, 4, 7, 8])
def test_what_travels_is_what_the_schedule_sends_the_busiest_instance(instances):
    found = traffic(deal(shares([8000] * instances, chunk_rows=1000)))
    expected = Spread.even(8000 * instances, 4.0, instances, slots=instances).coming_bytes / 4
    assert max(found.sent.values()) == max(found.received.values()) == expected


@pytest.mark.parametrize(("rows", "instances"), [(10**6, 8), (10**6, 64), (10**7, 64), (10**7, 128), (10**8, 512)])
def test_the_head_is_not_waited_for_where_every_slot_has_several_tasks(rows, instances):
    sizing = sizing_for(rows, instances)
    product = sizing._pairs * 768 * 5.5e-12 / sizing.slots
    assert tasks_of(sizing) * PART_S < 1.03 * product
    assert tasks_of(sizing) >= 4 * sizing.slots


@pytest.mark.parametrize(("rows", "instances"), [(10**6, 512), (10**7, 512), (3 * 10**6, 300)])
def test_of_hundreds_each_hands_out_its_own_pairs_in_as_many_batches_as_the_model_counts(rows, instances):
    sizing = sizing_for(rows, instances)
    spread, told = sizing.spread, sizing.batch_count(instances)
    size = sizing.chunk_rows(spread)[0]
    each = [rows * (at + 1) // instances - rows * at // instances for at in range(instances)]
    feed = BatchScheduler(deal(shares(each, [8] * instances, size)), most=spread.batch(size), room=spread.room(size))
    # Of opposites on the ring, half of them have one chunk less to compare.
    assert 0.9 * told < sum(len(waiting) for waiting in feed._waiting.values()) <= told
    costs = {term.name: term.seconds for term in sizing.expected(instances)}
    assert costs["dispatch"] == told * PART_S < tasks_of(sizing) * PART_S / 6
    assert costs["dealing"] < costs["dispatch"]


@pytest.mark.parametrize("instances", [1, 2, 3, 4, 8])
def test_the_head_hands_out_the_pairs_of_few_instances(instances):
    for rows in (10**5, 10**6, 10**7):
        assert sizing_for(rows, instances).batch_count(instances) == 0


def test_the_head_hands_out_the_pairs_of_a_result_of_its_own():
    assert sizing_for(10**7, 512).batch_count(0) == 0


@pytest.mark.parametrize("seed", range(50))
def test_the_chunks_of_two_batches_have_room(seed):
    rng = random.Random(seed)
    spread = drawn_spread(rng)
    rows, _ = spread.fitting(rng.randrange(1, 200_000), 100_000)
    assert 2 * spread.batch(rows) <= max(WINDOW, spread.room(rows))
    assert (1 + LEAVING) * spread.room(rows) * rows * spread.row_bytes <= spread.store_bytes / 2


def test_ten_million_rows_on_64_instances_take_no_longer_than_where_each_has_all():
    shared_out, whole = sizing_for(10**7, 64), sizing_of(rows_of(10**7), 64)
    assert total_s(shared_out.expected(64)) <= 1.01 * total_s(whole.expected(64))


def test_few_instances_have_chunks_enough_to_share_the_work_evenly():
    for instances in (2, 3, 4, 8):
        sizing = sizing_for(10**5, instances)
        spread = sizing.spread
        chunks = -(-spread.query_rows // sizing.chunk_rows(spread)[0])
        # An even number, for opposites to have a half each.
        assert chunks >= 4
        assert chunks % 2 == 0 or chunks * instances >= BALANCED


def test_chunks_have_the_size_that_is_asked_for():
    sizing = sizing_for(10**6, 64, block_rows=1000)
    assert 900 < sizing.chunk_rows(sizing.spread)[0] <= 1000


def test_what_may_not_be_joined_is_no_larger_than_one_tile():
    sizing = sizing_for(10**7, 64, limits=Threshold(np.float32(0.5)).limits)
    assert max(sizing.chunk_rows(sizing.spread)) <= sizing.max_tile_rows()


def test_queries_make_up_for_a_matrix_of_which_no_instance_has_much():
    matrix, queries = rows_of(10**6), rows_of(10**7)
    spread = replace(spread_of(matrix, 64), query_rows=10**7 // 64)
    sizing = sizing_of(matrix, 64, queries=queries, spread=spread)
    rows, columns = sizing.chunk_rows(spread)
    assert columns == spread.matrix_rows
    assert rows > columns
    assert 4 * sizing.slots <= tasks_of(sizing) < 100_000


def drawn_spread(rng):
    share = rng.randrange(1, 200_000)
    return Spread(
        instances=rng.choice([2, 3, 64, 512]),
        slots=rng.choice([1, 2, 8, 96]),
        query_rows=share,
        matrix_rows=share,
        row_bytes=rng.choice([40.0, 3072.0, 32768.0]),
        store_bytes=rng.choice([78e6, 1e9, 9.6e9]),
    )


@pytest.mark.parametrize("seed", range(50))
def test_all_chunks_that_are_there_at_once_take_half_of_the_smallest_store(seed):
    rng = random.Random(seed)
    spread = drawn_spread(rng)
    rows, _ = spread.fitting(rng.randrange(1, 200_000), 100_000)
    window = spread.window(rows)
    assert (1 + LEAVING) * window * rows * spread.row_bytes <= spread.store_bytes / 2
    # Each slot has a pair that is compared and one whose rows come.
    chunks = -(-spread.query_rows // rows)
    assert window >= min(2 * spread.slots, max(WINDOW, -(-2 * spread.slots // chunks)))


def test_a_store_of_unknown_size_has_room_as_a_large_one_has():
    unknown, large = (Spread.even(10**7, 3072.0, 512, 4096, **store) for store in ({}, {"store_bytes": 1e15}))
    assert unknown.window(2000) == large.window(2000) > WINDOW
    assert unknown.batch(2000) == large.batch(2000) > 1
    assert unknown.room(2000) > large.room(2000)


def test_of_what_lies_everywhere_no_store_bounds_the_chunks():
    spread = Spread(instances=3, slots=2, query_rows=1000, matrix_rows=10**6, row_bytes=0.0, store_bytes=1.0)
    assert spread.fitting(500, 10**6) == (500, 10**6)
    assert spread.window(500) == WINDOW
