"""When a tuning job has done enough, and what was best: pure functions of its training jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from raysm.local.server.tuning.records import Child
from raysm.local.server.tuning.trial import Objective

__all__ = ["FAILURES", "best_of", "enough", "failed", "has_converged", "not_improving"]

FAILURES = 5
"""Training jobs that may fail before any has succeeded."""
CONVERGED = 20
"""Values without which nothing is said of convergence. When AWS sees it is nowhere documented: this rule is ours."""
GAIN = 0.01
"""Of the spread of all values: what the later half of them has to gain, else it has converged."""


def best_of(children: Sequence[Child], objective: Objective) -> Child | None:
    """Return the one with the best value, of equal ones the first; None where none has one."""
    return min(_valued(children), key=lambda child: (objective.loss(_value(child)), child.number), default=None)


def not_improving(children: Sequence[Child], objective: Objective) -> int:
    """Return how many values came since the best one."""
    best = best_of(children, objective)
    # By the order in which they were launched: when each ended is not told, and a race would decide.
    return 0 if best is None else sum(child.number > best.number for child in _valued(children))


def has_converged(children: Sequence[Child], objective: Objective) -> bool:
    """Whether the later half of the values is hardly better than the first."""
    losses = [objective.loss(_value(child)) for child in _valued(children)]
    half = len(losses) // 2
    if len(losses) < CONVERGED:
        return False
    return min(losses[:half]) - min(losses[half:]) <= GAIN * (max(losses) - min(losses))


def enough(config: Mapping[str, Any], children: Sequence[Child], objective: Objective, ran_s: float) -> str:
    """Return why no further training job is to be launched, and those that run are to end; empty where they are not.

    Args:
        config: HyperParameterTuningJobConfig.
        children: The training jobs so far.
        objective: By which they are compared.
        ran_s: Seconds since it was created.
    """
    limit_s = config["ResourceLimits"].get("MaxRuntimeInSeconds")
    if limit_s is not None and ran_s >= limit_s:
        return f"it ran for MaxRuntimeInSeconds, {limit_s} s"
    criteria = config.get("TuningJobCompletionCriteria") or {}
    target, best = criteria.get("TargetObjectiveMetricValue"), best_of(children, objective)
    if target is not None and best is not None and objective.reaches(_value(best), target):
        return f"{best.name} reached TargetObjectiveMetricValue, {target}"
    most = (criteria.get("BestObjectiveNotImproving") or {}).get("MaxNumberOfTrainingJobsNotImproving")
    if most is not None and not_improving(children, objective) >= most:
        return f"{most} training jobs were no better than the best one"
    convergence = (criteria.get("ConvergenceDetected") or {}).get("CompleteOnConvergence") == "Enabled"
    return "it has converged" if convergence and has_converged(children, objective) else ""


def failed(children: Sequence[Child], most: int | None) -> str:
    """Return the reason of a tuning job whose training jobs all failed; empty where one has not."""
    attempts = min(FAILURES, most or FAILURES)
    ended = [child for child in children if child.ended]
    if len(ended) < attempts or any(child.value is not None for child in ended):
        return ""
    # As AWS words it: https://github.com/aws/amazon-sagemaker-examples/issues/2437
    return (
        f"No training job succeeded after {attempts} attempts. Please take a look at the training job failures to "
        "get more details."
    )


def _valued(children: Sequence[Child]) -> list[Child]:
    return [child for child in children if child.value is not None]


def _value(child: Child) -> float:
    assert child.value is not None
    return child.value
