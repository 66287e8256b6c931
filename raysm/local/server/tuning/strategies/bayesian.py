"""Bayesian: a Gaussian process over the points that were tried says where it may pay to look next.

What flows in are points of 0 to 1 and what came of them, what flows out is a point. Matérn 5/2, expected improvement.
A trial that still runs counts as if it had come to what the process expects there, so that the next one of several at a
time looks elsewhere.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.local.server.tuning.strategies.strategy import Search, Strategy
from raysm.local.server.tuning.trial import Assignment, Trial

__all__ = ["BayesianSearch"]

FIRST = 3
"""Trials at random before there is anything to learn from, beside one for each parameter."""
CANDIDATES = 2_000
"""Points that are compared for the next one: in few dimensions as good as a search by gradients, and never stuck."""
NEAR = 200
"""Of them, those that lie about the best one."""
MOST = 100
"""Trials that are learned from, the last ones: the time for a proposal grows with the third power of them."""
LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Lengths over which two points have to do with each other; the likeliest one is taken."""
NOISE = 1e-4
"""Variance of what is not told by the point, of a standardized objective."""

Points = NDArray[np.floating[Any]]


class BayesianSearch(Strategy):
    """Learns from what has ended."""

    def __init__(self, search: Search) -> None:
        """See ``Strategy``."""
        super().__init__(search)
        self._first = FIRST + len(search.ranges)

    def propose(self, trials: Sequence[Trial], number: int) -> Assignment | None:
        """See ``Strategy.propose``."""
        measured = [(point, trial.loss) for trial in trials if (point := self._point(trial)) and trial.loss is not None]
        if len(measured) < self._first:
            return self._untried(trials, self.draw(number), number)
        points, losses = (
            np.array([point for point, _ in measured[-MOST:]]),
            np.array([loss for _, loss in measured[-MOST:]]),
        )
        running = [point for trial in trials if not trial.ended and (point := self._point(trial))]
        best = self._most_promising(points, losses, running, number)
        return self._untried(trials, best, number)

    def _untried(self, trials: Sequence[Trial], assignment: Assignment | None, number: int) -> Assignment | None:
        """Return ``assignment``, or where it was tried the next one of the random sequence that was not."""
        earlier = [trial.assignment for trial in trials]
        offset = 0
        while assignment is not None and assignment in earlier:
            assignment, offset = self.draw(offset), offset + 1
        return assignment

    def _point(self, trial: Trial) -> list[float] | None:
        # Of a parent's trial a value may lie outside of the ranges of today.
        points = [item.point(trial.assignment.get(item.name, "")) for item in self._search.ranges]
        return [point for point in points if point is not None] if None not in points else None

    def _most_promising(
        self, points: Points, losses: Points, running: Sequence[Sequence[float]], number: int
    ) -> Assignment:
        chance = np.random.default_rng([self._search.seed, number])
        spread = float(losses.std()) or 1.0
        values = (losses - losses.mean()) / spread
        length = max(LENGTHS, key=lambda length: _likelihood(points, values, length))
        if running:
            others = np.array(running)
            expected, _ = _predict(points, values, others, length)
            points, values = np.concatenate([points, others]), np.concatenate([values, expected])
        candidates = chance.random((CANDIDATES, points.shape[1]))
        about = points[int(values.argmin())] + chance.normal(0, length / 4, (NEAR, points.shape[1]))
        candidates[:NEAR] = np.clip(about, 0, 1)
        # By the values that they become: points of the same whole number are one, and its own point is the learned one.
        assignments = [self._assignment(candidate) for candidate in candidates]
        rounded = np.array([[item.point(one[item.name]) for item in self._search.ranges] for one in assignments])
        mean, deviation = _predict(points, values, rounded, length)
        return assignments[int(_improvement(mean, deviation, float(values.min())).argmax())]

    def _assignment(self, candidate: Points) -> Assignment:
        return {item.name: item.at(float(point)) for item, point in zip(self._search.ranges, candidate, strict=True)}


def _kernel(left: Points, right: Points, length: float) -> Points:
    """Return the Matérn 5/2 covariances ``[len(left), len(right)]``."""
    distance = np.sqrt(((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)) * (math.sqrt(5) / length)
    covariances: Points = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return covariances


def _factor(points: Points, length: float) -> Points:
    return np.linalg.cholesky(_kernel(points, points, length) + NOISE * np.eye(len(points)))


def _likelihood(points: Points, values: Points, length: float) -> float:
    """Return the logarithm of how likely the values are, but for a constant."""
    factor = _factor(points, length)
    solved = np.linalg.solve(factor, values)
    return float(-0.5 * solved @ solved - np.log(np.diag(factor)).sum())


def _predict(points: Points, values: Points, where: Points, length: float) -> tuple[Points, Points]:
    """Return mean and deviation ``[len(where)]``."""
    factor = _factor(points, length)
    between = np.linalg.solve(factor, _kernel(points, where, length))
    mean: Points = between.T @ np.linalg.solve(factor, values)
    # A little above 0: at a point that was tried nothing is left, and rounding may make it less than that.
    return mean, np.sqrt(np.maximum(1e-12, 1 - (between**2).sum(axis=0)))


def _improvement(mean: Points, deviation: Points, best: float) -> Points:
    """Return by how much each point is expected to be better than the best one."""
    z = (best - mean) / deviation
    below = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    improvement: Points = (best - mean) * below + deviation * density
    return improvement
