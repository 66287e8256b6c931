import pytest

from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import LEAVING, WINDOW, PairScheduler, block_pairs
from raysm.workloads.similarity.layouts.sharded.schedule import deal, traffic
from tests.support.shards import Store, drained, shares

ROWS = [([9000] * 3, [2] * 3), ([4000, 9000, 0, 7000], [1, 4, 2, 2]), ([5000] * 6, [2] * 6), ([900], [3])]


@pytest.mark.parametrize(("rows", "slots"), ROWS)
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_is_computed_once_with_few_remote_chunks_at_a_time(rows, slots, seed):
    given = shares(rows, slots)
    transfers = deal(given)
    store = Store()
    feed = PairScheduler(transfers, {share.host: share.slots for share in given}, store)
    done, here, away = drained(feed, seed)
    expected = [pair for there in transfers.values() for transfer in there for pair in block_pairs(transfer)]
    assert sorted(map(str, done)) == sorted(map(str, expected))
    assert all((pair.inputs == ()) == (pair.remote is None) for pair in done)
    assert here <= WINDOW
    assert away <= LEAVING
    counted = traffic(transfers)
    assert dict(feed.sent) == {host: rows for host, rows in counted.sent.items() if rows}
    assert dict(feed.received) == {host: rows for host, rows in counted.received.items() if rows}
    assert len(store.sent) == sum(not transfer.at_home for there in transfers.values() for transfer in there)


def test_rows_that_nobody_needs_any_more_do_not_travel():
    given = shares([3000] * 3)
    store = Store()
    slots = {share.host: 2 for share in given}
    found, _, _ = drained(PairScheduler(deal(given), slots, store, recorded=lambda pair: True))
    assert len(found) == 78
    assert not store.sent


def test_an_overflowed_pair_is_computed_again_in_pieces_while_its_remote_chunk_stays():
    given = shares([3000] * 3)
    store = Store()
    transfers = deal(given)
    piece = TileBlock(RowBlock(0, 10), RowBlock(0, 10))
    overflowed = {str(transfer.chunk) for there in transfers.values() for transfer in there if not transfer.at_home}

    def again(pair):
        return [piece] if pair.remote and pair.piece is None and str(pair.remote) in overflowed else []

    done, _, _ = drained(PairScheduler(transfers, {share.host: 2 for share in given}, store), again=again)
    pieces = [pair for pair in done if pair.piece]
    assert len(pieces) == sum(pair.remote is not None and not pair.piece for pair in done) > 0
    assert all(pair.inputs for pair in pieces)
    assert len(store.sent) == len(set(store.sent)) == 12


def test_a_pair_says_who_else_has_to_be_there():
    transfers = deal(shares([300, 300, 300]))
    (coming,) = [transfer for transfer in transfers["algo-1"] if not transfer.at_home]
    (pair,) = block_pairs(coming)
    assert (pair.host, pair.needs) == ("algo-1", ("algo-2",))
