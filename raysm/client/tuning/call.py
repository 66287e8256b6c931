"""The parameters of CreateHyperParameterTuningJob. Pure: a sweep and the plan of its job flow in, the call flows out.

Every training job is the sweep's own job with one trial: the payload is the same, and the values of the trial arrive as
hyperparameters (``raysm.workloads.runners.sweep``). A definition has no place for an entry point. raysm's own image
begins with the bootstrap; for AWS's framework images two hyperparameters say the same, which raysm's passes over.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raysm.client.calls.parts import present
from raysm.contract.paths import Paths
from raysm.contract.seal import START
from raysm.contract.service_model import violations
from raysm.errors import InvalidRequest
from raysm.request.sweep import SweepWorkload

__all__ = ["TuningOptions", "request_of"]

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
