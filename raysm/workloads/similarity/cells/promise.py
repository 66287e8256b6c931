"""What a recall promises, and how many cells keep it: arithmetic of a sample whose true neighbors are known.

What flows in is, of each true neighbor of each sampled row, at which place its cell stands among those nearest to the
row; what flows out is how many cells have to be looked into. The search in them is exact, so a neighbor is found if and
only if its cell is looked into: nothing has to be tried.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysm.errors import InvalidInput

__all__ = ["Measured", "check_kept", "choose_probes", "measured_recall", "sample_size"]

Z = 1.96
"""Of the normal distribution: an interval holds 95 %."""

MISSES = 16
"""Rows enough that so many of them, were each a hit or a miss as a whole, would miss: then a sample tells a recall from
the next worse one."""

LEAST_SAMPLE, MOST_SAMPLE = 1024, 1 << 14

MOST_PAIRS = 0.5
"""Of all pairs; the exact one computes each unordered pair once, and makes rows ready less often."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A recall, as a sample has it."""

    recall: float
    low: float
    """Where the interval of 95 % begins."""
    high: float
    """Where it ends."""
    rows: int
    """Of the sample."""

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.recall:.4f} ({self.low:.4f} to {self.high:.4f}, 95 %, of {self.rows} rows)"


def sample_size(recall: float, rows: int) -> int:
    """Return how many rows choose the number of cells, and how many others measure the recall then."""
    # Half of few rows at most: as many others have to measure what the first ones chose.
    enough = math.ceil(MISSES / (1 - recall))
    return min(max(LEAST_SAMPLE, min(enough, MOST_SAMPLE)), rows // 2)


def measured_recall(recalls: NDArray[np.float64]) -> Measured:
    """Return the mean of recalls[rows], each row's own, with Wilson's interval.

    That one is of hits and misses. A number between 0 and 1 of the same mean varies no more than those do, so the
    interval holds for it, and is the wider one; and unlike mean and deviation, it says of a sample without any miss
    what it does not show.
    """
    # Edwin B. Wilson, 1927: https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval
    rows, mean = len(recalls), float(recalls.mean())
    middle, square = mean + Z**2 / (2 * rows), Z**2 / rows
    half = Z * math.sqrt(mean * (1 - mean) / rows + square / (4 * rows))
    low, high = (middle - half) / (1 + square), (middle + half) / (1 + square)
    return Measured(recall=mean, low=max(0.0, low), high=min(1.0, high), rows=rows)


def choose_probes(
    recall: float, choosing: NDArray[np.int64], checking: NDArray[np.int64], shares: NDArray[np.float64]
) -> int:
    """Return how many cells are looked into for each row.

    Args:
        recall: What is promised.
        choosing: ranks[rows, k], from 0, of the cells of the true neighbors: with so few cells that the lower end of
            their recall's interval holds the promise.
        checking: The same of other rows, of which the recall itself has to hold it too.
        shares: shares[cells]: with the first, the first two … cells, what part of all pairs is computed.

    Raises:
        InvalidInput: So many would be needed that the exact search is the faster one; or so few rows can show nothing.
    """
    for probes in range(1, len(shares) + 1):
        if _recall(choosing, probes).low >= recall and _recall(checking, probes).recall >= recall:
            # Held, but at the cost of most pairs: what was asked for is not a search for less.
            if shares[probes - 1] <= MOST_PAIRS:
                return probes
            raise InvalidInput(
                f"a recall of {recall} needs {shares[probes - 1]:.0%} of all pairs of these rows, which lie in "
                f"no small clusters; {_reached(choosing, shares)}; drop recall: the exact search is faster"
            )
    raise InvalidInput(
        f"a recall of {recall} cannot be shown by a sample of {len(choosing)} rows, even of the exact search; leave "
        "recall away, which is exact"
    )


def _recall(ranks: NDArray[np.int64], probes: int) -> Measured:
    return measured_recall((ranks < probes).mean(axis=1))


def _reached(ranks: NDArray[np.int64], shares: NDArray[np.float64]) -> str:
    probes = int(np.searchsorted(shares, MOST_PAIRS, side="right"))
    return f"{MOST_PAIRS:.0%} of them reached {_recall(ranks, probes)}"


def check_kept(recall: float, measured: Measured) -> None:
    """Refuse a result that does not hold what was promised.

    Raises:
        InvalidInput: What was reached, and what to do.
    """
    if measured.recall < recall:
        raise InvalidInput(
            f"a recall of {recall} was promised, and {measured} was reached; drop recall, which is exact"
        )
