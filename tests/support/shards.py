"""Matrices whose rows are spread over instances, without any cluster."""

import random

from raysm.workloads.blocks import LATER
from raysm.workloads.similarity.arithmetic.row_order import Run
from raysm.workloads.similarity.layouts.sharded.index import Shard
from raysm.workloads.similarity.layouts.sharded.schedule import Share, cut


def shares(rows, slots=None, chunk_rows=750):
    """Return the shares of instances algo-1, algo-2 …, of so many rows and slots each."""
    found, start = [], 0
    for number, (count, at_once) in enumerate(zip(rows, slots or [2] * len(rows), strict=True), start=1):
        shard = Shard(host=f"algo-{number}", runs=(Run(start, 0, count),) if count else (), bytes=0)
        found.append(Share(host=shard.host, slots=at_once, chunks=cut(shard, chunk_rows, origin=start)))
        start += count
    return found


class Store:
    """Parcels that are under way or being met, as Ray would hold them."""

    def __init__(self):
        self.sent = []

    def __call__(self, chunk):
        self.sent.append(chunk)
        return chunk


def drained(feed, seed=0, again=lambda pair: ()):
    """Take block_pairs as tasks would, finishing them in any order; return them, and the most remotes there were."""
    rng = random.Random(seed)
    running, done, here, away = [], [], 0, 0
    while True:
        pair = LATER if len(running) >= feed.in_flight else next(feed, None)
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
            feed.finished(finished, again(finished))
