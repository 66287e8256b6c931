"""What the metrics of a job come to: of each its last, lowest and highest value, and its curve in few points.

Pure: values flow in as a job reported them, a summary of each name flows out.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from raysm.contract.events import Metric

__all__ = ["MAX_POINTS", "Curve", "Goal", "Summary", "curves_of", "goal_of", "summary_of", "thinned"]

Goal: TypeAlias = Literal["min", "max"]

Curve: TypeAlias = list[tuple[int | None, float, float]]
"""Step (None where there is none), seconds since the epoch, value."""

MAX_POINTS = 200
"""Of one curve: enough for a chart of usual size, and 1,000 jobs of five metrics are some 25 MB."""

FALLS = re.compile(
    r"loss|error|perplexity|\bppl\b|\b[rm]*mse\b|\bmae\b|\bnll\b|\bwer\b|\bcer\b|(?<!per)_s$|seconds|latency"
)
RISES = re.compile(r"acc|\bauc\b|\bf1\b|precision|recall|score|\br2\b|\bmap\b|bleu|rouge|reward|per_s|throughput|iou")
"""Words in the names of metrics that are better lower, and better higher. Of others nobody knows but the user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """One metric of one job."""

    last: float
    """The value that was reported last."""
    lowest: float
    """The lowest that was reported."""
    highest: float
    """The highest that was reported."""
    count: int
    """How many were reported."""
    step: int | None = None
    """Step of the last one."""

    def best(self, goal: Goal | None) -> float | None:
        """Return the best value; None where nobody says whether lower or higher is better."""
        return {"min": self.lowest, "max": self.highest, None: None}[goal]


def goal_of(name: str) -> Goal | None:
    """Return whether a metric is better lower or higher, by its name; None where that does not say it."""
    # A name of several words is none to \b where they hang together by underscores.
    words = re.sub(r"[/.\-]|_(?!s$|per_s)", " ", name.lower())
    rises, falls = bool(RISES.search(words)), bool(FALLS.search(words))
    return None if rises == falls else "max" if rises else "min"


def curves_of(metrics: Iterable[Metric]) -> dict[str, Curve]:
    """Return the curve of each metric of the job itself, whole, in the order of their names' first values.

    Of a step that was done again after a restart the last value counts.
    """
    curves: dict[str, dict[tuple[int | None, float], tuple[int | None, float, float]]] = {}
    for metric in metrics:
        if not metric.host:
            # Without a step, the time tells one value from another.
            key = (metric.step, 0.0 if metric.step is not None else metric.time_s)
            curves.setdefault(metric.name, {})[key] = (metric.step, metric.time_s, metric.value)
    return {name: list(points.values()) for name, points in curves.items()}


def summary_of(curve: Curve) -> Summary:
    """Return what a curve, which has a value, comes to."""
    step, _, last = curve[-1]
    # NaN has no order: as the first of them it would be both the lowest and the highest.
    values = [value for _, _, value in curve if not math.isnan(value)] or [last]
    return Summary(last=last, lowest=min(values), highest=max(values), count=len(curve), step=step)


def thinned(curve: Curve, max_points: int = MAX_POINTS) -> Curve:
    """Return a curve in at most ``max_points``: its two ends, and of each stretch the lowest and the highest value."""
    if len(curve) <= max_points:
        return curve
    buckets = max_points // 2 - 1
    chosen = {0, len(curve) - 1}
    for number in range(buckets):
        stretch = range(number * len(curve) // buckets, (number + 1) * len(curve) // buckets)
        known = [index for index in stretch if not math.isnan(curve[index][2])] or stretch
        chosen.add(min(known, key=lambda index: curve[index][2]))
        chosen.add(max(known, key=lambda index: curve[index][2]))
    return [curve[index] for index in sorted(chosen)]
