"""What a strategy knows of the training jobs of a tuning job: values, and nothing of the service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Assignment", "Objective", "Trial"]

Assignment: TypeAlias = Mapping[str, str]
"""The tuned hyperparameters of one training job, by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """What is to be as good as it can."""

    metric: str
    """Name among the metric definitions."""
    kind: str
    """``Maximize`` or ``Minimize``, as the request has it."""

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> "Objective":
        """Return the objective of a request."""
        return cls(metric=item["MetricName"], kind=item["Type"])

    def loss(self, value: float) -> float:
        """Return a number that is less where ``value`` is better."""
        return value if self.kind == "Minimize" else -value

    def reaches(self, value: float, target: float) -> bool:
        """Whether ``value`` is as good as the target."""
        return self.loss(value) <= self.loss(target)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One training job, as far as a strategy is concerned."""

    number: int
    """From 0, in the order in which they were launched; of a parent's below 0."""
    assignment: Assignment
    """What it tries."""
    losses: Sequence[float] = field(default_factory=tuple)
    """What it reported of the objective so far, less is better: one number a report."""
    ended: bool = False
    """Whether it has ended."""
    loss: float | None = None
    """The last of them where it has ended well, or was ended early; None of one that runs, failed, or said nothing."""
