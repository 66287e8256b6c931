"""Rules of SageMaker that its service model lacks, each with the page that documents it.

The client checks these rules before it uploads anything, and the embedded SageMaker refuses what
breaks them. Each rule takes the parameters of a Create call that follows the model, and yields what
is wrong, in AWS's words.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from raysm.core.protocol.instance_types import has_local_storage, local_storage_gb
from raysm.core.protocol.job_api import APIS, PROCESSING, TRAINING, JobApi, preferred
from raysm.core.request.limits import MAX_RUNTIME_S

DEFAULT_RUNTIME_S = 86_400
REFERENCE = "https://docs.aws.amazon.com/sagemaker/latest/APIReference"
GUIDE = "https://docs.aws.amazon.com/sagemaker/latest/dg"
Parameters: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[[Parameters], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Breach:
    message: str
    source: str
    remedy: str
    """A remedy in raysm's options; empty if the message says it."""
    is_quota: bool
    """True for a limit of the account, which AWS can raise."""


RULES: Mapping[JobApi, list[tuple[Check, Callable[[str], Breach]]]] = {api: [] for api in APIS}


def breaches(api: JobApi, parameters: Parameters) -> Iterator[Breach]:
    for check, breach in RULES[api]:
        yield from map(breach, check(parameters))


def _rule(
    *apis: JobApi, source: str, remedy: str = "", is_quota: bool = False
) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        for api in apis:
            RULES[api].append(
                (check, partial(Breach, source=source, remedy=remedy, is_quota=is_quota))
            )
        return check

    return add


@_rule(TRAINING, source=f"{GUIDE}/train-heterogeneous-cluster-how-to-configure.html")
def _type_or_groups(request: Parameters) -> Iterator[str]:
    resources = request["ResourceConfig"]
    groups = resources.get("InstanceGroups") or []
    if groups and (
        resources.get("InstanceType") is not None or resources.get("InstanceCount") is not None
    ):
        yield (
            "ResourceConfig: give either InstanceGroups, "
            "or InstanceType and InstanceCount, not both"
        )
    # The model allows a count of 0, which stands for no count beside groups.
    if (
        not groups
        and not preferred(resources)
        and not (resources.get("InstanceType") and resources.get("InstanceCount"))
    ):
        yield "ResourceConfig: InstanceType and InstanceCount, at least 1, are required"


@_rule(TRAINING, source=f"{REFERENCE}/API_InstanceGroup.html")
def _groups(request: Parameters) -> Iterator[str]:
    groups = request["ResourceConfig"].get("InstanceGroups") or []
    names = [group.get("InstanceGroupName") for group in groups]
    if len(set(names)) != len(names):
        yield (
            "ResourceConfig: instance groups must have distinct names, "
            f"got {', '.join(map(str, names))}"
        )
    # The model allows a count of 0 in groups too.
    if not all(group.get("InstanceCount") for group in groups):
        yield "ResourceConfig: each instance group needs an InstanceCount of at least 1"


@_rule(TRAINING, source=f"{REFERENCE}/API_StoppingCondition.html", is_quota=True)
def _runtime(request: Parameters) -> Iterator[str]:
    # For Processing, the model has the limit.
    runtime = (request.get("StoppingCondition") or {}).get(
        "MaxRuntimeInSeconds"
    ) or DEFAULT_RUNTIME_S
    if runtime > MAX_RUNTIME_S:
        days = MAX_RUNTIME_S // 86_400
        yield (
            f"StoppingCondition: MaxRuntimeInSeconds is {runtime}, "
            f"the maximum is {MAX_RUNTIME_S} ({days} days)"
        )


@_rule(TRAINING, source=f"{REFERENCE}/API_StoppingCondition.html")
def _spot_wait(request: Parameters) -> Iterator[str]:
    spot = bool(request.get("EnableManagedSpotTraining"))
    condition = request.get("StoppingCondition") or {}
    wait = condition.get("MaxWaitTimeInSeconds")
    # Without a run time the API takes its default of a day.
    runtime = condition.get("MaxRuntimeInSeconds") or DEFAULT_RUNTIME_S
    if spot and wait is None:
        yield "MaxWaitTimeInSeconds must be present when EnableManagedSpotTraining is set to true"
    if wait is not None and not spot:
        yield "MaxWaitTimeInSeconds is only supported when EnableManagedSpotTraining is set to true"
    if wait is not None and wait < runtime:
        yield f"MaxWaitTimeInSeconds ({wait}) must be at least MaxRuntimeInSeconds ({runtime})"


@_rule(
    TRAINING,
    source=f"{REFERENCE}/API_ResourceConfig.html",
    remedy="drop cluster.alternatives or limits.spot",
)
def _preferences(request: Parameters) -> Iterator[str]:
    resources = request["ResourceConfig"]
    choices = resources.get("InstancePreferences") or []
    if not choices:
        return
    for name in ("InstanceType", "InstanceGroups", "InstancePlacementConfig"):
        if resources.get(name) is not None:
            yield f"ResourceConfig: give either InstancePreferences or {name}, not both"
    if request.get("EnableManagedSpotTraining"):
        yield "ResourceConfig: InstancePreferences is not supported with EnableManagedSpotTraining"
    names = [each["InstanceType"] for each in choices]
    if len(set(names)) != len(names):
        yield (
            "ResourceConfig: an instance type can appear only once in InstancePreferences, "
            f"got {', '.join(names)}"
        )
    if resources.get("TrainingPlanArn") and any(each.get("TrainingPlanArns") for each in choices):
        yield "ResourceConfig: give either TrainingPlanArn or TrainingPlanArns, not both"
    counts = [each.get("InstanceCount") for each in choices]
    # The model allows 0, which stands for no count.
    if any(counts) if resources.get("InstanceCount") else not all(counts):
        yield (
            "ResourceConfig: give InstanceCount once, "
            "or with each of InstancePreferences, at least 1"
        )


@_rule(
    TRAINING,
    source=f"{GUIDE}/train-warm-pools.html",
    remedy="drop --keep-alive (keep_alive_s), or --spot and instance groups",
)
def _warm_pool(request: Parameters) -> Iterator[str]:
    resources = request["ResourceConfig"]
    # 0 asks for no pool, and is allowed beside groups and spot.
    if not resources.get("KeepAlivePeriodInSeconds"):
        return
    if request.get("EnableManagedSpotTraining"):
        yield (
            "ResourceConfig: "
            "KeepAlivePeriodInSeconds is not supported with EnableManagedSpotTraining"
        )
    if resources.get("InstanceGroups"):
        yield "ResourceConfig: KeepAlivePeriodInSeconds is not supported with InstanceGroups"


@_rule(TRAINING, source=f"{REFERENCE}/API_Channel.html")
def _channel_names(request: Parameters) -> Iterator[str]:
    names = [channel["ChannelName"] for channel in request.get("InputDataConfig") or []]
    if len(set(names)) != len(names):
        yield f"InputDataConfig: channel names must be unique, got {', '.join(names)}"
    for name in names:
        # The model's pattern allows them, and the embedded SageMaker makes a folder of each
        # channel's name.
        if name in (".", ".."):
            yield f"channel {name!r}: a folder of that name exists already; give another name"


@_rule(TRAINING, source=f"{REFERENCE}/API_Channel.html")
def _compression(request: Parameters) -> Iterator[str]:
    for channel in request.get("InputDataConfig") or []:
        if channel.get("CompressionType", "None") != "None" and channel.get("InputMode") != "Pipe":
            yield (
                f"channel {channel['ChannelName']!r}: "
                "CompressionType is supported in Pipe mode only"
            )


@_rule(TRAINING, source=f"{GUIDE}/train-heterogeneous-cluster-how-to-configure.html")
def _channel_groups(request: Parameters) -> Iterator[str]:
    groups = {
        group["InstanceGroupName"]
        for group in request["ResourceConfig"].get("InstanceGroups") or []
    }
    by_channel: dict[str, set[str]] = {}
    for channel in request.get("InputDataConfig") or []:
        # Only channels from S3 can name groups.
        source = channel["DataSource"].get("S3DataSource") or {}
        by_channel[channel["ChannelName"]] = set(source.get("InstanceGroupNames") or ())
    for name, names in by_channel.items():
        for unknown in sorted(names - groups):
            yield f"channel {name!r}: {unknown!r} is no instance group of this job"
    if any(by_channel.values()) and not all(by_channel.values()):
        yield "InputDataConfig: either all channels name InstanceGroupNames, or none does"


@_rule(
    TRAINING,
    source=f"{GUIDE}/model-access-training-data.html",
    remedy="give the object's folder, with a slash at the end, or mode='File'",
)
def _fast_file(request: Parameters) -> Iterator[str]:
    mode = request["AlgorithmSpecification"].get("TrainingInputMode")
    for channel in request.get("InputDataConfig") or []:
        source = channel["DataSource"].get("S3DataSource") or {}
        uri = source.get("S3Uri", "")
        # The job's mode is the default of its channels.
        if (channel.get("InputMode") or mode) != "FastFile":
            continue
        if source.get("S3DataType", "S3Prefix") != "S3Prefix":
            yield (
                f"channel {channel['ChannelName']!r}: "
                f"FastFile takes an S3Prefix, not {source['S3DataType']}"
            )
        # A URI with a suffix names one object: as a prefix it would match nothing, and the channel
        # would be empty.
        if PurePosixPath(uri).suffix and not uri.endswith("/"):
            yield (
                f"channel {channel['ChannelName']!r}: "
                f"FastFile takes a prefix, and {uri!r} is one object"
            )


@_rule(TRAINING, source=f"{GUIDE}/train-remote-debugging.html")
def _remote_debugging(request: Parameters) -> Iterator[str]:
    if (request.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug") and request.get(
        "EnableNetworkIsolation"
    ):
        yield "RemoteDebugConfig: EnableRemoteDebug is not supported with EnableNetworkIsolation"


@_rule(PROCESSING, source=f"{REFERENCE}/API_ProcessingInput.html")
def _processing_names(request: Parameters) -> Iterator[str]:
    outputs = (request.get("ProcessingOutputConfig") or {}).get("Outputs") or []
    names = [item["InputName"] for item in request.get("ProcessingInputs") or []]
    # Inputs and outputs share one set of names.
    names += [item["OutputName"] for item in outputs]
    if len(set(names)) != len(names):
        yield (
            "ProcessingInputs and ProcessingOutputConfig: "
            f"names must be unique, got {', '.join(names)}"
        )


@_rule(PROCESSING, source=f"{REFERENCE}/API_ProcessingS3Input.html")
def _processing_paths(request: Parameters) -> Iterator[str]:
    for item in request.get("ProcessingInputs") or []:
        source = item.get("S3Input") or {}
        # Without S3Input it is a DatasetDefinition, which has its own LocalPath.
        if source and not source.get("LocalPath") and not item.get("AppManaged"):
            yield (
                f"input {item['InputName']!r}: S3Input needs a LocalPath unless AppManaged is true"
            )


@_rule(
    TRAINING,
    PROCESSING,
    source=f"{REFERENCE}/API_ResourceConfig.html",
    remedy=(
        "the hardware encrypts these disks; drop --volume-kms-key (in Python: "
        "Security(volume_kms_key=…))"
    ),
)
def _volume_key(request: Parameters) -> Iterator[str]:
    path, resources, types = _volume_of(request)
    # The key is allowed if one of the groups has a volume.
    if resources.get("VolumeKmsKeyId") and types and all(map(has_local_storage, types)):
        yield (
            f"{path}: VolumeKmsKeyId is not supported for instance types with local "
            f"storage ({', '.join(types)})"
        )


@_rule(
    TRAINING,
    PROCESSING,
    source=f"{REFERENCE}/API_ResourceConfig.html",
    remedy="aws kms describe-key --key-id ALIAS prints both",
)
def _volume_key_form(request: Parameters) -> Iterator[str]:
    path, resources, _ = _volume_of(request)
    key = resources.get("VolumeKmsKeyId") or ""
    # The model's pattern allows an alias, so AWS would refuse it only after the upload.
    if key.startswith("alias/") or ":alias/" in key:
        yield (
            f"{path}: VolumeKmsKeyId is {key!r}, which is an alias; "
            "a volume takes only the ID or ARN of a key"
        )


@_rule(TRAINING, PROCESSING, source=f"{REFERENCE}/API_VpcConfig.html")
def _network_ids(request: Parameters) -> Iterator[str]:
    network = (
        request.get("VpcConfig") or (request.get("NetworkConfig") or {}).get("VpcConfig") or {}
    )
    # The model takes any letters, so AWS would refuse another ID only after the upload.
    for key, prefix in (("Subnets", "subnet-"), ("SecurityGroupIds", "sg-")):
        for name in network.get(key) or ():
            if not name.startswith(prefix):
                yield f"VpcConfig.{key}: {name!r} is not an ID, which begins with {prefix}"


@_rule(
    TRAINING,
    PROCESSING,
    source=f"{REFERENCE}/API_ProcessingClusterConfig.html",
    remedy="take a larger type, or read large inputs as FastFile",
)
def _volume_size(request: Parameters) -> Iterator[str]:
    path, resources, types = _volume_of(request)
    size_gb = resources.get("VolumeSizeInGB") or 0
    for name in types:
        room_gb = local_storage_gb(name)
        # Unknown sizes are not checked: a guess would refuse volumes that fit.
        if room_gb is not None and size_gb > room_gb:
            yield (
                f"{path}: VolumeSizeInGB is {size_gb}, "
                f"and {name} has {room_gb} GB of local storage in its place"
            )


def _volume_of(request: Parameters) -> tuple[str, Parameters, list[str]]:
    """Return the path of the structure with the volume's size, that structure, and its types.

    The types are those of instances.
    """
    path = "ResourceConfig" if "ResourceConfig" in request else "ProcessingResources.ClusterConfig"
    resources: Any = request
    for key in path.split("."):
        resources = resources[key]
    clusters = (
        resources.get("InstanceGroups") or resources.get("InstancePreferences") or [resources]
    )
    return (
        path,
        resources,
        [cluster["InstanceType"] for cluster in clusters if cluster.get("InstanceType")],
    )


@_rule(TRAINING, PROCESSING, source=f"{REFERENCE}/API_Tag.html")
def _tags(request: Parameters) -> Iterator[str]:
    keys = [tag["Key"] for tag in request.get("Tags") or []]
    for key in keys:
        # AWS reserves the prefix in upper case too.
        if key.lower().startswith("aws:"):
            yield f"Tags: the key {key!r} begins with aws:, which is reserved"
    if len(set(keys)) != len(keys):
        yield f"Tags: keys must be unique, got {', '.join(keys)}"
