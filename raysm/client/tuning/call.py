"""A sweep as a tuning job of SageMaker: the Create call, and sending it."""

import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from raysm.client.calls import present
from raysm.client.options import SubmitOptions
from raysm.client.prepared import Prepared
from raysm.client.service import Service
from raysm.client.submit import prepare
from raysm.client.sweep import Sweep
from raysm.client.tuning.handle import Tuning, of_sweep
from raysm.contract.paths import Paths
from raysm.contract.seal import START
from raysm.contract.service_model import violations
from raysm.errors import InvalidRequest
from raysm.request import Target
from raysm.request.sweep import SweepWorkload, require_sweep

_log = logging.getLogger("raysm")


STRATEGIES: Mapping[str, str] = {"optuna": "Bayesian", "random": "Random", "grid": "Grid"}
"""By the sweep's search: ``optuna`` stands for the one that learns, which here is the service's own."""
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
"""What a definition takes of a training job. Not its checkpoints: all trials would have the same prefix."""
LEAST_TIME_S = 120
"""Of MaxRuntimeInSeconds, by the service's model."""
NUMBER = r"-?[0-9][0-9.e+-]*"
"""As JSON writes a finite number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningOptions:
    """What a tuning job is asked beside what its sweep says."""

    parallel: int = 1
    """Training jobs at a time, at most."""
    parents: tuple[str, ...] = ()
    """Names of tuning jobs, up to five, from which the search learns before it begins."""


def request_of(
    name: str, sweep: SweepWorkload, training: Mapping[str, Any], options: TuningOptions, *, takes_files: bool
) -> dict[str, Any]:
    """Return the call.

    Args:
        name: Of the tuning job.
        sweep: What is tried.
        training: The parameters of CreateTrainingJob for the whole sweep as one job.
        options: What else is asked for.
        takes_files: Whether the target takes ``file://`` where the API wants ``s3://``.

    Raises:
        InvalidRequest: The service cannot do what is asked for.
    """
    _check(sweep, options)
    algorithm = training["AlgorithmSpecification"]
    static = {**(training.get("HyperParameters") or {}), "sagemaker_program": START}
    static["sagemaker_submit_directory"] = str(Paths().payload)
    metrics = [{"Name": sweep.metric, "Regex": _regex()}]
    request = present(
        HyperParameterTuningJobName=name,
        HyperParameterTuningJobConfig=_config(sweep, options),
        TrainingJobDefinition={
            "StaticHyperParameters": static,
            "AlgorithmSpecification": {
                "TrainingImage": algorithm["TrainingImage"],
                "TrainingInputMode": algorithm["TrainingInputMode"],
                "MetricDefinitions": metrics,
            },
            **{key: training[key] for key in KEPT if key in training},
        },
        WarmStartConfig=_warm_start(options),
        Tags=training.get("Tags"),
    )
    for violation in violations("CreateHyperParameterTuningJob", request, takes_files=takes_files):
        where = ".".join(map(str, violation.path))
        raise InvalidRequest(f"a tuning job cannot have {where}={violation.value!r} ({violation.rule})")
    return request


def _config(sweep: SweepWorkload, options: TuningOptions) -> dict[str, Any]:
    is_grid = sweep.chosen_search == "grid"
    budget_s = sweep.time_budget_s
    return present(
        Strategy=STRATEGIES[sweep.chosen_search],
        HyperParameterTuningJobObjective={
            "Type": "Minimize" if sweep.mode == "min" else "Maximize",
            "MetricName": sweep.metric,
        },
        ResourceLimits=present(
            # Of a grid it is what its ranges have, and any other number is refused.
            MaxNumberOfTrainingJobs=None if is_grid else sweep.trials,
            MaxParallelTrainingJobs=options.parallel,
            MaxRuntimeInSeconds=None if budget_s is None else round(budget_s),
        ),
        ParameterRanges=_ranges(sweep, is_grid),
        TrainingJobEarlyStoppingType="Off" if sweep.stop is None else sweep.stop.service_rule,
        RandomSeed=sweep.seed,
    )


def _ranges(sweep: SweepWorkload, is_grid: bool) -> dict[str, list[dict[str, Any]]]:
    ranges: dict[str, list[dict[str, Any]]] = {}
    for name, parameter in sweep.space.items():
        # Of a grid each value by itself: the service's grids have no numbers.
        kind, item = parameter.listed() if is_grid else parameter.tuned()
        ranges.setdefault(kind, []).append({"Name": name, **item})
    return ranges


def _warm_start(options: TuningOptions) -> dict[str, Any] | None:
    if not options.parents:
        return None
    parents = [{"HyperParameterTuningJobName": name} for name in options.parents]
    # The one that lets ranges and data change between the two.
    return {"ParentHyperParameterTuningJobs": parents, "WarmStartType": "TransferLearning"}


def _regex() -> str:
    # Of the trial's events alone: their one value is the metric that counts, whatever else a trial reports. By what
    # stands behind it, since a parameter may be called "value" too, and parameters come first.
    return re.escape('"kind": "trial", ').replace("\\ ", " ") + f'.*?"value": ({NUMBER}), "metrics": \\{{'


def _check(sweep: SweepWorkload, options: TuningOptions) -> None:
    if sweep.draws_itself:
        raise InvalidRequest(
            "tune: the service draws by ranges, {'lr': raysm.loguniform(1e-4, 1e-1)}: a function that draws goes with "
            "raysm.submit(raysm.Sweep(…))"
        )
    # By its name for the service: a rule that has none there cannot be asked for.
    if sweep.stop is not None and sweep.stop.service_rule is None:
        raise InvalidRequest(
            f"tune: stop={sweep.stop.kind!r} is not the service's: take stop='median' (its early stopping), None, or "
            "raysm.submit(raysm.Sweep(…))"
        )
    if sweep.warm_start:
        raise InvalidRequest("tune: warm_start is of sweeps on one cluster; name earlier tuning jobs: parents=[…]")
    if sweep.concurrency is not None:
        raise InvalidRequest(
            f"tune: concurrency={sweep.concurrency} is of trials on one cluster; of a tuning job say parallel=…"
        )
    if type(options.parallel) is not int or options.parallel < 1:
        raise InvalidRequest(f"tune: parallel must be a whole number of at least 1, got {options.parallel!r}")
    if sweep.time_budget_s is not None and sweep.time_budget_s < LEAST_TIME_S:
        raise InvalidRequest(
            f"tune: time_budget_s is at least {LEAST_TIME_S} for the service, got {sweep.time_budget_s:g}"
        )


LONGEST_NAME = 32
"""Of a tuning job's name, by the service's model."""


@dataclass(frozen=True, kw_only=True)
class PreparedTuning:
    """A tuning job that is ready to be sent; nothing of it is on the service yet."""

    name: str
    """Of the tuning job."""
    sweep: SweepWorkload
    """What is tried."""
    request: Mapping[str, Any]
    """The call that ``send`` makes, as it is."""
    job: Prepared
    """The sweep as one job, of which each trial's is made."""

    def send(self) -> Tuning:
        """Upload what has changed, send the call, and return the handle.

        Raises:
            ServiceError: The service refused; nothing of the tuning job is left but data that can be used again.
        """
        service = self.job.service
        with self.job.brought():
            service.call("sagemaker", "create_hyper_parameter_tuning_job", **self.request)
        return Tuning(self.name, of_sweep(self.sweep), service)


def prepare_tuning(job: Prepared, options: TuningOptions) -> PreparedTuning:
    """Make a tuning job of a sweep that would else be one job; nothing is sent.

    Args:
        job: The sweep as one job.
        options: What a tuning job is asked beside.

    Raises:
        InvalidRequest: The service cannot do what is asked for.
    """
    request, sweep = job.request, require_sweep(job.request.workload)
    if request.kind != "training":
        raise InvalidRequest(f"tune: trials are training jobs, got kind={request.kind!r}")
    # Else they would be dropped without a word: a definition has a place for neither.
    if request.checkpoint_uri is not None:
        raise InvalidRequest(
            "tune: all trials of a tuning job would have one checkpoint_uri; drop it, and let the trials be short, or "
            "send the sweep as a job"
        )
    if request.limits.max_restarts:
        raise InvalidRequest(
            f"tune: max_restarts={request.limits.max_restarts} is of a job that raysm follows, and the trials of a "
            "tuning job are launched by the service; drop it, or give them more time (limits.max_runtime_s)"
        )
    # No refusal: it may stand in the project's file, for its other jobs.
    if request.tracking is not None and not request.is_tracked_by_head:
        _log.warning(
            "tune: the trials are not copied to %s, a file of this machine, which a tuning job does not reach; an "
            "MLflow server (http://…, or an ARN) gets a run of each",
            request.tracking,
        )
    # Not the job's: a tuning job's name has half the characters, and its trials' begin with it.
    name = _name(job.task)
    call = request_of(name, sweep, job.plan.request, options, takes_files=job.service.target.takes_files)
    return PreparedTuning(name=name, sweep=sweep, request=call, job=job)


def tune(
    sweep: Sweep,
    *,
    parallel: int = 1,
    parents: "Sequence[str | Tuning]" = (),
    on: "Target | Service | None" = None,
    **options: Unpack[SubmitOptions],
) -> Tuning:
    """Have the service search: a tuning job, whose trials are training jobs with a cluster each.

    For trials of half an hour and more, or a search that outlives this machine; many short trials are faster on the one
    cluster of ``raysm.submit(sweep)``. ``search="optuna"``, the default, is the service's Bayesian search; ``stop`` may
    be ``"median"``. A trial's image has to begin with raysm's bootstrap, as those of ``containers/`` do, or be one of
    AWS's framework images; neither was seen on AWS.

    Args:
        sweep: What is tried; its space are ranges.
        parallel: Trials at a time, at most.
        parents: Earlier tuning jobs, up to five, from which the search learns before it begins.
        on: As for ``submit``.
        options: As for ``submit``; of each trial's job.

    Raises:
        InvalidRequest: The service cannot do what is asked for; nothing was uploaded.
        ServiceError: The service refused, or cannot be reached.
    """
    if not isinstance(sweep, Sweep):
        raise InvalidRequest(f"tune takes raysm.Sweep(…), got {sweep!r}")
    names = tuple(str(getattr(parent, "name", parent)) for parent in parents)
    tuning = TuningOptions(parallel=parallel, parents=names)
    return prepare_tuning(prepare(sweep, on=on, **options), tuning).send()


def _name(task: str) -> str:
    # The second and some chance: each call is a tuning job of its own, and all have to differ.
    suffix = f"{time.strftime('%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    begin = re.sub(r"[^a-zA-Z0-9-]", "-", task)[: LONGEST_NAME - len(suffix) - 1].strip("-")
    return f"{begin}-{suffix}"
