"""CreateTrainingJob: what is refused here, and what a request means for its instances."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from raysm.core.protocol.job_api import settled
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.service_rules import DEFAULT_RUNTIME_S
from raysm.core.request.file_systems import KINDS
from raysm.local.instances.network import MAX_INSTANCES
from raysm.local.job_spec import Channel, Checkpoints, Group, JobSpec, number_hosts
from raysm.local.server.definitions import (
    Definition,
    Output,
    Source,
    Sources,
    build_command,
    local_part,
    seconds,
)
from raysm.local.server.moto_services import ACCOUNT
from raysm.local.server.objects import Objects, join
from raysm.local.server.records import JobRecord
from raysm.local.server.validation import ApiError, validation


def check(request: Mapping[str, Any]) -> None:
    """Raise ApiError for what is not available on this machine, with what to use instead."""
    count = sum(len(group.hosts) for group in _groups(request["ResourceConfig"]))
    # A network of instances has the addresses of one /24.
    if count > MAX_INSTANCES:
        raise ApiError(
            "ResourceLimitExceeded",
            f"The account-level service limit is {MAX_INSTANCES} instances on this machine, with a "
            f"request delta of {count} instances",
        )
    algorithm = request.get("AlgorithmSpecification")
    # botocore's model requires neither AlgorithmSpecification nor the image.
    if not algorithm:
        raise validation("AlgorithmSpecification is required")
    if not algorithm.get("TrainingImage"):
        raise validation(
            "AlgorithmSpecification: TrainingImage is required; AlgorithmName is not available here"
        )
    if algorithm.get("TrainingInputMode") == "Pipe":
        raise validation("TrainingInputMode Pipe is not available here; use File or FastFile")
    for channel in _channels(request):
        name = channel["ChannelName"]
        source = channel["DataSource"].get("S3DataSource")
        if source is None:
            if "FileSystemDataSource" not in channel["DataSource"]:
                raise validation(
                    f"channel {name!r}: only S3DataSource and FileSystemDataSource are "
                    "available here"
                )
            continue
        if source["S3DataType"] not in ("S3Prefix", "ManifestFile"):
            raise validation(
                f"channel {name!r}: S3DataType {source['S3DataType']} is not available here"
            )
        if channel.get("InputMode") == "Pipe":
            raise validation(
                f"channel {name!r}: InputMode Pipe is not available here; use File or FastFile"
            )
    if request.get("CheckpointConfig"):
        _checkpoint_place(request)


def image(request: Mapping[str, Any]) -> str:
    return str(request["AlgorithmSpecification"]["TrainingImage"])


def _groups(resources: Mapping[str, Any]) -> tuple[Group, ...]:
    named = resources.get("InstanceGroups") or []
    groups = [
        (group["InstanceGroupName"], group["InstanceType"], group["InstanceCount"])
        for group in named
    ]
    resources = settled(resources)
    # SageMaker's name of the group of a plain job.
    plain = (
        "homogeneousCluster",
        resources.get("InstanceType", ""),
        resources.get("InstanceCount", 0),
    )
    return number_hosts(*(groups or [plain]))


def define(record: JobRecord) -> Definition:
    request = record.request
    condition = request.get("StoppingCondition") or {}
    output = request["OutputDataConfig"]
    prefix = join(output["S3OutputPath"], record.name, "output")
    # SageMaker compresses by default.
    archived = output.get("CompressionType", "GZIP") == "GZIP"
    suffix = ".tar.gz" if archived else ""
    model = f"{prefix}/model{suffix}"
    sources = [
        Source(
            name=channel["ChannelName"],
            uri=_uri_of(channel["DataSource"]),
            manifest=_s3_source(channel).get("S3DataType") == "ManifestFile",
        )
        for channel in request.get("InputDataConfig") or []
    ]
    wait = condition.get("MaxWaitTimeInSeconds")
    pending = condition.get("MaxPendingTimeInSeconds")
    return Definition(
        sources=sources,
        outputs=[
            # An empty archive too, because ModelArtifacts always names it.
            Output(
                place=PurePosixPath("model"),
                uri=model,
                archive=archived,
                even_empty=archived,
                unless_failed=True,
            ),
            # Uploaded after a failure too: it may show the cause.
            Output(
                place=PurePosixPath("output/data"),
                uri=f"{prefix}/output.tar.gz" if archived else f"{prefix}/data",
                archive=archived,
            ),
        ],
        instances=sum(len(group.hosts) for group in _groups(request["ResourceConfig"])),
        max_runtime_s=seconds(condition, "MaxRuntimeInSeconds", DEFAULT_RUNTIME_S),
        max_wait_s=None if wait is None else float(wait),
        max_pending_s=None if pending is None else float(pending),
        spot=bool(request.get("EnableManagedSpotTraining")),
        retries=int((request.get("RetryStrategy") or {}).get("MaximumRetryAttempts", 0)),
        metrics=request["AlgorithmSpecification"].get("MetricDefinitions") or (),
        artifacts=model,
        kms_key=output.get("KmsKeyId") or None,
    )


def specify(record: JobRecord, objects: Objects, sources: Sources) -> JobSpec:
    request = record.request
    state = request.get("CheckpointConfig")
    checkpoints = None
    if state:
        store = objects.checkpoints(state["S3Uri"])
        checkpoints = Checkpoints(
            store=store, uri=state["S3Uri"], target=_checkpoint_place(request)
        )
    return JobSpec(
        name=record.name,
        account=ACCOUNT,
        region=record.region,
        groups=_groups(request["ResourceConfig"]),
        command=command(request),
        channels=tuple(
            _channel(channel, *sources[channel["ChannelName"]]) for channel in _channels(request)
        ),
        environment=request.get("Environment") or {},
        hyperparameters=request.get("HyperParameters") or {},
        checkpoints=checkpoints,
        description=request,
    )


def command(request: Mapping[str, Any]) -> tuple[str, ...]:
    algorithm = request["AlgorithmSpecification"]
    return build_command(
        algorithm.get("ContainerEntrypoint"), algorithm.get("ContainerArguments"), ["train"]
    )


def _channels(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(request.get("InputDataConfig") or [])


def _s3_source(channel: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the channel's source in S3; empty if it is on a file system."""
    return channel["DataSource"].get("S3DataSource") or {}


def _uri_of(source: Mapping[str, Any]) -> str:
    if "S3DataSource" in source:
        return str(source["S3DataSource"]["S3Uri"])
    mounted = source["FileSystemDataSource"]
    schemes = {kind: scheme for scheme, kind in KINDS.items()}
    # The service takes a directory without the slash, too.
    directory = mounted["DirectoryPath"].lstrip("/")
    return f"{schemes[mounted['FileSystemType']]}://{mounted['FileSystemId']}/{directory}"


def _channel(channel: Mapping[str, Any], source: Path, owned: bool) -> Channel:
    s3_source = _s3_source(channel)
    return Channel(
        name=channel["ChannelName"],
        source=source,
        owned=owned,
        is_mounted="FileSystemDataSource" in channel["DataSource"],
        distribution=s3_source.get("S3DataDistributionType") or "FullyReplicated",
        content_type=channel.get("ContentType"),
        record_wrapper=channel.get("RecordWrapperType") or "None",
        groups=tuple(s3_source.get("InstanceGroupNames") or ()),
    )


def _checkpoint_place(request: Mapping[str, Any]) -> PurePosixPath:
    path = str(request["CheckpointConfig"].get("LocalPath") or Paths().checkpoints)
    return local_part("CheckpointConfig: LocalPath", path.rstrip("/"))
