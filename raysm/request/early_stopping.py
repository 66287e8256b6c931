"""When a sweep ends a trial before its function does: the rules, as frozen values that travel as JSON.

A rule names, by text, what makes Ray Tune's scheduler of it on the head; nobody else asks which rule it is.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, get_args

from raysm.errors import InvalidRequest
from raysm.request.codec import from_json

__all__ = ["Asha", "Median", "Pbt", "Rule", "rule_of"]


class _Rule:
    """What all rules say."""

    __slots__ = ()

    scheduler: ClassVar[str]
    """``module:function`` that makes Ray Tune's scheduler of it; imported on the head alone."""
    searches: ClassVar[tuple[str, ...]] = ("optuna", "random", "grid")
    """The searches that it goes with, the default first."""
    service_rule: ClassVar[str | None] = None
    """TrainingJobEarlyStoppingType of a tuning job that does the same; None is none."""
    needs_checkpoints: ClassVar[bool] = False
    """Whether every report has to bring a checkpoint."""
    takes_turns: ClassVar[bool] = False
    """Whether all trials are there at once, and those for which there is no room take turns with the others."""

    @property
    def checkpoints_kept(self) -> int:
        """Of each running trial: the latest one, and the one that somebody may be reading."""
        return 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Asha(_Rule):
    """Asynchronous successive halving: after 1, 4, 16 … reports only the best quarter goes on.

    https://arxiv.org/abs/1810.05934
    """

    kind: ClassVar[str] = "asha"
    scheduler: ClassVar[str] = "raysm.workloads.sweep.schedulers:asha"

    grace: int = 1
    """Reports that every trial may make."""
    # The paper's own, and Ray Tune's default.
    factor: int = 4
    """One in so many goes on, and for so many times as many reports, at least 2."""
    most_reports: int = 100_000
    """A trial that has made so many is ended as well."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_count("Asha", "grace", self.grace, 1)
        _check_count("Asha", "factor", self.factor, 2)
        _check_count("Asha", "most_reports", self.most_reports, self.grace)

    def next_rung(self, reports: int) -> int:
        """Return after how many reports a trial is compared next that has made so many."""
        rung = self.grace
        while rung <= reports:
            rung *= self.factor
        return min(rung, self.most_reports)


@dataclass(frozen=True, kw_only=True, slots=True)
class Median(_Rule):
    """Ends a trial whose best value is worse than the median of the others' running averages."""

    kind: ClassVar[str] = "median"
    service_rule: ClassVar[str | None] = "Auto"
    scheduler: ClassVar[str] = "raysm.workloads.sweep.schedulers:median"

    grace: int = 1
    """Reports that every trial may make."""
    # As many as Ray Tune asks for: https://docs.ray.io/en/latest/tune/api/schedulers.html
    least_trials: int = 3
    """Trials without which there is no median."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_count("Median", "grace", self.grace, 1)
        _check_count("Median", "least_trials", self.least_trials, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pbt(_Rule):
    """Population based training: the worst go on with the weights of the best, and with varied parameters.

    https://arxiv.org/abs/1711.09846. Every report has to bring a checkpoint. All trials are one population: where there
    is no room for all of them they take turns, one look at who is worst each.
    """

    kind: ClassVar[str] = "pbt"
    scheduler: ClassVar[str] = "raysm.workloads.sweep.schedulers:pbt"
    # What a search learns from a trial would be wrong: its parameters change on the way.
    searches: ClassVar[tuple[str, ...]] = ("random",)
    needs_checkpoints: ClassVar[bool] = True
    # A trial that began once others have ended would compare itself with nobody.
    takes_turns: ClassVar[bool] = True

    every: int = 1
    """Reports between two looks at who is worst."""
    # Ray Tune's default; the paper cuts off a fifth.
    share: float = 0.25
    """Of the trials, those that are worst, and best; above 0 and at most 0.5."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_count("Pbt", "every", self.every, 1)
        if type(self.share) not in (int, float) or not 0 < self.share <= 0.5:
            raise InvalidRequest(f"Pbt: share must be above 0 and at most 0.5, got {self.share!r}")

    @property
    def checkpoints_kept(self) -> int:
        """Of each running trial: others go on from what it had at its last look, and it has made more meanwhile."""
        # One that is being written, and one that stands for the look itself.
        return self.every + 2


Rule: TypeAlias = Asha | Median | Pbt
"""Every rule: to add one is to add its class here."""

KINDS: Mapping[str, type[Any]] = {kind.kind: kind for kind in get_args(Rule)}


def rule_of(written: object) -> Rule | None:
    """Return a rule, from one, from its name with the default numbers, or from JSON; None ends no trial.

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
    # Not isinstance, for which True is a whole number.
    if type(value) is not int or value < least:
        raise InvalidRequest(f"{kind}: {name} must be a whole number of at least {least}, got {value!r}")
