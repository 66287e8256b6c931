"""Rules by which a sweep ends trials early, as frozen values that travel as JSON."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, get_args

from raysm.errors import InvalidRequest
from raysm.request.codec import from_json


class _Rule:
    __slots__ = ()

    searches: ClassVar[tuple[str, ...]] = ("optuna", "random", "grid")
    """The searches that it can be combined with, the default first."""
    service_rule: ClassVar[str | None] = None
    """TrainingJobEarlyStoppingType of a tuning job with the same rule; None if the service has none."""
    needs_checkpoints: ClassVar[bool] = False
    """Whether each report needs a checkpoint."""
    takes_turns: ClassVar[bool] = False
    """Whether all trials form one population, and take turns where there is no room for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asha(_Rule):
    """Asynchronous successive halving: after 1, 4, 16 … reports only the best quarter goes on.

    Optuna's ``SuccessiveHalvingPruner``; https://arxiv.org/abs/1810.05934.
    """

    kind: ClassVar[str] = "asha"

    grace: int = 1
    """Reports after which trials are compared first."""
    # As in the paper.
    factor: int = 4
    """One in ``factor`` trials goes on, to ``factor`` times as many reports; at least 2."""
    most_reports: int = 100_000
    """Each trial ends after this many reports."""

    def __post_init__(self) -> None:
        _check_count("Asha", "grace", self.grace, 1)
        _check_count("Asha", "factor", self.factor, 2)
        _check_count("Asha", "most_reports", self.most_reports, self.grace)


@dataclass(frozen=True, kw_only=True, slots=True)
class Median(_Rule):
    """Ends a trial whose best value is worse than the median of done trials after as many reports.

    Optuna's ``MedianPruner``.
    """

    kind: ClassVar[str] = "median"
    service_rule: ClassVar[str | None] = "Auto"

    grace: int = 1
    """Reports after which a trial is compared first."""
    least_trials: int = 3
    """Done trials that the median needs at least."""

    def __post_init__(self) -> None:
        _check_count("Median", "grace", self.grace, 1)
        _check_count("Median", "least_trials", self.least_trials, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pbt(_Rule):
    """Population based training: the worst trials continue with the weights of the best, and varied parameters.

    https://arxiv.org/abs/1711.09846. Each report needs a checkpoint. All trials are one population: where there is no
    room for all of them they take turns, each until its next comparison.
    """

    kind: ClassVar[str] = "pbt"
    # A trial's parameters change on the way, so a search would learn wrong values.
    searches: ClassVar[tuple[str, ...]] = ("random",)
    needs_checkpoints: ClassVar[bool] = True
    # A trial that began after the others ended would have nothing to compare itself with.
    takes_turns: ClassVar[bool] = True

    every: int = 1
    """Reports between two comparisons."""
    # The paper uses a fifth.
    share: float = 0.25
    """Share of the trials that counts as the worst, and as the best; above 0 and at most 0.5."""

    def __post_init__(self) -> None:
        _check_count("Pbt", "every", self.every, 1)
        if type(self.share) not in (int, float) or not 0 < self.share <= 0.5:
            raise InvalidRequest(f"Pbt: share must be above 0 and at most 0.5, got {self.share!r}")


Rule: TypeAlias = Asha | Median | Pbt
"""All rules; add the class of a new one here."""

KINDS: Mapping[str, type[Any]] = {kind.kind: kind for kind in get_args(Rule)}


def rule_of(written: object) -> Rule | None:
    """Return a rule from a rule, from its name with the default numbers, or from JSON; None ends no trial.

    Raises:
        InvalidRequest: There is no such rule.
    """
    if written is None or isinstance(written, tuple(KINDS.values())):
        return written  # type: ignore[return-value]  # KINDS has exactly those
    name = written.get("kind") if isinstance(written, Mapping) else written
    if not isinstance(name, str) or name not in KINDS:
        near = difflib.get_close_matches(str(name), KINDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, KINDS))} and None"
        raise InvalidRequest(f"Sweep: there is no rule stop={written!r}; {hint}")
    data = dict(written) if isinstance(written, Mapping) else {}
    rule: Rule = from_json(KINDS[name], data, "stop")
    return rule


def _check_count(kind: str, name: str, value: object, least: int) -> None:
    # Not isinstance, because True is an int.
    if type(value) is not int or value < least:
        raise InvalidRequest(f"{kind}: {name} must be a whole number of at least {least}, got {value!r}")
