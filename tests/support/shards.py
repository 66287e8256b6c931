"""Matrices whose rows are spread over instances, without any cluster."""

import random
from collections import Counter

from raysm.features.similarity.cluster.shards import Shard, split_shard
from raysm.features.similarity.cluster.tiling import RowRun
from raysm.instance.work.blocks import LATER


def shares(rows, chunk_rows=750):
    """Return the chunks of instances algo-1, algo-2 …, of so many rows each."""
    found, start = {}, 0
    for number, count in enumerate(rows, start=1):
        shard = Shard(
            host=f"algo-{number}", runs=(RowRun(start, 0, count),) if count else (), bytes=0
        )
        found[shard.host] = split_shard(shard, chunk_rows, origin=start)
        start += count
    return found


def sent_rows(transfers):
    there = [transfer for transfers in transfers.values() for transfer in transfers]
    sent = Counter()
    for transfer in there:
        sent[transfer.chunk.host] += 0 if transfer.at_home else transfer.chunk.rows
    return dict(sent)


class Store:
    """Chunks that are on their way or being compared, as Ray would hold them."""

    def __init__(self):
        self.sent = []

    def __call__(self, chunk):
        self.sent.append(chunk)
        return chunk


def drained(queue, seed=0, again=lambda pair: ()):
    """Take pairs as tasks would, finishing them in any order; return them, and the most remote chunks there were."""
    rng = random.Random(seed)
    running, done, here, away = [], [], 0, 0
    while True:
        pair = LATER if len(running) >= queue.in_flight else next(queue, None)
        if pair is None:
            assert not running
            return done, here, away
        if pair is not LATER:
            running.append(pair)
            coming = {(one.host, one.inputs[0]) for one in running if one.inputs}
            for host in {one.host for one in running}:
                here = max(here, sum(where == host for where, _ in coming))
                away = max(away, sum(chunk.host == host for _, chunk in coming))
        if pair is LATER or rng.random() < 0.4:
            finished = running.pop(rng.randrange(len(running)))
            done.append(finished)
            queue.finish(finished, again(finished))
