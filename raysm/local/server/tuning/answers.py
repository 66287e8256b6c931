"""What Describe and List answer of a tuning job: records flow in, JSON flows out."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raysm.local.server.api_error import ApiError
from raysm.local.server.records import JobRecord
from raysm.local.server.tuning import progress
from raysm.local.server.tuning.records import Child, TuningRecord
from raysm.local.server.tuning.trial import Objective

__all__ = ["Jobs", "describe", "summarize", "summarize_child"]

Jobs = Callable[[str, str], JobRecord]
"""Returns the training job of a name and a region, as it is now; raises ApiError where there is none."""
PARTS = (
    "HyperParameterTuningJobConfig",
    "TrainingJobDefinition",
    "TrainingJobDefinitions",
    "WarmStartConfig",
    "Autotune",
)
RETRYABLE = "InternalServerError"
"""How the reason of a failure begins that another attempt may not have: the service's own."""


def describe(
    record: TuningRecord, objectives: Sequence[Objective], jobs: Jobs, family: Sequence[TuningRecord]
) -> dict[str, Any]:
    """Return what Describe answers.

    Args:
        record: The tuning job.
        objectives: Of its definitions.
        jobs: Where its training jobs are.
        family: Those that it began with, where it is to be compared with them; else none.
    """
    objective = objectives[0]
    best = progress.best_of(record.children, objective)
    # Each with its own: only they tell what their values were.
    best_ones = [(one, progress.best_of(one.children, objective)) for one in (record, *family)]
    valued = [(one, child) for one, child in best_ones if child is not None and child.value is not None]
    overall = min(valued, key=lambda pair: objective.loss(pair[1].value or 0.0), default=None)
    members = {
        **_state(record, jobs),
        **{part: record.request.get(part) for part in PARTS},
        "FailureReason": record.failure_reason,
        "BestTrainingJob": None if best is None else _known(record, best, objectives, jobs),
        "OverallBestTrainingJob": _known(*overall, objectives, jobs, record.name) if overall and family else None,
        "TuningJobCompletionDetails": _present(
            NumberOfTrainingJobsObjectiveNotImproving=progress.not_improving(record.children, objective),
            ConvergenceDetectedTime=record.converged_s,
        ),
        "ConsumedResources": {"RuntimeInSeconds": round((record.ended_s or record.modified_s) - record.created_s)},
    }
    return _present(**members)


def summarize(record: TuningRecord, jobs: Jobs) -> dict[str, Any]:
    """Return what List says of a tuning job."""
    config = record.request["HyperParameterTuningJobConfig"]
    return _present(**_state(record, jobs), Strategy=config["Strategy"], ResourceLimits=config["ResourceLimits"])


def summarize_child(child: Child, objectives: Sequence[Objective], job: JobRecord) -> dict[str, Any]:
    """Return what is said of one training job."""
    objective = objectives[child.number % len(objectives)]
    final = {"Type": objective.kind, "MetricName": objective.metric, "Value": child.value}
    return _present(
        TrainingJobDefinitionName=child.definition,
        TrainingJobName=child.name,
        TrainingJobArn=job.arn,
        CreationTime=job.created_s,
        TrainingStartTime=job.started_s,
        TrainingEndTime=job.ended_s,
        TrainingJobStatus=job.status,
        TunedHyperParameters=dict(child.assignment),
        FailureReason=job.failure_reason,
        FinalHyperParameterTuningJobObjectiveMetric=None if child.value is None else final,
        ObjectiveStatus=child.objective_status,
    )


def _known(
    record: TuningRecord, child: Child, objectives: Sequence[Objective], jobs: Jobs, tuning_job: str | None = None
) -> dict[str, Any] | None:
    try:
        job = jobs(child.name, record.region)
    except ApiError:
        return None  # its job was deleted
    # Of the best of all alone it is said whose it is.
    return summarize_child(child, objectives, job) | ({"TuningJobName": record.name} if tuning_job else {})


def _state(record: TuningRecord, jobs: Jobs) -> Mapping[str, Any]:
    return {
        "HyperParameterTuningJobName": record.name,
        "HyperParameterTuningJobArn": record.arn,
        "HyperParameterTuningJobStatus": record.status,
        "CreationTime": record.created_s,
        "HyperParameterTuningEndTime": record.ended_s,
        "LastModifiedTime": record.modified_s,
        "TrainingJobStatusCounters": _statuses(record, jobs),
        "ObjectiveStatusCounters": {
            name: sum(child.objective_status == name for child in record.children)
            for name in ("Succeeded", "Pending", "Failed")
        },
    }


def _statuses(record: TuningRecord, jobs: Jobs) -> Mapping[str, int]:
    counts: Counter[str] = Counter(
        dict.fromkeys(("Completed", "InProgress", "RetryableError", "NonRetryableError", "Stopped"), 0)
    )
    for child in record.children:
        try:
            job = jobs(child.name, record.region)
        except ApiError:
            continue  # deleted
        counts[_counted(job)] += 1
    return dict(counts)


def _counted(job: JobRecord) -> str:
    if job.status == "Failed":
        return "RetryableError" if (job.failure_reason or "").startswith(RETRYABLE) else "NonRetryableError"
    return job.status if job.final else "InProgress"


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
