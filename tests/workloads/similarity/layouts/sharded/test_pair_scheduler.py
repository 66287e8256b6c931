from collections import Counter, deque
from statistics import mean

import pytest

from raysm.workloads.blocks import LATER, RowBlock, TileBlock
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import PairScheduler, block_pairs
from raysm.workloads.similarity.layouts.sharded.schedule import deal, traffic
from raysm.workloads.similarity.sizing.spread import AHEAD, LEAVING
from tests.support.links import asked, compared_in
from tests.support.shards import Store, drained, shares

ROWS = [([9000] * 3, [2] * 3), ([4000, 9000, 0, 7000], [1, 4, 2, 2]), ([5000] * 6, [2] * 6), ([900], [3])]


@pytest.mark.parametrize(("rows", "slots"), ROWS)
@pytest.mark.parametrize("window", [2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_is_computed_once_with_few_remote_chunks_at_a_time(rows, slots, seed, window):
    given = shares(rows, slots)
    transfers = deal(given)
    store = Store()
    feed = PairScheduler(transfers, {share.host: share.slots for share in given}, store, window=window)
    done, here, away = drained(feed, seed)
    expected = [pair for there in transfers.values() for transfer in there for pair in block_pairs(transfer)]
    assert sorted(map(str, done)) == sorted(map(str, expected))
    assert all((pair.inputs == ()) == (pair.remote is None) for pair in done)
    assert here <= window
    assert away <= LEAVING * window
    counted = traffic(transfers)
    assert dict(feed.sent) == {host: rows for host, rows in counted.sent.items() if rows}
    assert dict(feed.received) == {host: rows for host, rows in counted.received.items() if rows}
    assert len(store.sent) == sum(not transfer.at_home for there in transfers.values() for transfer in there)


def handed_out(feed):
    """Take as many pairs as may be unfinished at once."""
    found = []
    while (pair := next(feed, LATER)) is not LATER:
        found.append(pair)
    return found


@pytest.mark.parametrize("slots", [1, 2])
def test_the_first_remote_chunks_come_while_an_instances_own_rows_are_compared(slots):
    given = shares([6000] * 3)
    feed = PairScheduler(deal(given), {share.host: slots for share in given}, Store())
    found = handed_out(feed)
    for share in given:
        of_host = [pair for pair in found if pair.host == share.host]
        assert [pair.remote is None for pair in of_host] == [True] * 2 * slots + [False] * AHEAD
        assert len({pair.remote for pair in of_host if pair.remote}) == AHEAD
    assert len(found) <= feed.in_flight


def test_what_waits_for_its_rows_keeps_no_pair_out_that_has_them():
    given = shares([6000] * 3)
    feed = PairScheduler(deal(given), {share.host: 1 for share in given}, Store())
    unfinished = handed_out(feed)
    for _ in range(20):
        own = next(pair for pair in unfinished if pair.host == "algo-1" and pair.remote is None)
        unfinished.remove(own)
        feed.finished(own)
        unfinished += handed_out(feed)
        assert sum(pair.host == "algo-1" and pair.remote is None for pair in unfinished) == 2


# Where only one came ahead, and kept others out, links had nothing to send for whoever was behind: 1.13 to 1.21 times.
@pytest.mark.parametrize("instances", [3, 4, 5, 8])
def test_links_are_busy_though_instances_do_not_keep_in_step(instances):
    slots = {f"algo-{at}": 1 for at in range(1, instances + 1)}
    transfers = deal(shares([3000] * instances, [1] * instances))
    sent = Counter(transfer.chunk.host for there in transfers.values() for transfer in there if not transfer.at_home)
    took = mean(
        compared_in(PairScheduler(transfers, slots, asked, window=3), slots, chunk_s=2.5, pair_s=0.1, seed=seed)
        for seed in range(10)
    )
    assert took < 1.1 * 2.5 * max(sent.values())


def test_few_remote_chunks_at_a_time_come_ahead_of_their_turn():
    given = shares([3000] * 3)
    store = Store()
    feed = PairScheduler(deal(given), {share.host: 2 for share in given}, store, window=5)
    compared, unfinished = [], deque(handed_out(feed))
    while unfinished:
        compared.append(unfinished.popleft())
        feed.finished(compared[-1])
        unfinished += handed_out(feed)
        for share in given:
            begun = Counter(pair.remote for pair in (*compared, *unfinished) if pair.host == share.host and pair.remote)
            # Each of four chunks has four partners: one is handed out in turn, and of the next ones the first pair.
            incomplete = [pairs for pairs in begun.values() if pairs < 4]
            assert incomplete[1:] in ([], [1], [1] * AHEAD)
            assert incomplete or len(begun) == 4
    assert len(store.sent) == 12


def test_no_chunk_comes_before_one_that_has_no_room_yet():
    given = shares([3000] * 5, chunk_rows=3000)
    # Everybody begins with its own rows, the first two with those of the same other one.
    transfers = {host: list(there) for host, there in deal(given).items()}
    feed = PairScheduler(transfers, {share.host: 8 for share in given}, Store(), window=1)
    done, here, away = drained(feed, seed=1)
    assert (len(done), here) == (15, 1)
    assert away <= LEAVING


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
