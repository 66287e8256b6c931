"""What a strategy is: ranges and what is known of the trials flow in, what to try next flows out.

Nothing of it is kept between two calls but what follows from the request: a strategy is asked again with all trials.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from raysm.local.server.api_error import validation
from raysm.local.server.tuning.ranges import Range, combinations
from raysm.local.server.tuning.trial import Assignment, Trial

__all__ = ["Search", "Strategy"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What a strategy goes by."""

    ranges: Sequence[Range]
    """Of the hyperparameters that are tuned."""
    seed: int
    """What follows by chance follows from it."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """HyperParameterTuningJobConfig."""
    static: Mapping[str, str] = field(default_factory=dict)
    """The hyperparameters that every trial has."""


class Strategy:
    """One way to choose; tries at random, and lets every trial run to its end, unless a kind says otherwise."""

    def __init__(self, search: Search) -> None:
        """Take what to go by, which ``check`` has taken."""
        self._search = search
        self._drawn: list[Assignment] = []
        self._known: set[tuple[str, ...]] = set()

    @classmethod
    def check(cls, search: Search, most: int | None) -> None:
        """Refuse what cannot be.

        Args:
            search: What to go by.
            most: MaxNumberOfTrainingJobs.

        Raises:
            ApiError: In AWS's words where they are known.
        """
        there_are = combinations(search.ranges)
        if most is not None and there_are < most:
            # As AWS words it: https://github.com/aws/amazon-sagemaker-operator-for-k8s/issues/123
            raise validation(
                "You don't have enough combinations of hyperparameter ranges. The total number of hyperparameter "
                f"combinations for the provided ranges [{float(there_are)}] must be equal or greater than the value of "
                f"MaxNumberOfJobs, [{most}]. Provide additional ranges."
            )

    @classmethod
    def default_most(cls, search: Search) -> int | None:
        """Return how many trials there are where the request does not say; None is as many as the time allows."""
        return None

    def propose(self, trials: Sequence[Trial], number: int) -> Assignment | None:
        """Return what the trial ``number`` tries; None where there is nothing more to try.

        Args:
            trials: All so far.
            number: From 0.
        """
        return self.draw(number)

    def stops(self, trial: Trial, trials: Sequence[Trial]) -> bool:
        """Whether a trial that runs is to be ended now."""
        return False

    def draw(self, number: int) -> Assignment | None:
        """Return the combination ``number`` of a sequence that the seed gives, in which none stands twice."""
        most = combinations(self._search.ranges)
        # Drawn anew from the begin where a server starts again: what follows from the seed needs no file.
        chance = Random(f"{self._search.seed}/{len(self._drawn)}")
        while len(self._drawn) <= min(number, most - 1):
            assignment = {item.name: item.at(chance.random()) for item in self._search.ranges}
            if tuple(assignment.values()) not in self._known:
                self._known.add(tuple(assignment.values()))
                self._drawn.append(assignment)
                chance = Random(f"{self._search.seed}/{len(self._drawn)}")
        return self._drawn[number] if number < len(self._drawn) else None
