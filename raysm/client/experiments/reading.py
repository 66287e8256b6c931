"""One job read from the service as a row of the table: Describe, its tags, its record, and the metrics in its log.

What flows in is a job's name, what flows out is an Experiment with its curves, and of a sweep its trials.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from raysm.client.costs.bill import bill_of, usd_so_far
from raysm.client.experiments.curves import Curve, Summary, curves_of, summary_of, thinned
from raysm.client.experiments.experiment import Experiment
from raysm.client.experiments.trials import trial_rows
from raysm.client.job import records
from raysm.client.job.description import Description, read
from raysm.client.logs.stream import LogReader
from raysm.client.service import Service
from raysm.client.storage.s3 import Storage
from raysm.contract.events import Metric, Trial, parse
from raysm.contract.job_api import JobApi
from raysm.contract.names import FIRST_TAG, PROJECT_TAG, TASK_TAG, WORKLOAD_TAG
from raysm.errors import JobNotFound, ServiceError
from raysm.request.workload import typed

__all__ = ["Reading", "read_job"]

T = TypeVar("T")

OF_OTHERS = "sagemaker_"
"""How hyperparameters begin by which the SageMaker SDK talks to its own images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """One job, as it is."""

    row: Experiment
    """What the table shows."""
    curves: Mapping[str, Curve]
    """Its metrics' curves, in few points."""
    trials: Sequence[Experiment]
    """Of a sweep, its trials."""
    is_final: bool
    """Whether nothing of it changes any more."""


def read_job(service: Service, api: JobApi, name: str) -> Reading | None:
    """Read one job; None where it was removed meanwhile.

    What the caller may not read, tags or a log, is left out: the rest of the row is worth having.
    """
    try:
        description = read(api, service.describe(api, name))
    except JobNotFound:
        return None
    questions = _Asked()
    tags = questions.attempt(lambda: service.tags(description.arn)) or {}
    record = questions.attempt(lambda: _record(service, tags, name))
    trials: list[Trial] = []
    curves = questions.attempt(lambda: curves_of(_metrics(LogReader(service, api, name), trials))) or {}
    row = _row(service, description, tags, record, curves)
    is_late = row.ended_s is not None and time.time() - row.ended_s < service.polling.late_s
    return Reading(
        row=row,
        curves={name: thinned(curve) for name, curve in curves.items()},
        trials=trial_rows(row, trials),
        # The last lines of a job that has just ended may be under way; and who may not read all today may tomorrow.
        is_final=description.status.is_terminal and not is_late and questions.is_whole,
    )


class _Asked:
    """Asks for what can be done without, and knows whether all of it was told."""

    def __init__(self) -> None:
        self.is_whole = True

    def attempt(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        # Of tags, record and log each has a permission of its own: a row without one of them is better than none.
        except (ServiceError, OSError):
            self.is_whole = False
            return None


def _row(
    service: Service,
    description: Description,
    tags: Mapping[str, str],
    record: records.Record | None,
    curves: Mapping[str, Curve],
) -> Experiment:
    return Experiment(
        name=description.name,
        arn=description.arn,
        kind=description.api.kind,
        status=description.status,
        secondary=description.secondary,
        message=description.reason or ("" if description.status.is_terminal else description.message),
        project=tags.get(PROJECT_TAG),
        task=tags.get(TASK_TAG),
        workload=tags.get(WORKLOAD_TAG),
        first=tags.get(FIRST_TAG),
        parameters={**_hyperparameters(description), **({} if record is None else record.parameters)},
        metrics=_summaries(description, curves),
        instances=description.instances,
        created_s=_seconds(description.created) or 0.0,
        started_s=_seconds(description.started),
        ended_s=_seconds(description.ended),
        is_billed=service.target.is_billed,
        cost_usd=_cost(service, description),
        image=_image(description.answer),
        code="" if record is None else record.code,
        versions={} if record is None else record.versions,
    )


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _record(service: Service, tags: Mapping[str, str], name: str) -> records.Record | None:
    if PROJECT_TAG not in tags or TASK_TAG not in tags:
        return None
    prefix = service.places.records(tags[PROJECT_TAG], tags[TASK_TAG])
    # A follow-up job is remembered as the first of its chain.
    return records.of_job(tags.get(FIRST_TAG, name), prefix, Storage(service))


def _hyperparameters(description: Description) -> dict[str, Any]:
    # Processing has none.
    hyperparameters = description.answer.get("HyperParameters", {})
    return {name: typed(text) for name, text in hyperparameters.items() if not name.startswith(OF_OTHERS)}


def _metrics(log: LogReader, trials: list[Trial]) -> Iterator[Metric]:
    """Yield the metrics of a log; what it says of trials goes into ``trials``."""
    for line in log.new_lines():
        match parse(line.text):
            case Metric() as metric:
                yield metric
            case Trial() as trial:
                trials.append(trial)


def _summaries(description: Description, curves: Mapping[str, Curve]) -> dict[str, Summary]:
    """Return what each metric came to: of those that the service found, the last value, which is all it tells."""
    final = {item["MetricName"]: item["Value"] for item in description.answer.get("FinalMetricDataList", ())}
    by_service = {name: Summary(last=value, lowest=value, highest=value, count=1) for name, value in final.items()}
    return by_service | {name: summary_of(curve) for name, curve in curves.items()}


def _image(answer: Mapping[str, Any]) -> str:
    # Each API has a place of its own for it.
    training, processing = answer.get("AlgorithmSpecification", {}), answer.get("AppSpecification", {})
    return str(training.get("TrainingImage") or processing.get("ImageUri") or "")


def _cost(service: Service, description: Description) -> float | None:
    if not service.target.is_billed:
        return None
    bill = bill_of([description], service.region)
    return usd_so_far(description, service.region, time.time()) if bill is None else bill.usd
