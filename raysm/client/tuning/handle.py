"""A tuning job of SageMaker: what it looks for, its trials and its best one."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.client.job.handle import Job, attach
from raysm.client.service import Service, connect
from raysm.client.sweep_result import TrialTable
from raysm.contract.events import Trial
from raysm.errors import InvalidRequest, JobFailed, JobNotFound, NotDone, ServiceError
from raysm.request import Target
from raysm.request.space import Value
from raysm.request.sweep import SweepWorkload

MODES: Mapping[str, str] = {"Minimize": "min", "Maximize": "max"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sought:
    """What counts, and what is varied."""

    metric: str
    """What counts."""
    mode: str
    """``min`` or ``max``."""
    read: Mapping[str, Callable[[str], Value]]
    """Of each parameter by its name: returns the value that the service writes so."""


def of_sweep(sweep: SweepWorkload) -> Sought:
    """Return what a sweep looks for."""
    return Sought(
        metric=sweep.metric, mode=sweep.mode, read={name: parameter.read for name, parameter in sweep.space.items()}
    )


def described(answer: Mapping[str, Any]) -> Sought:
    """Return what a tuning job looks for, by what Describe answers.

    Raises:
        InvalidRequest: It has several definitions, which raysm sends none of.
    """
    config = answer["HyperParameterTuningJobConfig"]
    objective = config.get("HyperParameterTuningJobObjective")
    if objective is None:
        raise InvalidRequest(
            f"the tuning job {answer['HyperParameterTuningJobName']} has several definitions with an objective each; "
            "look at it by the SDK that sent it"
        )
    kinds: Mapping[str, Callable[[str], Value]] = {
        "IntegerParameterRanges": int,
        "ContinuousParameterRanges": float,
        "CategoricalParameterRanges": _category,
    }
    ranges = config.get("ParameterRanges") or {}
    return Sought(
        metric=objective["MetricName"],
        mode=MODES[objective["Type"]],
        read={item["Name"]: read for kind, read in kinds.items() for item in ranges.get(kind) or ()},
    )


def _category(text: str) -> Value:
    # Of a sweep a text that would read as JSON is written in quotation marks; what is no JSON is a text.
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, str | int | float) else text


NAME = "HyperParameterTuningJobName"
FINAL = ("Completed", "Failed", "Stopped")
TRIALS: Mapping[str, str] = {"Completed": "done", "Stopped": "stopped", "Failed": "failed"}
"""By the status of a training job; all others run."""


class Tuning:
    """One tuning job.

    Attributes:
        name: Its name.
        metric: What counts.
        mode: The direction: ``min`` or ``max``.
    """

    def __init__(self, name: str, sought: Sought, service: Service) -> None:
        """Hold a tuning job that the service knows."""
        self.name, self.metric, self.mode = name, sought.metric, sought.mode
        self._sought = sought
        self._service = service

    def describe(self) -> dict[str, Any]:
        """Return what the service says of it."""
        return dict(self._service.call("sagemaker", "describe_hyper_parameter_tuning_job", **{NAME: self.name}))

    @property
    def status(self) -> str:
        """``InProgress``, ``Stopping``, ``Completed``, ``Failed`` or ``Stopped``, as the service says it."""
        return str(self.describe()["HyperParameterTuningJobStatus"])

    def done(self) -> bool:
        """Whether it has ended."""
        return self.status in FINAL

    @property
    def is_billed(self) -> bool:
        """Whether its trials cost money; they then go on after Ctrl-C."""
        return self._service.target.is_billed

    def wait(self, timeout_s: float | None = None, *, ended: Callable[[Trial], Any] | None = None) -> str:
        """Wait for its end; return its status.

        Args:
            timeout_s: Seconds; None is without end.
            ended: Called with each trial, once, when it has ended.

        Raises:
            NotDone: It has not ended in time.
        """
        names: set[str] = set()
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        # At the pace of all polling: an account's Describes are counted, whatever they are of.
        pauses = self._service.polling.pauses()
        while (status := self.status) not in FINAL:
            if deadline_s is not None and time.monotonic() >= deadline_s:
                raise NotDone(f"the tuning job {self.name} is {status} after {timeout_s:g} s")
            self._tell(ended, names)
            time.sleep(next(pauses))
        self._tell(ended, names)
        return status

    def _tell(self, ended: Callable[[Trial], Any] | None, names: set[str]) -> None:
        if ended is None:
            return
        for trial in self.trials:
            if trial.status != "running" and trial.host not in names:
                names.add(trial.host)
                ended(trial)

    def stop(self) -> None:
        """Launch nothing more, and stop the trials that run."""
        self._service.call("sagemaker", "stop_hyper_parameter_tuning_job", **{NAME: self.name})

    @property
    def trials(self) -> TrialTable:
        """All trials so far, by their numbers."""
        summaries = sorted(self._summaries(), key=lambda item: item["TrainingJobName"])
        trials = [self._trial(number, item) for number, item in enumerate(summaries)]
        return TrialTable(trials, self.metric, self._sought.mode)

    @property
    def best(self) -> Job:
        """The training job of the best trial: its result is the sweep's with that trial alone.

        Raises:
            JobFailed: The tuning job has failed.
            NotDone: No trial has a value yet.
        """
        described = self.describe()
        if "BestTrainingJob" in described:
            return attach(described["BestTrainingJob"]["TrainingJobName"], self._service)
        if described["HyperParameterTuningJobStatus"] == "Failed":
            raise JobFailed(f"the tuning job {self.name} failed: {described.get('FailureReason', '')}")
        raise NotDone(f"no trial of the tuning job {self.name} has a value of {self.metric!r} yet")

    def _summaries(self) -> Iterator[Mapping[str, Any]]:
        query: dict[str, Any] = {NAME: self.name, "MaxResults": 100}
        for page in self._service.pages("sagemaker", "list_training_jobs_for_hyper_parameter_tuning_job", **query):
            yield from page["TrainingJobSummaries"]

    def _trial(self, number: int, item: Mapping[str, Any]) -> Trial:
        final = item.get("FinalHyperParameterTuningJobObjectiveMetric") or {}
        value = final.get("Value")
        began, ended = item.get("TrainingStartTime"), item.get("TrainingEndTime")
        return Trial(
            number=number,
            status=TRIALS.get(item["TrainingJobStatus"], "running"),
            params={
                name: self._sought.read[name](text)
                for name, text in item["TunedHyperParameters"].items()
                if name in self._sought.read
            },
            value=value,
            metrics={} if value is None else {self.metric: value},
            reason=item.get("FailureReason", ""),
            host=item["TrainingJobName"],
            seconds=(ended - began).total_seconds() if began and ended else 0.0,
            time_s=(ended or item["CreationTime"]).timestamp(),
        )

    def __repr__(self) -> str:
        try:
            return f"<raysm tuning {self.name}: {self.status}>"
        except ServiceError:
            return f"<raysm tuning {self.name}>"


def attach_tuning(name: str, on: "Target | Service | None" = None) -> Tuning:
    """Return the handle on a tuning job that was sent by whatever process on whatever day.

    Args:
        name: The tuning job's name.
        on: Where it is; None is the embedded SageMaker of this machine.

    Raises:
        JobNotFound: There is no tuning job of that name.
        InvalidRequest: It has several definitions.
    """
    service = connect(on)
    try:
        answer = service.call("sagemaker", "describe_hyper_parameter_tuning_job", **{NAME: name})
    except JobNotFound:
        raise JobNotFound(f"there is no tuning job {name!r} {service.target.describe()}; check its name") from None
    return Tuning(name, described(answer), service)
