"""Grid: every combination once, in an order that a seed gives. AWS's grids are of categorical ranges alone."""

from collections.abc import Sequence
from random import Random

from raysm.local.server.api_error import validation
from raysm.local.server.tuning.ranges import combinations
from raysm.local.server.tuning.strategies.strategy import Search, Strategy
from raysm.local.server.tuning.trial import Assignment, Trial

__all__ = ["GridSearch"]


class GridSearch(Strategy):
    """Every combination once."""

    @classmethod
    def check(cls, search: Search, most: int | None) -> None:
        """See ``Strategy.check``."""
        listed = [item.name for item in search.ranges if not item.values]
        if listed:
            raise validation(
                f"Grid search supports categorical hyperparameters only; {', '.join(map(repr, listed))} "
                f"{'are' if len(listed) > 1 else 'is'} of another kind: give CategoricalParameterRanges"
            )
        whole = cls.default_most(search)
        # https://docs.aws.amazon.com/sagemaker/latest/dg/automatic-model-tuning-how-it-works.html: "If specified, the
        # value of MaxNumberOfTrainingJobs should match the total number of distinct categorical combinations".
        if most is not None and most != whole:
            raise validation(
                f"MaxNumberOfTrainingJobs is {most}, and the grid has {whole} combinations: leave it out, or give "
                f"{whole}"
            )

    @classmethod
    def default_most(cls, search: Search) -> int | None:
        """Return how many combinations there are."""
        return int(combinations(search.ranges))

    def propose(self, trials: Sequence[Trial], number: int) -> Assignment | None:
        """See ``Strategy.propose``."""
        order = list(range(int(combinations(self._search.ranges))))
        # Not row by row: a grid that is stopped in the middle has then seen something of every value.
        Random(self._search.seed).shuffle(order)
        return self._combination(order[number]) if number < len(order) else None

    def _combination(self, index: int) -> Assignment:
        assignment = {}
        for item in self._search.ranges:
            index, place = divmod(index, int(item.count))
            assignment[item.name] = item.values[place]
        return assignment
