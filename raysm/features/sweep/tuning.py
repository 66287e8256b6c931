"""Sweeps that SageMaker runs as a HyperParameterTuningJob, with a training job for each trial."""

import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, Unpack

from raysm.core.client.costs.cap import MIN_PAID_S, cap
from raysm.core.client.job.handle import Job, attach
from raysm.core.client.options import SubmitOptions
from raysm.core.client.plan import without_none
from raysm.core.client.service import Service, connect
from raysm.core.client.submit import Prepared, prepare
from raysm.core.protocol.events import Trial
from raysm.core.protocol.names import natural
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.seal import START
from raysm.core.protocol.service_model import violations
from raysm.core.protocol.terminal_text import visible
from raysm.core.request import Target
from raysm.core.request.options import check_list
from raysm.errors import InvalidRequest, JobFailed, JobNotFound, NotDone, ServiceError
from raysm.features.sweep.client import Sweep, TrialTable
from raysm.features.sweep.request import SweepWorkload, require_sweep
from raysm.features.sweep.space import Value

Parsers: TypeAlias = Mapping[str, Callable[[str], Value]]
"""For each parameter, parses a value as the service writes it."""

MODES: Mapping[str, str] = {"Minimize": "min", "Maximize": "max"}


def make_parsers(config: Mapping[str, Any]) -> Parsers:
    kinds: Parsers = {"Integer": int, "Continuous": float, "Categorical": _category}
    ranges = config.get("ParameterRanges") or {}
    return {
        item["Name"]: parse
        for kind, parse in kinds.items()
        for item in ranges.get(f"{kind}ParameterRanges") or ()
    }


def _category(text: str) -> Value:
    # A sweep writes a text in quotes if it would parse as JSON.
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, str | int | float) else text


NAME = "HyperParameterTuningJobName"
FINAL = ("Completed", "Failed", "Stopped")
TRIALS: Mapping[str, str] = {"Completed": "done", "Stopped": "stopped", "Failed": "failed"}


class Tuning:
    """One tuning job.

    Attributes:
        name: Its name.
        metric: The metric that counts.
        mode: The direction: ``min`` or ``max``.
    """

    def __init__(
        self, name: str, metric: str, mode: str, parsers: Parsers, service: Service
    ) -> None:
        self.name = name
        self.metric = metric
        self.mode = mode
        self._parsers = parsers
        self._service = service

    def describe(self) -> dict[str, Any]:
        """Return the service's description of it."""
        return dict(
            self._service.call(
                "sagemaker", "describe_hyper_parameter_tuning_job", **{NAME: self.name}
            )
        )

    @property
    def status(self) -> str:
        """``InProgress``, ``Stopping``, ``Completed``, ``Failed`` or ``Stopped``."""
        return str(self.describe()["HyperParameterTuningJobStatus"])

    def done(self) -> bool:
        """Return True if it has ended."""
        return self.status in FINAL

    @property
    def is_billed(self) -> bool:
        """True if its trials cost money; they then go on after Ctrl-C."""
        return self._service.target.is_billed

    def wait(
        self, timeout_s: float | None = None, *, ended: Callable[[Trial], Any] | None = None
    ) -> str:
        """Wait for its end; return its status.

        Args:
            timeout_s: Seconds; None waits without limit.
            ended: Called with each trial, once, when it has ended.

        Raises:
            NotDone: It has not ended in time.
        """
        names: set[str] = set()
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        # Polls as for jobs, because AWS limits the Describe calls of an account over all kinds of
        # jobs.
        pauses = self._service.polling.pauses()
        while (status := self.status) not in FINAL:
            if deadline_s is not None and time.monotonic() >= deadline_s:
                raise NotDone(f"the tuning job {self.name} is {status} after {timeout_s:g} s")
            self._report(ended, names)
            time.sleep(next(pauses))
        self._report(ended, names)
        return status

    def _report(self, ended: Callable[[Trial], Any] | None, names: set[str]) -> None:
        if ended is None:
            return
        for trial in self.trials:
            if trial.status != "running" and trial.host not in names:
                names.add(trial.host)
                ended(trial)

    def stop(self) -> None:
        """Ask the service to launch no more trials, and to stop those that run."""
        self._service.call("sagemaker", "stop_hyper_parameter_tuning_job", **{NAME: self.name})

    @property
    def trials(self) -> TrialTable:
        """All trials so far, by their numbers."""
        query: dict[str, Any] = {NAME: self.name, "MaxResults": 100}
        pages = self._service.pages(
            "sagemaker", "list_training_jobs_for_hyper_parameter_tuning_job", **query
        )
        summaries = [item for page in pages for item in page["TrainingJobSummaries"]]
        # The names end with the trial's number and a digest; from the thousandth on the number has
        # four digits.
        summaries.sort(key=lambda item: natural(item["TrainingJobName"]))
        trials = [self._trial(number, item) for number, item in enumerate(summaries)]
        return TrialTable(trials, self.metric, self.mode)

    @property
    def best(self) -> Job:
        """The training job of the best trial; its result is a sweep's result with that trial alone.

        Raises:
            JobFailed: The tuning job has failed.
            NotDone: No trial has a value yet.
        """
        answer = self.describe()
        if "BestTrainingJob" in answer:
            return attach(answer["BestTrainingJob"]["TrainingJobName"], self._service)
        if answer["HyperParameterTuningJobStatus"] == "Failed":
            raise JobFailed(
                visible(f"the tuning job {self.name} failed: {answer.get('FailureReason', '')}")
            )
        raise NotDone(f"no trial of the tuning job {self.name} has a value of {self.metric!r} yet")

    def _trial(self, number: int, item: Mapping[str, Any]) -> Trial:
        final = item.get("FinalHyperParameterTuningJobObjectiveMetric") or {}
        value = final.get("Value")
        began = item.get("TrainingStartTime")
        ended = item.get("TrainingEndTime")
        return Trial(
            number=number,
            status=TRIALS.get(item["TrainingJobStatus"], "running"),
            params={
                name: self._parsers[name](text)
                for name, text in item["TunedHyperParameters"].items()
                if name in self._parsers
            },
            value=value,
            metrics={} if value is None else {self.metric: value},
            reason=item.get("FailureReason", ""),
            host=item["TrainingJobName"],
            seconds=max(0.0, (ended - began).total_seconds()) if began and ended else 0.0,
            time_s=(ended or item["CreationTime"]).timestamp(),
        )

    def __repr__(self) -> str:
        try:
            return f"<raysm tuning {self.name}: {self.status}>"
        except ServiceError:
            return f"<raysm tuning {self.name}>"


def attach_tuning(name: str, on: "Target | Service | None" = None) -> Tuning:
    """Return the handle on a tuning job that another process may have sent.

    Args:
        name: The tuning job's name.
        on: The target that has it; None is the embedded SageMaker of this machine.

    Raises:
        JobNotFound: There is no tuning job of that name.
        InvalidRequest: It has several definitions.
    """
    service = connect(on)
    try:
        answer = service.call("sagemaker", "describe_hyper_parameter_tuning_job", **{NAME: name})
    except JobNotFound:
        raise JobNotFound(
            f"there is no tuning job {name!r} {service.target.describe()}; check its name"
        ) from None
    config = answer["HyperParameterTuningJobConfig"]
    objective = config.get("HyperParameterTuningJobObjective")
    if objective is None:
        raise InvalidRequest(
            f"the tuning job {name} has several definitions with an objective each; use the SDK "
            "that sent it"
        )
    return Tuning(
        name, objective["MetricName"], MODES[objective["Type"]], make_parsers(config), service
    )


_log = logging.getLogger("raysm")


STRATEGIES: Mapping[str, str] = {"optuna": "Bayesian", "random": "Random", "grid": "Grid"}
"""The service's strategy by the sweep's search: ``optuna`` stands for any search that learns from
trials."""

KEPT = (
    "RoleArn",
    "InputDataConfig",
    "VpcConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "StoppingCondition",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "RetryStrategy",
    "Environment",
)
"""Keys that a definition takes from the training job. Not its checkpoints: all trials would have
the same prefix."""

MIN_TIME_S = 120
"""The service's lower limit of MaxRuntimeInSeconds."""

NUMBER = r"-?[0-9][0-9.e+-]*"


def make_request(
    name: str,
    sweep: SweepWorkload,
    training: Mapping[str, Any],
    *,
    parallel: int = 1,
    parents: Sequence[str] = (),
    takes_files: bool,
) -> dict[str, Any]:
    """Return the call that creates a tuning job.

    ``training`` is that of CreateTrainingJob for the sweep as one job.
    """
    _check(sweep, parallel)
    algorithm = training["AlgorithmSpecification"]
    static = {**(training.get("HyperParameters") or {}), "sagemaker_program": START}
    static["sagemaker_submit_directory"] = str(Paths().payload)
    # The "value" of a trial's event is the metric of the sweep. The pattern includes the text after
    # it, since a parameter may be called "value" too, and parameters come first.
    pattern = (
        re.escape('"kind": "trial", ').replace("\\ ", " ")
        + f'.*?"value": ({NUMBER}), "metrics": \\{{'
    )
    earlier = [{"HyperParameterTuningJobName": parent} for parent in parents]
    request = without_none(
        HyperParameterTuningJobName=name,
        HyperParameterTuningJobConfig=_config(sweep, parallel),
        TrainingJobDefinition={
            "StaticHyperParameters": static,
            "AlgorithmSpecification": {
                "TrainingImage": algorithm["TrainingImage"],
                "TrainingInputMode": algorithm["TrainingInputMode"],
                "MetricDefinitions": [{"Name": sweep.metric, "Regex": pattern}],
            },
            **{key: training[key] for key in KEPT if key in training},
        },
        # TransferLearning allows other ranges and data than those of the parents.
        WarmStartConfig={
            "ParentHyperParameterTuningJobs": earlier,
            "WarmStartType": "TransferLearning",
        }
        if earlier
        else None,
        Tags=training.get("Tags"),
    )
    for violation in violations("CreateHyperParameterTuningJob", request, takes_files=takes_files):
        where = ".".join(map(str, violation.path))
        raise InvalidRequest(
            f"a tuning job cannot have {where}={violation.value!r} ({violation.rule})"
        )
    return request


def _config(sweep: SweepWorkload, parallel: int) -> dict[str, Any]:
    is_grid = sweep.chosen_search == "grid"
    budget_s = sweep.time_budget_s
    ranges: dict[str, list[dict[str, Any]]] = {}
    for name, parameter in sweep.space.items():
        # The service's grids take no numbers: a grid lists each value.
        kind, item = parameter.to_tuning_list() if is_grid else parameter.to_tuning_range()
        ranges.setdefault(kind, []).append({"Name": name, **item})
    return without_none(
        Strategy=STRATEGIES[sweep.chosen_search],
        HyperParameterTuningJobObjective={
            "Type": "Minimize" if sweep.mode == "min" else "Maximize",
            "MetricName": sweep.metric,
        },
        ResourceLimits=without_none(
            # The service refuses a number for a grid, whose ranges determine it.
            MaxNumberOfTrainingJobs=None if is_grid else sweep.trials,
            MaxParallelTrainingJobs=parallel,
            MaxRuntimeInSeconds=None if budget_s is None else round(budget_s),
        ),
        ParameterRanges=ranges,
        TrainingJobEarlyStoppingType="Off" if sweep.stop is None else sweep.stop.service_rule,
        RandomSeed=sweep.seed,
    )


def _check(sweep: SweepWorkload, parallel: int) -> None:
    if sweep.draws_itself:
        raise InvalidRequest(
            "tune: the service needs a space of ranges, {'lr': raysm.loguniform(1e-4, 1e-1)}; a "
            "space that is a function needs raysm.submit(raysm.Sweep(…))"
        )
    if sweep.stop is not None and sweep.stop.service_rule is None:
        raise InvalidRequest(
            f"tune: stop={sweep.stop.kind!r} is not the service's: take 'median' (its early "
            "stopping), None, or a job"
        )
    if sweep.warm_start:
        raise InvalidRequest(
            "tune: warm_start is for sweeps on one cluster; name earlier tuning jobs: parents=[…]"
        )
    if sweep.concurrency is not None:
        raise InvalidRequest(
            f"tune: concurrency={sweep.concurrency} is for trials on one cluster; for a tuning job "
            "give parallel=…"
        )
    if type(parallel) is not int or parallel < 1:
        raise InvalidRequest(
            f"tune: parallel must be a whole number of at least 1, got {parallel!r}"
        )
    if sweep.time_budget_s is not None and sweep.time_budget_s < MIN_TIME_S:
        raise InvalidRequest(
            f"tune: time_budget_s is at least {MIN_TIME_S} for the service, got "
            f"{sweep.time_budget_s:g}"
        )


MAX_NAME = 32
"""Characters of a tuning job's name, by the service's model."""


@dataclass(frozen=True, kw_only=True)
class PreparedTuning:
    name: str
    sweep: SweepWorkload
    request: Mapping[str, Any]
    """The call that ``send`` makes."""
    job: Prepared
    """The sweep as one job, from which the jobs of the trials are made."""

    def send(self) -> Tuning:
        """Upload what has changed, send the call, and return the handle."""
        service = self.job.service
        trials = self.sweep.planned_trials
        with self.job.counted(name=self.name, jobs=trials), self.job.uploaded():
            service.call("sagemaker", "create_hyper_parameter_tuning_job", **self.request)
        parsers = {name: parameter.read for name, parameter in self.sweep.space.items()}
        return Tuning(self.name, self.sweep.metric, self.sweep.mode, parsers, service)


def prepare_tuning(
    job: Prepared, *, parallel: int = 1, parents: Sequence[str] = ()
) -> PreparedTuning:
    request = job.request
    sweep = require_sweep(job.request.workload)
    if request.kind != "training":
        raise InvalidRequest(f"tune: trials are training jobs, got kind={request.kind!r}")
    # A tuning job's definition has no key for the next two: they would be dropped silently.
    if request.checkpoint_uri is not None:
        raise InvalidRequest(
            "tune: all trials would have one checkpoint_uri; drop it, or send the sweep as a job"
        )
    if request.limits.max_restarts:
        raise InvalidRequest(
            f"tune: max_restarts={request.limits.max_restarts} is for jobs that raysm follows, but "
            "the service launches the trials of a tuning job; drop it, or give them more time "
            "(limits.max_runtime_s)"
        )
    if job.cap is not None:
        job = _cap_trial(job, sweep.planned_trials)
    # A warning only: it may be in the project's file for other jobs.
    if request.tracking is not None and not request.is_tracked_by_head:
        _log.warning(
            "tune: metrics of the trials are not copied to %s, a file of this machine that a "
            "tuning job cannot reach; an MLflow server (http://…, or an ARN) gets a run of each "
            "trial",
            request.tracking,
        )
    # A tuning job's name is shorter than a job's, because the names of its trials begin with it.
    suffix = f"{time.strftime('%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    begin = re.sub(r"[^a-zA-Z0-9-]", "-", job.task)[: MAX_NAME - len(suffix) - 1].strip("-")
    name = f"{begin}-{suffix}"
    call = make_request(
        name,
        sweep,
        job.plan.request,
        parallel=parallel,
        parents=parents,
        takes_files=job.service.target.takes_files,
    )
    return PreparedTuning(name=name, sweep=sweep, request=call, job=job)


def _cap_trial(job: Prepared, trials: int) -> Prepared:
    """Return the job of a trial, which may cost its part of ``max_cost``.

    The service bounds the number of trials and the time of each; it promises no sum of both.
    """
    assert job.cap is not None, "only called with one"
    limits = job.request.limits
    cluster = job.request.cluster
    try:
        part = cap(
            job.cap.max_cost / trials,
            usd_per_hour=job.cap.usd_per_hour,
            max_runtime_s=limits.max_runtime_s,
            keep_alive_s=cluster.keep_alive_s,
            min_s=MIN_PAID_S if job.service.target.is_billed else 1,
        )
    except InvalidRequest as error:
        raise InvalidRequest(
            f"tune: each of the {trials:,} trials may cost an equal part of "
            f"max_cost={job.cap.max_cost:g}, and {error}, or fewer trials"
        ) from None
    condition = {
        **job.plan.request["StoppingCondition"],
        "MaxRuntimeInSeconds": part.max_runtime_s,
    }
    environment = {**job.plan.request.get("Environment", {}), **part.environment}
    call = {**job.plan.request, "StoppingCondition": condition, "Environment": environment}
    return replace(job, cap=part, plan=replace(job.plan, request=call))


def tune(
    sweep: Sweep,
    *,
    parallel: int = 1,
    parents: "Sequence[str | Tuning]" = (),
    on: "Target | Service | None" = None,
    **options: Unpack[SubmitOptions],
) -> Tuning:
    """Send a sweep as a tuning job.

    The service searches, and each trial is a training job with its own cluster. This suits trials
    of half an hour and more, or a search that outlives this machine; many short trials are faster
    on the one cluster of ``raysm.submit(sweep)``. ``search="optuna"``, the default, is the
    service's Bayesian search; ``stop`` may be ``"median"``. The image of a trial must start raysm's
    bootstrap, as those of ``containers/`` do, or be one of AWS's framework images; neither was
    tried on AWS.

    Args:
        sweep: The sweep to try; its space holds ranges.
        parallel: Trials at a time, at most.
        parents: Earlier tuning jobs, up to five, from which the search learns before it begins.
        on: As for ``submit``.
        options: As for ``submit``; they apply to the job of each trial.

    Raises:
        InvalidRequest: The service cannot do what is asked for; nothing was uploaded.
        ServiceError: The service refused, or cannot be reached.
    """
    if not isinstance(sweep, Sweep):
        raise InvalidRequest(f"tune takes raysm.Sweep(…), got {sweep!r}")
    names = tuple(
        str(getattr(parent, "name", parent)) for parent in check_list("tune", "parents", parents)
    )
    return prepare_tuning(prepare(sweep, on=on, **options), parallel=parallel, parents=names).send()
