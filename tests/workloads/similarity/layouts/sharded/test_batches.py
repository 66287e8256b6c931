"""Instances are told batches of transfers, and hand out the pairs themselves: each once, with few chunks under way."""

import random
from collections import Counter
from dataclasses import replace

import pytest
import ray

from raysm.errors import InvalidRequest
from raysm.workloads.blocks import LATER, RowBlock, TileBlock
from raysm.workloads.similarity.layouts.sharded.batches import BatchScheduler, TransferBatch, compare_batch
from raysm.workloads.similarity.layouts.sharded.pair_scheduler import block_pairs
from raysm.workloads.similarity.layouts.sharded.schedule import deal, traffic
from raysm.workloads.similarity.sizing.spread import LEAVING
from raysm.workloads.similarity.tasks.parts import Part
from tests.support.shards import shares

ROWS = [[9000] * 3, [4000, 9000, 0, 7000], [5000] * 6, [900]]


def pairs_of(transfers):
    return [str(pair) for transfer in transfers for pair in block_pairs(transfer)]


def told(feed, seed=0):
    """Take batches as instances would, ending them in any order; yield each with all that are unfinished then."""
    rng = random.Random(seed)
    running = []
    while True:
        batch = LATER if len(running) >= feed.in_flight else next(feed, None)
        if batch is None:
            return
        if batch is not LATER:
            running.append(batch)
            yield batch, list(running)
        if batch is LATER or rng.random() < 0.4:
            feed.ended(running.pop(rng.randrange(len(running))))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("most", "room"), [(1, 2), (3, 6), (100, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_is_in_one_batch_and_few_chunks_are_under_way(rows, most, room, seed):
    transfers = deal(shares(rows))
    feed = BatchScheduler(transfers, most=most, room=room)
    found = []
    for batch, unfinished in told(feed, seed):
        found += pairs_of(batch.transfers)
        assert len(batch.transfers) <= most
        assert max(Counter(one.host for one in unfinished).values()) <= 2
        away = Counter(chunk.host for one in unfinished for chunk in one.chunks)
        assert max(away.values(), default=0) <= max(LEAVING * room, most)
        assert batch.needs == tuple(dict.fromkeys(chunk.host for chunk in batch.chunks))
    assert sorted(found) == sorted(pairs_of(transfer for there in transfers.values() for transfer in there))
    assert dict(feed.sent) == {host: sent for host, sent in traffic(transfers).sent.items() if sent}


def test_what_is_recorded_is_in_no_batch_and_does_not_travel():
    transfers = deal(shares([3000] * 3))
    every = sorted(pairs_of(transfer for there in transfers.values() for transfer in there))
    done = set(every[::2])
    feed = BatchScheduler(transfers, most=3, room=6, recorded=lambda pair: str(pair) in done)
    left = [name for batch, _ in told(feed) for name in pairs_of(batch.transfers)]
    assert sorted(left) == sorted(set(every) - done)
    nothing = BatchScheduler(transfers, most=3, room=6, recorded=lambda pair: True)
    assert (list(told(nothing)), sum(nothing.sent.values())) == ([], 0)


def on_algo_1(count):
    """A batch of algo-1's own chunks, as the one instance of ``ray_here`` can compare them."""
    (there,) = deal(shares([count * 750])).values()
    return TransferBatch("algo-1", tuple(there))


def name_of(pair, rows=None):
    """Stand in for a task: hand back what was asked, and give up large ones."""
    if "rows 0 to 749 with rows 750" in str(pair) and pair.piece is None:
        return Part(arrays={"given up": 1}, peaks={}, seconds=0.0)
    return Part(arrays={"rows": rows}, peaks={}, seconds=1.0)


def pieces_of(pair, arrays):
    if "given up" not in arrays:
        return ()
    return [TileBlock(RowBlock(0, 400), RowBlock(0, 750)), TileBlock(RowBlock(400, 750), RowBlock(0, 750))]


def test_an_instance_hands_out_the_pairs_of_a_batch_and_does_given_up_ones_in_pieces(ray_here):
    batch = on_algo_1(3)
    done = compare_batch(ray.put(name_of), pieces_of, ray.put, {"algo-1": 2}, batch)
    names = [str(pair) for pair, _ in done]
    whole = [name for name in pairs_of(batch.transfers) if name != "rows 0 to 749 with rows 750 to 1499"]
    assert sorted(name for name in names if ": " not in name) == sorted(whole)
    assert len([name for name in names if ": " in name]) == len(names) - len(whole) == 2
    assert sum(pair.area for pair, _ in done) == 2250**2 / 2


def test_a_pair_of_a_batch_has_the_rows_that_came_and_keeps_none_of_them(ray_here):
    # The chunk is told to be another's, so that it comes.
    (transfer, *_) = on_algo_1(1).transfers
    foreign = replace(transfer.chunk, host="algo-2", origin=750)
    batch = TransferBatch("algo-1", (replace(transfer, chunk=foreign),))

    def held(pair, rows):
        return Part(arrays={"rows": rows}, peaks={}, seconds=0.0)

    ((pair, part),) = compare_batch(
        ray.put(held), pieces_of, lambda chunk: ray.put(f"rows of {chunk.host}"), {"algo-1": 1}, batch
    )
    assert part.arrays == {"rows": "rows of algo-2"}
    assert (pair.inputs, pair.hint) == ((), None)


def test_what_a_pair_cannot_do_is_said_as_it_was_said(ray_here):
    def refused(pair):
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest, match="^no$"):
        compare_batch(ray.put(refused), pieces_of, ray.put, {"algo-1": 1}, on_algo_1(1))
