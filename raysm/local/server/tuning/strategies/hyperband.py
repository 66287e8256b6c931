"""Hyperband: trials at random, of which those that fall behind are ended early, at rungs of their reports.

What counts as a resource is one report of the objective, an epoch. A trial belongs to a bracket, in turn; the brackets
differ in the first rung. At a rung a trial goes on if it is among the best third of its bracket's that came so far:
each is judged when it arrives, without waiting for the others, so that no instance idles (ASHA, arXiv:1810.05934).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.local.server.api_error import validation
from raysm.local.server.tuning.strategies.strategy import Search, Strategy
from raysm.local.server.tuning.trial import Trial

__all__ = ["Hyperband"]

SHARE = 3
"""One in so many goes on at a rung: what the authors of Hyperband take."""
NAMES = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")
"""Static hyperparameters that tell MaxResource where the request does not.
https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_HyperbandStrategyConfig.html"""
MOST = 20_000
"""The greatest MaxResource, by the same page."""


class Hyperband(Strategy):
    """Random trials, most of them short."""

    def __init__(self, search: Search) -> None:
        """See ``Strategy``."""
        super().__init__(search)
        self._least, self._most = _resources(search)

    @classmethod
    def check(cls, search: Search, most: int | None) -> None:
        """See ``Strategy.check``."""
        super().check(search, most)
        if search.config.get("TrainingJobEarlyStoppingType") == "Auto":
            raise validation(
                "TrainingJobEarlyStoppingType must be OFF to use the Hyperband strategy, which stops training jobs by "
                "itself"
            )
        _resources(search)

    def stops(self, trial: Trial, trials: Sequence[Trial]) -> bool:
        """Whether it has had all that there is, or is not among the best at the last rung that it has come to."""
        reports = len(trial.losses)
        if reports >= self._most:
            return True
        reached = [rung for rung in self._rungs(trial) if rung <= reports]
        return bool(reached) and not self._goes_on(trial, trials, reached[-1])

    def _goes_on(self, trial: Trial, trials: Sequence[Trial], rung: int) -> bool:
        bracket = self._bracket(trial)
        # Of one that has gone on since: what it had come to there, not what it came to later.
        others = [one.losses[rung - 1] for one in trials if self._bracket(one) == bracket and len(one.losses) >= rung]
        others.sort()
        best = max(1, len(others) // SHARE)
        return trial.losses[rung - 1] <= others[best - 1]

    def _bracket(self, trial: Trial) -> int:
        return trial.number % self._brackets

    @property
    def _brackets(self) -> int:
        return max(1, math.floor(math.log(self._most / self._least, SHARE) + 1e-9))

    def _rungs(self, trial: Trial) -> list[int]:
        rungs, rung = [], self._least * SHARE ** self._bracket(trial)
        while rung < self._most:
            rungs.append(rung)
            rung *= SHARE
        return rungs


def _resources(search: Search) -> tuple[int, int]:
    """Return the least and the greatest number of reports.

    Raises:
        ApiError: Nobody says the greatest, or they cannot be.
    """
    config: Mapping[str, Any] = (search.config.get("StrategyConfig") or {}).get("HyperbandStrategyConfig") or {}
    most = config.get("MaxResource")
    if most is None:
        most = next((int(search.static[name]) for name in NAMES if search.static.get(name, "").isdigit()), None)
    if most is None:
        raise validation(
            "Hyperband needs MaxResource in HyperbandStrategyConfig, or one of the static hyperparameters "
            f"{', '.join(NAMES)}"
        )
    least = config.get("MinResource", 1)
    if not least < most <= MOST:
        raise validation(
            f"Hyperband: MinResource is {least} and MaxResource {most}: the first must be less, and the second at most "
            f"{MOST:,}"
        )
    return least, most
