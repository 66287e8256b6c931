"""Where to cut a row of blocks into stages so that the dearest stage is as cheap as can be: arithmetic only."""

from collections.abc import Sequence
from itertools import accumulate

from raysm.errors import InvalidRequest

__all__ = ["balance_stages"]


def balance_stages(costs: Sequence[float], stages: int) -> list[int]:
    """Cut blocks into consecutive stages of at least one block each.

    Dynamic programming over (stages so far, blocks so far), O(stages x blocks^2): the classic linear partition.

    Args:
        costs: Of each block, in order; at least 0, in any unit.
        stages: How many; 1 or more.

    Returns:
        Index of the first block of each stage; the cost of the dearest stage is the least possible.

    Raises:
        InvalidRequest: There are fewer blocks than stages.
    """
    count = len(costs)
    if count < stages:
        raise InvalidRequest(
            f"{stages} stages need at least as many blocks, but the model has {count}; lower pipeline or "
            "stages_per_worker, or name smaller blocks"
        )
    until = [0.0, *accumulate(costs)]
    # least[i]: cost of the dearest stage when the first i blocks are cut into the stages so far.
    least = until[:]
    cuts: list[list[int]] = []
    for stage in range(2, stages + 1):
        best, at = [float("inf")] * (count + 1), [0] * (count + 1)
        for stop in range(stage, count + 1):
            # From stage - 1 on: each of the stages before needs a block of its own.
            for start in range(stage - 1, stop):
                cost = max(least[start], until[stop] - until[start])
                if cost < best[stop]:
                    best[stop], at[stop] = cost, start
        least = best
        cuts.append(at)
    starts, stop = [], count
    for at in reversed(cuts):
        stop = at[stop]
        starts.append(stop)
    return [0, *reversed(starts)]
