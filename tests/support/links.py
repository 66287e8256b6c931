"""Links and cores on a simulated clock: what a schedule of pairs makes of both, without any cluster."""

import random

from raysm.workloads.blocks import LATER

START_S = 0.5, 3.5
"""What an instance's first pair takes beside its comparing: its process imports, its engine is compiled."""

ASKING_S = 0.1, 0.5
"""Between the asking for a chunk and its first bytes."""


class Chunk:
    """Rows on their way."""

    def __init__(self, sender):
        self.sender, self.receiver, self.left, self.begins_s = sender, None, 1.0, 0.0


def asked(chunk):
    """Begin to bring a chunk's rows under way, as a ``PairScheduler`` has it done."""
    return Chunk(chunk.host)


def compared_in(feed, slots, *, chunk_s, pair_s, seed):
    """Return how long all pairs of a scheduler take.

    What a link sends at once shares it evenly. Instances do not keep in step: each begins when it is ready, and a pair
    takes half to one and a half times ``pair_s``.

    Args:
        feed: The scheduler, which has its chunks ``asked``.
        slots: Pairs that each instance compares at once.
        chunk_s: Seconds of a link for one chunk.
        pair_s: Seconds of a slot for one pair.
        seed: Of all chances.
    """
    rng = random.Random(seed)
    ready_s = {host: rng.uniform(*START_S) for host in sorted(slots)}
    now, waiting, running, coming = 0.0, [], [], []
    while True:
        while (pair := next(feed, None)) not in (None, LATER):
            waiting.append(pair)
            for chunk in pair.inputs:
                if chunk.receiver is None:
                    chunk.receiver, chunk.begins_s = pair.host, now + rng.uniform(*ASKING_S)
                    coming.append(chunk)
        for pair in list(waiting):
            at_once = sum(other.host == pair.host for _, other in running)
            if at_once < slots[pair.host] and not any(chunk.left for chunk in pair.inputs):
                waiting.remove(pair)
                running.append((now + pair_s * rng.uniform(0.5, 1.5) + ready_s.pop(pair.host, 0.0), pair))
        if not running and not coming:
            assert pair is None
            assert not waiting
            return now
        moving = [chunk for chunk in coming if chunk.begins_s <= now]
        rates = [1 / chunk_s / sum(other.sender == chunk.sender for other in moving) for chunk in moving]
        events = [now + chunk.left / rate for chunk, rate in zip(moving, rates, strict=True)]
        events += [chunk.begins_s for chunk in coming if chunk.begins_s > now] + [end_s for end_s, _ in running]
        step_s = min(events) - now
        now = min(events)
        for chunk, rate in zip(moving, rates, strict=True):
            # What is less than a byte of a chunk is rounding.
            chunk.left = 0.0 if chunk.left - rate * step_s < 1e-9 else chunk.left - rate * step_s
        coming = [chunk for chunk in coming if chunk.left]
        for ended in [entry for entry in running if entry[0] <= now]:
            running.remove(ended)
            feed.finished(ended[1])
