"""Every pair of rows meets once, at an instance that has one of the two, whichever channels are spread."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from raysm.workloads.similarity.arithmetic.row_order import RowOrder
from raysm.workloads.similarity.layouts.sharded.layout import Sharded
from tests.support.shards import shares

SIZING = SimpleNamespace(chunk_rows=lambda spread: (10, 10), range_count=lambda record: 0, batch_count=lambda ranges: 0)
CONTEXT = SimpleNamespace(matrix=SimpleNamespace(dtype=np.dtype(np.float32)))


class Collected:
    recorded = None

    def done(self, task):
        return False

    def hint(self, task):
        return "hint"


class Rows:
    """The rows of a channel on three instances, as a layout asks for them."""

    row_bytes = 4.0

    def __init__(self, counts, channel="matrix"):
        self.counts, self.everywhere = counts, False
        self.source = SimpleNamespace(channel=channel)
        self.slots = {f"algo-{number}": 2 for number in range(1, len(counts) + 1)}
        self.order = RowOrder.identity(sum(counts))
        self.described = SimpleNamespace(rows=sum(counts))
        self.largest_share, self.store_bytes = max(counts), 1200.0

    def shares(self, slots, chunk_rows):
        return shares(self.counts, list(slots.values()), chunk_rows)

    def sent_bytes(self, sent_rows):
        return {host: 4 * rows for host, rows in sent_rows.items()}


def dispatch_of(rows, queries=None):
    run = SimpleNamespace(context=CONTEXT)
    return Sharded(rows, queries).cut(run, None, SIZING, None)


def pairs_of(task):
    tile = task.tile
    every = product(range(tile.rows.start, tile.rows.stop), range(tile.columns.start, tile.columns.stop))
    if task.tile.rows == task.tile.columns and task.self_join:
        return [pair for pair in every if pair[0] <= pair[1]]
    return list(every)


@pytest.mark.parametrize("counts", [(25, 14, 3), (40, 0, 2), (5, 5, 5)])
def test_of_a_self_join_each_unordered_pair_meets_once(counts):
    tasks = dispatch_of(Rows(counts)).tasks
    met = [frozenset(pair) for task in tasks for pair in pairs_of(task)]
    assert len(met) == len(set(met)) == sum(counts) * (sum(counts) + 1) // 2
    assert all(task.host in (task.left.host, task.right.host) for task in tasks)


def test_each_query_meets_each_row_once():
    tasks = dispatch_of(Rows((25, 14, 3)), Rows((6, 0, 9), "queries")).tasks
    met = [pair for task in tasks for pair in pairs_of(task)]
    assert len(met) == len(set(met)) == 42 * 15
    assert not any(task.self_join for task in tasks)


def test_the_rows_that_look_for_neighbors_are_the_queries_where_there_are_some():
    rows, queries = Rows((25, 14, 3)), Rows((6, 0, 9), "queries")
    assert dispatch_of(rows, queries).row_order is queries.order
    assert dispatch_of(rows).row_order is rows.order
    assert Sharded(rows, queries).slots == {"algo-1": 2, "algo-2": 2, "algo-3": 2}


def test_nothing_is_sent_before_a_pair_is_asked_for_and_there_is_room_for_some_at_a_time():
    dispatch = dispatch_of(Rows((25, 14, 3)))
    queue = dispatch.queue(Collected())
    assert dispatch.options(queue)["in_flight"] >= 1
    assert sum(dispatch.sent_bytes(queue).values()) == 0


def test_rows_on_one_instance_alone_are_never_sent():
    dispatch = dispatch_of(Rows((30,)))
    assert all(task.remote is None and task.needs == () for task in dispatch.tasks)
    task = next(dispatch.queue(Collected()))
    assert (task.host, task.hint, task.inputs) == ("algo-1", "hint", ())


def test_what_the_costs_follow_from_are_the_largest_shares_and_what_comes_to_an_instance():
    rows, queries = Rows((25, 14, 3)), Rows((6, 0, 9), "queries")
    own, both = Sharded(rows, None).spread, Sharded(rows, queries).spread
    assert (own.query_rows, own.matrix_rows, both.query_rows, both.matrix_rows) == (25, 25, 9, 25)
    assert (own.instances, own.slots, own.row_bytes, own.store_bytes) == (3, 2, 4.0, 1200.0)
    # Two of the three instances are others: half of what they have comes; of two channels all of the smaller one.
    assert own.coming_bytes == pytest.approx(42 * 4.0 / 3)
    assert both.coming_bytes == pytest.approx(15 * 4.0 * 2 / 3)


def test_of_rows_that_meet_what_every_instance_has_none_travel():
    everywhere = Rows((30, 30, 30))
    everywhere.row_bytes = 0.0
    spread = Sharded(everywhere, Rows((6, 0, 9), "queries")).spread
    assert (spread.coming_bytes, spread.row_bytes) == (0, 0)
