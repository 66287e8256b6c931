"""CreateTrainingJob: what the model does not check, and what it means for the instances of this machine."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from raysm.contract.job_api import TRAINING
from raysm.local.job_spec import Channel, Checkpoints, Group, JobSpec, number_hosts
from raysm.local.server.api_error import ApiError, validation
from raysm.local.server.definitions import Definition, Output, Source, command_of, local_part, seconds
from raysm.local.server.moto_services import ACCOUNT
from raysm.local.server.objects import Objects, join
from raysm.local.server.records import JobRecord

__all__ = ["check", "define", "image", "specify"]

DAY_S = 86_400
MAX_RUNTIME_S = TRAINING.max_runtime_days * DAY_S
MAX_INSTANCES = 240
"""As many as one network of this machine has addresses for."""


def check(request: Mapping[str, Any]) -> None:
    """Check the parts of a request against each other, as SageMaker does.

    Raises:
        ApiError: Something contradicts something else, or is not to be had here.
    """
    _check_resources(request["ResourceConfig"], bool(request.get("EnableManagedSpotTraining")))
    _check_times(request.get("StoppingCondition") or {}, bool(request.get("EnableManagedSpotTraining")))
    _check_algorithm(request)
    _check_channels(request)
    if (request.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug") and request.get("EnableNetworkIsolation"):
        raise validation("RemoteDebugConfig: EnableRemoteDebug is not supported with EnableNetworkIsolation")
    if request.get("CheckpointConfig"):
        _checkpoint_place(request)


def _check_resources(resources: Mapping[str, Any], spot: bool) -> None:
    groups = resources.get("InstanceGroups") or []
    plain = resources.get("InstanceType") is not None or resources.get("InstanceCount") is not None
    if groups and plain:
        raise validation("ResourceConfig: give either InstanceGroups, or InstanceType and InstanceCount, not both")
    if not groups and not (resources.get("InstanceType") and resources.get("InstanceCount")):
        raise validation("ResourceConfig: InstanceType and InstanceCount, at least 1, are required")
    names = [group.get("InstanceGroupName") for group in groups]
    if len(set(names)) != len(names):
        raise validation(f"ResourceConfig: instance groups must have distinct names, got {', '.join(map(str, names))}")
    count = sum(group.get("InstanceCount") or 0 for group in groups) if groups else resources["InstanceCount"]
    if groups and not all(group.get("InstanceCount") for group in groups):
        raise validation("ResourceConfig: each instance group needs an InstanceCount of at least 1")
    if count > MAX_INSTANCES:
        raise ApiError(
            "ResourceLimitExceeded",
            f"The account-level service limit is {MAX_INSTANCES} instances on this machine, with a request delta of "
            f"{count} instances",
        )
    if spot and resources.get("KeepAlivePeriodInSeconds"):
        raise validation("ResourceConfig: KeepAlivePeriodInSeconds is not supported with EnableManagedSpotTraining")
    if spot and resources.get("TrainingPlanArn"):
        raise validation("ResourceConfig: TrainingPlanArn is not supported with EnableManagedSpotTraining")


def _check_times(condition: Mapping[str, Any], spot: bool) -> None:
    runtime, wait = condition.get("MaxRuntimeInSeconds") or DAY_S, condition.get("MaxWaitTimeInSeconds")
    if runtime > MAX_RUNTIME_S:
        raise ApiError(
            "ResourceLimitExceeded",
            f"StoppingCondition: MaxRuntimeInSeconds is {runtime}, the maximum is {MAX_RUNTIME_S} "
            f"({TRAINING.max_runtime_days} days)",
        )
    if spot and wait is None:
        raise validation("MaxWaitTimeInSeconds must be present when EnableManagedSpotTraining is set to true")
    if wait is not None and not spot:
        raise validation("MaxWaitTimeInSeconds is only supported when EnableManagedSpotTraining is set to true")
    if wait is not None and wait < runtime:
        raise validation(f"MaxWaitTimeInSeconds ({wait}) must be at least MaxRuntimeInSeconds ({runtime})")


def _check_algorithm(request: Mapping[str, Any]) -> None:
    algorithm = request.get("AlgorithmSpecification")
    if not algorithm:
        raise validation("AlgorithmSpecification is required")
    if not algorithm.get("TrainingImage"):
        raise validation("AlgorithmSpecification: TrainingImage is required; AlgorithmName is not available here")
    if algorithm.get("TrainingInputMode") == "Pipe":
        raise validation("TrainingInputMode Pipe is not available here; use File or FastFile")
    command_of(algorithm["TrainingImage"], algorithm.get("ContainerEntrypoint"), algorithm.get("ContainerArguments"))


def _check_channels(request: Mapping[str, Any]) -> None:
    channels = request.get("InputDataConfig") or []
    names = [channel["ChannelName"] for channel in channels]
    if len(set(names)) != len(names):
        raise validation(f"InputDataConfig: channel names must be unique, got {', '.join(names)}")
    groups = {group["InstanceGroupName"] for group in request["ResourceConfig"].get("InstanceGroups") or []}
    named = []
    for channel in channels:
        name, source = channel["ChannelName"], channel["DataSource"].get("S3DataSource")
        if name in (".", ".."):
            raise validation(f"channel {name!r}: the name would be a folder's that is there already; give another")
        if source is None:
            raise validation(f"channel {name!r}: only S3DataSource is available here")
        if source["S3DataType"] not in ("S3Prefix", "ManifestFile"):
            raise validation(f"channel {name!r}: S3DataType {source['S3DataType']} is not available here")
        if channel.get("InputMode") == "Pipe":
            raise validation(f"channel {name!r}: InputMode Pipe is not available here; use File or FastFile")
        if channel.get("CompressionType", "None") != "None":
            raise validation(f"channel {name!r}: CompressionType is supported in Pipe mode only")
        asked = source.get("InstanceGroupNames") or []
        unknown = sorted(set(asked) - groups)
        if unknown:
            raise validation(f"channel {name!r}: {unknown[0]!r} is no instance group of this job")
        named.append(bool(asked))
    if any(named) and not all(named):
        raise validation("InputDataConfig: either all channels name InstanceGroupNames, or none does")


def image(request: Mapping[str, Any]) -> str:
    """Return the image that a checked request names."""
    return str(request["AlgorithmSpecification"]["TrainingImage"])


def _groups(resources: Mapping[str, Any]) -> tuple[Group, ...]:
    groups = [
        (group["InstanceGroupName"], group["InstanceType"], group["InstanceCount"])
        for group in resources.get("InstanceGroups") or []
    ]
    plain = ("homogeneousCluster", resources.get("InstanceType", ""), resources.get("InstanceCount", 0))
    return number_hosts(*(groups or [plain]))


def define(record: JobRecord) -> Definition:
    """Say what the lifecycle has to do for a job."""
    request = record.request
    condition, given = request.get("StoppingCondition") or {}, request["OutputDataConfig"]
    prefix = join(given["S3OutputPath"], record.name, "output")
    archived = given.get("CompressionType", "GZIP") == "GZIP"
    suffix = ".tar.gz" if archived else ""
    model = f"{prefix}/model{suffix}"
    sources = [
        Source(
            name=channel["ChannelName"],
            uri=channel["DataSource"]["S3DataSource"]["S3Uri"],
            manifest=channel["DataSource"]["S3DataSource"]["S3DataType"] == "ManifestFile",
        )
        for channel in request.get("InputDataConfig") or []
    ]
    wait = condition.get("MaxWaitTimeInSeconds")
    pending = condition.get("MaxPendingTimeInSeconds")
    return Definition(
        sources=sources,
        outputs=[
            Output(
                place=PurePosixPath("model"), uri=model, archive=archived, even_empty=archived, only_of_the_good=True
            ),
            # Also of a job that failed: what it left there is meant to tell why.
            Output(
                place=PurePosixPath("output/data"),
                uri=f"{prefix}/output.tar.gz" if archived else f"{prefix}/data",
                archive=archived,
            ),
        ],
        instances=sum(len(group.hosts) for group in _groups(request["ResourceConfig"])),
        max_runtime_s=seconds(condition, "MaxRuntimeInSeconds", DAY_S),
        max_wait_s=None if wait is None else float(wait),
        max_pending_s=None if pending is None else float(pending),
        spot=bool(request.get("EnableManagedSpotTraining")),
        metrics=request["AlgorithmSpecification"].get("MetricDefinitions") or (),
        artifacts=model,
        kms_key=given.get("KmsKeyId") or None,
    )


def specify(record: JobRecord, objects: Objects, sources: Mapping[str, tuple[Path, bool]]) -> JobSpec:
    """Return what runs.

    Args:
        record: The job.
        objects: Where checkpoints are kept.
        sources: By channel: where its data lies, and whether it is the job's own.
    """
    request = record.request
    algorithm = request["AlgorithmSpecification"]
    kept = request.get("CheckpointConfig")
    checkpoints = None
    if kept:
        store = objects.checkpoints(kept["S3Uri"])
        checkpoints = Checkpoints(store=store, uri=kept["S3Uri"], target=_checkpoint_place(request))
    return JobSpec(
        name=record.name,
        account=ACCOUNT,
        region=record.region,
        groups=_groups(request["ResourceConfig"]),
        command=command_of(
            algorithm["TrainingImage"], algorithm.get("ContainerEntrypoint"), algorithm.get("ContainerArguments")
        ),
        channels=tuple(_channel(channel, *sources[channel["ChannelName"]]) for channel in _channels(request)),
        environment=request.get("Environment") or {},
        hyperparameters=request.get("HyperParameters") or {},
        checkpoints=checkpoints,
    )


def _channels(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(request.get("InputDataConfig") or [])


def _channel(given: Mapping[str, Any], source: Path, owned: bool) -> Channel:
    asked = given["DataSource"]["S3DataSource"]
    return Channel(
        name=given["ChannelName"],
        source=source,
        owned=owned,
        distribution=asked.get("S3DataDistributionType") or "FullyReplicated",
        content_type=given.get("ContentType"),
        record_wrapper=given.get("RecordWrapperType") or "None",
        groups=tuple(asked.get("InstanceGroupNames") or ()),
    )


def _checkpoint_place(request: Mapping[str, Any]) -> PurePosixPath:
    path = request["CheckpointConfig"].get("LocalPath") or "/opt/ml/checkpoints"
    return local_part("CheckpointConfig: LocalPath", path.rstrip("/"))
