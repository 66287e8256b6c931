"""The training jobs that a tuning job launches: its request flows in, definitions and their CreateTrainingJob flow out.

What a definition says is checked as the training jobs will be, before there is a tuning job: one that could launch
nothing is refused, as AWS refuses it.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.contract.job_api import TRAINING
from raysm.contract.names import TUNING_OBJECTIVE
from raysm.local.server.api_error import validation
from raysm.local.server.served_apis import served
from raysm.local.server.tuning.ranges import read_ranges
from raysm.local.server.tuning.strategies import strategy_of
from raysm.local.server.tuning.strategies.strategy import Search, Strategy
from raysm.local.server.tuning.trial import Assignment, Objective
from raysm.local.server.validation import check, check_unwritten

__all__ = ["Definition", "check_definitions", "definitions_of", "job_name", "most_jobs"]

PASSED_ON = (
    "RoleArn",
    "InputDataConfig",
    "VpcConfig",
    "OutputDataConfig",
    "StoppingCondition",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "CheckpointConfig",
    "RetryStrategy",
    "Environment",
)
"""What a definition and a training job say alike."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """One kind of training job of a tuning job."""

    name: str | None
    """DefinitionName; a tuning job of one definition need not name it."""
    body: Mapping[str, Any]
    """As the request has it."""
    objective: Objective
    """What counts."""
    search: Search
    """What its strategy goes by."""

    @property
    def spot(self) -> bool:
        """Whether its jobs run on spot capacity."""
        return bool(self.body.get("EnableManagedSpotTraining"))

    def strategy(self) -> Strategy:
        """Return what chooses for it."""
        return strategy_of(self.search.config)(self.search)

    def request(self, name: str, assignment: Assignment) -> dict[str, Any]:
        """Return the CreateTrainingJob of one of its jobs."""
        # A definition knows no entry point, nor the switch for the metrics' time series: the image begins as it does.
        algorithm = {key: value for key, value in self.body["AlgorithmSpecification"].items() if value is not None}
        static = {str(key): str(value) for key, value in self.search.static.items()}
        return {
            "TrainingJobName": name,
            "AlgorithmSpecification": algorithm,
            "HyperParameters": {**static, **assignment, TUNING_OBJECTIVE: self.objective.metric},
            "ResourceConfig": _resources(self.body),
            **{key: self.body[key] for key in PASSED_ON if self.body.get(key) is not None},
        }


def definitions_of(request: Mapping[str, Any], seed: int) -> tuple[Definition, ...]:
    """Return what a request launches.

    Raises:
        ApiError: It says too little, too much, or what cannot be.
    """
    return tuple(_definitions(request, seed))


def _definitions(request: Mapping[str, Any], seed: int) -> Iterator[Definition]:
    config, single = request["HyperParameterTuningJobConfig"], request.get("TrainingJobDefinition")
    several = request.get("TrainingJobDefinitions") or []
    if bool(single) == bool(several):
        raise validation("Give either TrainingJobDefinition or TrainingJobDefinitions")
    for number, body in enumerate([single] if single else several):
        if several and not body.get("DefinitionName"):
            raise validation(f"TrainingJobDefinitions.{number + 1}.member: DefinitionName is required")
        goal = config.get("HyperParameterTuningJobObjective") if single else body.get("TuningObjective")
        ranges = config.get("ParameterRanges") if single else body.get("HyperParameterRanges")
        if not goal:
            # Of an algorithm of AWS's own it would follow from that; here are none.
            raise validation(
                "An objective is required: give HyperParameterTuningJobObjective, or TuningObjective of each"
            )
        static = {str(key): str(value) for key, value in (body.get("StaticHyperParameters") or {}).items()}
        # Not the same for all: two definitions of one range would try the same values.
        search = Search(ranges=read_ranges(ranges or {}), seed=seed + number, config=config, static=static)
        yield Definition(name=body.get("DefinitionName"), body=body, objective=Objective.of(goal), search=search)


def most_jobs(request: Mapping[str, Any], definitions: tuple[Definition, ...]) -> int | None:
    """Return how many training jobs there may be at most; None is as many as the time allows."""
    most = request["HyperParameterTuningJobConfig"]["ResourceLimits"].get("MaxNumberOfTrainingJobs")
    if most is not None:
        return int(most)
    defaults = [strategy_of(item.search.config).default_most(item.search) for item in definitions]
    counts = [count for count in defaults if count is not None]
    return sum(counts) if len(counts) == len(definitions) else None


def check_definitions(request: Mapping[str, Any], definitions: tuple[Definition, ...]) -> None:
    """Refuse what no training job could be launched by.

    Raises:
        ApiError: What.
    """
    limits = request["HyperParameterTuningJobConfig"]["ResourceLimits"]
    most = limits.get("MaxNumberOfTrainingJobs")
    if most_jobs(request, definitions) is None and limits.get("MaxRuntimeInSeconds") is None:
        raise validation("ResourceLimits: MaxNumberOfTrainingJobs or MaxRuntimeInSeconds is required")
    for definition in definitions:
        if not definition.search.ranges:
            raise validation("At least one hyperparameter must have a range")
        # Of several, each has a share of the number, which none need fill.
        strategy_of(definition.search.config).check(definition.search, most if len(definitions) == 1 else None)
        _check_metric(definition)
        _check_names(definition)
        _check_job(definition)


def _check_metric(definition: Definition) -> None:
    metrics = definition.body["AlgorithmSpecification"].get("MetricDefinitions") or []
    if definition.objective.metric not in [item["Name"] for item in metrics]:
        # As AWS words it: https://github.com/aws/amazon-sagemaker-examples/issues/1207
        raise validation(
            "A metric is required for this hyperparameter tuning job objective. Provide a metric in the metric "
            "definitions."
        )


def _check_names(definition: Definition) -> None:
    twice = sorted({item.name for item in definition.search.ranges} & set(definition.search.static))
    if twice:
        raise validation(
            f"The hyperparameter {twice[0]!r} is both static and tuned: leave it out of StaticHyperParameters, or of "
            "the ranges"
        )


def _check_job(definition: Definition) -> None:
    sample = definition.request("sample", {item.name: item.at(0.5) for item in definition.search.ranges})
    check("CreateTrainingJob", sample)
    check_unwritten(TRAINING, sample)
    served(TRAINING).check(sample)


def job_name(tuning: str, number: int) -> str:
    """Return the name of a training job: ``NAME-001-0a1b2c3d``, as the service names them."""
    return f"{tuning}-{number + 1:03}-{uuid.uuid4().hex[:8]}"


def _resources(body: Mapping[str, Any]) -> Mapping[str, Any]:
    config = body.get("HyperParameterTuningResourceConfig")
    if not config:
        if not body.get("ResourceConfig"):
            raise validation("Give ResourceConfig or HyperParameterTuningResourceConfig")
        resources: Mapping[str, Any] = body["ResourceConfig"]
        return resources
    # Prioritized, the one strategy that there is: the first of them, which a laptop always has.
    first = (config.get("InstanceConfigs") or [config])[0]
    names = ("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId")
    return {name: value for name in names if (value := first.get(name, config.get(name))) is not None}
