"""Matrices whose rows are spread over instances, without any cluster."""

from raysm.workloads.similarity.layouts.sharded.index import Run, Shard
from raysm.workloads.similarity.layouts.sharded.schedule import Share, cut


def shares(rows, slots=None, max_tile_rows=1000):
    """Return the shares of instances algo-1, algo-2 …, of so many rows and slots each."""
    found, start = [], 0
    for number, (count, at_once) in enumerate(zip(rows, slots or [2] * len(rows), strict=True), start=1):
        shard = Shard(host=f"algo-{number}", runs=(Run(start, 0, count),) if count else (), bytes=0)
        found.append(Share(host=shard.host, slots=at_once, chunks=cut(shard, slots=at_once, max_tile_rows=max_tile_rows)))
        start += count
    return found
