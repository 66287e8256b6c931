"""Pairs are handed out once, with few remote chunks at a time, whatever order they are finished in."""

import pytest

from raysm.workloads.row_blocks import RowBlock, TileBlock
from raysm.workloads.similarity.layouts.rotation import MAX_LEAVING, PairQueue, block_pairs, rotate
from tests.support.shards import Store, drained, sent_rows, shares

ROWS = [([9000] * 3, [2] * 3), ([4000, 9000, 0, 7000], [1, 4, 2, 2]), ([5000] * 6, [2] * 6), ([900], [3])]


def queue_of(given, slots, store=None, **more):
    transfers = rotate(given)
    return PairQueue(transfers, dict(zip(given, slots, strict=True)), store or Store(), **more), transfers


@pytest.mark.parametrize(("rows", "slots"), ROWS)
@pytest.mark.parametrize("window", [1, 2, 5])
def test_every_pair_is_computed_once_with_few_remote_chunks_at_a_time(rows, slots, window):
    store = Store()
    queue, transfers = queue_of(shares(rows), slots, store, window=window)
    done, here, away = drained(queue, window)
    expected = [pair for there in transfers.values() for transfer in there for pair in block_pairs(transfer)]
    assert sorted(map(str, done)) == sorted(map(str, expected))
    assert all((pair.inputs == ()) == (pair.remote is None) for pair in done)
    assert here <= window
    assert away <= MAX_LEAVING * window
    assert dict(queue.sent) == {host: rows for host, rows in sent_rows(transfers).items() if rows}
    assert len(store.sent) == sum(not transfer.at_home for there in transfers.values() for transfer in there)


def is_whole(pair):
    return pair.tile == TileBlock(pair.left.range, pair.right.range)


def test_a_pair_that_is_given_up_is_computed_in_pieces_while_its_remote_chunk_stays():
    store, piece = Store(), TileBlock(RowBlock(0, 10), RowBlock(0, 10))
    queue, _ = queue_of(shares([3000] * 3), [2] * 3, store)
    done, _, _ = drained(queue, again=lambda pair: [piece] if pair.remote and is_whole(pair) else [])
    pieces = [pair for pair in done if not is_whole(pair)]
    assert len(pieces) == sum(pair.remote is not None and is_whole(pair) for pair in done) > 0
    assert all(pair.inputs for pair in pieces)
    assert len(store.sent) == len(set(store.sent)) == 12
