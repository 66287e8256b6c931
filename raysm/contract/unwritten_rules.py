"""What SageMaker refuses, or does not do, though its service model does not say so: one table for client and server.

What flows in are the parameters of a Create that keep to the model, what flows out are the rules that they break. Each
rule names its source; ``MODEL`` is the documentation that botocore's model carries at the member itself.

Not in the table, because sources contradict each other or say nothing: warm pools of more than an hour (the guide says
3,600 s, the model 21,600), and a training plan beside instance groups or a warm pool.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from raysm.contract.instance_types import has_local_storage, local_storage_gb
from raysm.contract.job_api import PROCESSING, TRAINING, JobApi, preferred
from raysm.request.limits import MAX_RUNTIME_S

__all__ = ["DEFAULT_RUNTIME_S", "GUIDE", "MODEL", "RULES", "Breach", "UnwrittenRule", "breaches"]

DEFAULT_RUNTIME_S = 86_400
"""Seconds that a job may run which does not say; the API's own default."""

MODEL = "https://docs.aws.amazon.com/sagemaker/latest/APIReference"
GUIDE = "https://docs.aws.amazon.com/sagemaker/latest/dg"

SEEN = date(2026, 11, 22)
"""When the sources said so."""

Parameters: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[[Parameters], Iterator[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class UnwrittenRule:
    """One rule that no model says."""

    check: Check
    """Yields what of a request breaks it, as AWS words it: the parameter, and what is wrong with it."""
    source: str
    """URL of the page that says so."""
    quote: str
    """Its words; empty where the page only says how it is meant to be."""
    seen: date = SEEN
    """When it said so."""
    is_quota: bool = False
    """Whether it is a limit of the account, which AWS can raise, rather than one of the API."""
    remedy: str = ""
    """What to do, in raysm's words; empty where the rule says it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Breach:
    """One place of a request that breaks a rule."""

    message: str
    """What is wrong."""
    rule: UnwrittenRule
    """With what."""

    @property
    def is_quota(self) -> bool:
        """Whether it is the account that is too small."""
        return self.rule.is_quota


def breaches(api: JobApi, parameters: Parameters) -> Iterator[Breach]:
    """Yield what of a request to make a job breaks which rule."""
    for rule in RULES[api]:
        for message in rule.check(parameters):
            yield Breach(message=message, rule=rule)


def _type_or_groups(request: Parameters) -> Iterator[str]:
    resources = request["ResourceConfig"]
    groups = resources.get("InstanceGroups") or []
    if groups and (resources.get("InstanceType") is not None or resources.get("InstanceCount") is not None):
        yield "ResourceConfig: give either InstanceGroups, or InstanceType and InstanceCount, not both"
    # The model takes a count of 0: with groups none is meant.
    if (
        not groups
        and not preferred(resources)
        and not (resources.get("InstanceType") and resources.get("InstanceCount"))
    ):
        yield "ResourceConfig: InstanceType and InstanceCount, at least 1, are required"


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
        yield f"ResourceConfig: an instance type can appear only once in InstancePreferences, got {', '.join(names)}"
    counts = [each.get("InstanceCount") for each in choices]
    # Zero, which the model takes, is none.
    if any(counts) if resources.get("InstanceCount") else not all(counts):
        yield "ResourceConfig: give InstanceCount once, or with each of InstancePreferences, at least 1"


def _groups(request: Parameters) -> Iterator[str]:
    groups = request["ResourceConfig"].get("InstanceGroups") or []
    names = [group.get("InstanceGroupName") for group in groups]
    if len(set(names)) != len(names):
        yield f"ResourceConfig: instance groups must have distinct names, got {', '.join(map(str, names))}"
    # The model's least count is 0 in groups too.
    if not all(group.get("InstanceCount") for group in groups):
        yield "ResourceConfig: each instance group needs an InstanceCount of at least 1"


def _spot_wait(request: Parameters) -> Iterator[str]:
    spot = bool(request.get("EnableManagedSpotTraining"))
    condition = request.get("StoppingCondition") or {}
    wait = condition.get("MaxWaitTimeInSeconds")
    # Who gives a wait alone gets the API's day, with which the wait is compared.
    runtime = condition.get("MaxRuntimeInSeconds") or DEFAULT_RUNTIME_S
    if spot and wait is None:
        yield "MaxWaitTimeInSeconds must be present when EnableManagedSpotTraining is set to true"
    if wait is not None and not spot:
        yield "MaxWaitTimeInSeconds is only supported when EnableManagedSpotTraining is set to true"
    if wait is not None and wait < runtime:
        yield f"MaxWaitTimeInSeconds ({wait}) must be at least MaxRuntimeInSeconds ({runtime})"


def _warm_pool(request: Parameters) -> Iterator[str]:
    resources = request["ResourceConfig"]
    # 0 asks for no pool, and may stand beside groups and spot.
    if not resources.get("KeepAlivePeriodInSeconds"):
        return
    if request.get("EnableManagedSpotTraining"):
        yield "ResourceConfig: KeepAlivePeriodInSeconds is not supported with EnableManagedSpotTraining"
    if resources.get("InstanceGroups"):
        yield "ResourceConfig: KeepAlivePeriodInSeconds is not supported with InstanceGroups"


def _training_plan(request: Parameters) -> Iterator[str]:
    if request.get("EnableManagedSpotTraining") and request["ResourceConfig"].get("TrainingPlanArn"):
        yield "ResourceConfig: TrainingPlanArn is not supported with EnableManagedSpotTraining"


def _runtime(request: Parameters) -> Iterator[str]:
    # Of Processing the model itself says how long a job may run.
    runtime = (request.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds") or DEFAULT_RUNTIME_S
    if runtime > MAX_RUNTIME_S:
        days = MAX_RUNTIME_S // 86_400
        yield f"StoppingCondition: MaxRuntimeInSeconds is {runtime}, the maximum is {MAX_RUNTIME_S} ({days} days)"


def _channel_names(request: Parameters) -> Iterator[str]:
    names = [channel["ChannelName"] for channel in request.get("InputDataConfig") or []]
    if len(set(names)) != len(names):
        yield f"InputDataConfig: channel names must be unique, got {', '.join(names)}"
    for name in names:
        # The model's pattern admits them.
        if name in (".", ".."):
            yield f"channel {name!r}: the name would be a folder's that is there already; give another"


def _compression(request: Parameters) -> Iterator[str]:
    for channel in request.get("InputDataConfig") or []:
        if channel.get("CompressionType", "None") != "None" and channel.get("InputMode") != "Pipe":
            yield f"channel {channel['ChannelName']!r}: CompressionType is supported in Pipe mode only"


def _channel_groups(request: Parameters) -> Iterator[str]:
    groups = {group["InstanceGroupName"] for group in request["ResourceConfig"].get("InstanceGroups") or []}
    by_channel = {channel["ChannelName"]: _groups_of(channel) for channel in request.get("InputDataConfig") or []}
    for name, names in by_channel.items():
        for unknown in sorted(names - groups):
            yield f"channel {name!r}: {unknown!r} is no instance group of this job"
    if any(by_channel.values()) and not all(by_channel.values()):
        yield "InputDataConfig: either all channels name InstanceGroupNames, or none does"


def _groups_of(channel: Parameters) -> set[str]:
    # What comes from a file system instead of S3 can name no groups.
    source = channel["DataSource"].get("S3DataSource") or {}
    return set(source.get("InstanceGroupNames") or ())


def _fast_file(request: Parameters) -> Iterator[str]:
    mode = request["AlgorithmSpecification"].get("TrainingInputMode")
    for channel in request.get("InputDataConfig") or []:
        source = channel["DataSource"].get("S3DataSource") or {}
        uri = source.get("S3Uri", "")
        # A channel that says no mode has the job's.
        if (channel.get("InputMode") or mode) != "FastFile":
            continue
        if source.get("S3DataType", "S3Prefix") != "S3Prefix":
            yield f"channel {channel['ChannelName']!r}: FastFile takes an S3Prefix, not {source['S3DataType']}"
        # What ends like a file is one: as a prefix it holds nothing, so that the channel would be an empty folder.
        if PurePosixPath(uri).suffix and not uri.endswith("/"):
            yield f"channel {channel['ChannelName']!r}: FastFile takes a prefix, and {uri!r} is one object"


def _remote_debugging(request: Parameters) -> Iterator[str]:
    if (request.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug") and request.get("EnableNetworkIsolation"):
        yield "RemoteDebugConfig: EnableRemoteDebug is not supported with EnableNetworkIsolation"


def _hyperparameters(request: Parameters) -> Iterator[str]:
    # The model admits an empty key: its least length is 0, and its pattern takes any text.
    if any(not key.strip() for key in request.get("HyperParameters") or {}):
        yield "HyperParameters: a key is empty"


def _tags(request: Parameters) -> Iterator[str]:
    keys = [tag["Key"] for tag in request.get("Tags") or []]
    for key in keys:
        # In any case, AWS: too; the model's pattern of a key admits all of them.
        if key.lower().startswith("aws:"):
            yield f"Tags: the key {key!r} begins with aws:, which is reserved"
    if len(set(keys)) != len(keys):
        yield f"Tags: keys must be unique, got {', '.join(keys)}"


def _volume_key(request: Parameters) -> Iterator[str]:
    path, resources, types = _volume_of(request)
    # In a cluster of groups, one that has a volume is reason enough for the key.
    if resources.get("VolumeKmsKeyId") and types and all(map(has_local_storage, types)):
        yield f"{path}: VolumeKmsKeyId is not supported for instance types with local storage ({', '.join(types)})"


def _volume_key_form(request: Parameters) -> Iterator[str]:
    path, resources, _ = _volume_of(request)
    key = resources.get("VolumeKmsKeyId") or ""
    # The model's pattern has room for an alias, so that it would be refused only after the upload.
    if key.startswith("alias/") or ":alias/" in key:
        yield f"{path}: VolumeKmsKeyId is {key!r}, an alias, and takes a key's ID or ARN alone"


def _volume_size(request: Parameters) -> Iterator[str]:
    path, resources, types = _volume_of(request)
    size_gb = resources.get("VolumeSizeInGB") or 0
    for name in types:
        room_gb = local_storage_gb(name)
        # None also where the size of the disks is not known here: a guess would refuse volumes that fit.
        if room_gb is not None and size_gb > room_gb:
            yield f"{path}: VolumeSizeInGB is {size_gb}, and {name} has {room_gb} GB of local storage in its place"


def _volume_of(request: Parameters) -> tuple[str, Parameters, list[str]]:
    """Return the path of what says the volume, what says it, and the instance types that have it."""
    path = "ResourceConfig" if "ResourceConfig" in request else "ProcessingResources.ClusterConfig"
    resources: Any = request
    for key in path.split("."):
        resources = resources[key]
    clusters = resources.get("InstanceGroups") or resources.get("InstancePreferences") or [resources]
    return path, resources, [cluster["InstanceType"] for cluster in clusters if cluster.get("InstanceType")]


def _processing_names(request: Parameters) -> Iterator[str]:
    outputs = (request.get("ProcessingOutputConfig") or {}).get("Outputs") or []
    names = [item["InputName"] for item in request.get("ProcessingInputs") or []]
    # Inputs and outputs share one set of names: an input named like an output was refused after the upload.
    names += [item["OutputName"] for item in outputs]
    if len(set(names)) != len(names):
        yield f"ProcessingInputs and ProcessingOutputConfig: names must be unique, got {', '.join(names)}"


def _processing_compression(request: Parameters) -> Iterator[str]:
    for item in request.get("ProcessingInputs") or []:
        source = item.get("S3Input") or {}
        if source.get("S3CompressionType", "None") != "None" and source.get("S3InputMode") != "Pipe":
            yield f"input {item['InputName']!r}: S3CompressionType is supported in Pipe mode only"


def _processing_paths(request: Parameters) -> Iterator[str]:
    for item in request.get("ProcessingInputs") or []:
        source = item.get("S3Input") or {}
        # Without S3Input it is a DatasetDefinition, which has a place of its own.
        if source and not source.get("LocalPath") and not item.get("AppManaged"):
            yield f"input {item['InputName']!r}: S3Input needs a LocalPath unless AppManaged is true"


TAGS = UnwrittenRule(
    check=_tags,
    source=f"{MODEL}/API_Tag.html",
    quote="Tag keys must be unique per resource",
)

VOLUME_KEY = UnwrittenRule(
    check=_volume_key,
    source=f"{MODEL}/API_ResourceConfig.html",
    quote="You can't request a VolumeKmsKeyId when using an instance type with local storage",
    remedy="the hardware encrypts these disks; drop security.volume_kms_key",
)

VOLUME_KEY_FORM = UnwrittenRule(
    check=_volume_key_form,
    source=f"{MODEL}/API_ResourceConfig.html",
    quote="The VolumeKmsKeyId can be in any of the following formats: // KMS Key ID",
    remedy="aws kms describe-key --key-id ALIAS tells both",
)

VOLUME_SIZE = UnwrittenRule(
    check=_volume_size,
    source=f"{MODEL}/API_ProcessingClusterConfig.html",
    quote="You can't request a VolumeSizeInGB greater than the total size of the local instance storage",
    remedy="take a larger type, or read large inputs as FastFile",
)

OF_BOTH = (VOLUME_KEY, VOLUME_KEY_FORM, VOLUME_SIZE, TAGS)
"""Rules of Training and of Processing, whose volumes and tags are the same."""

RULES: Mapping[JobApi, tuple[UnwrittenRule, ...]] = {
    TRAINING: (
        UnwrittenRule(
            check=_type_or_groups,
            source=f"{GUIDE}/train-heterogeneous-cluster-how-to-configure.html",
            quote="",
        ),
        UnwrittenRule(check=_groups, source=f"{MODEL}/API_InstanceGroup.html", quote=""),
        UnwrittenRule(
            check=_runtime,
            source=f"{MODEL}/API_StoppingCondition.html",
            quote="The maximum value is 28 days",
            is_quota=True,
        ),
        UnwrittenRule(
            check=_spot_wait,
            source=f"{MODEL}/API_StoppingCondition.html",
            quote="It must be equal to or greater than MaxRuntimeInSeconds",
        ),
        UnwrittenRule(
            check=_preferences,
            source=f"{MODEL}/API_ResourceConfig.html",
            quote="Exactly one instance type is selected for the job",
            remedy="drop cluster.alternatives or limits.spot",
        ),
        UnwrittenRule(
            check=_warm_pool,
            source=f"{GUIDE}/train-warm-pools.html",
            quote="cannot be used with heterogeneous cluster training",
            remedy="drop cluster.keep_alive_s, or the groups or limits.spot",
        ),
        UnwrittenRule(
            check=_training_plan,
            source=f"{GUIDE}/reserve-capacity-with-training-plans.html",
            quote="",
            remedy="drop cluster.training_plan or limits.spot",
        ),
        UnwrittenRule(check=_channel_names, source=f"{MODEL}/API_Channel.html", quote=""),
        UnwrittenRule(
            check=_compression,
            source=f"{MODEL}/API_Channel.html",
            quote="CompressionType is used only in Pipe input mode",
        ),
        UnwrittenRule(
            check=_channel_groups, source=f"{GUIDE}/train-heterogeneous-cluster-how-to-configure.html", quote=""
        ),
        UnwrittenRule(
            check=_fast_file,
            source=f"{GUIDE}/model-access-training-data.html",
            quote="Fast file currently supports S3 prefixes only",
            remedy="give the folder that it lies in, with a slash at its end, or mode='File'",
        ),
        UnwrittenRule(
            check=_remote_debugging,
            source=f"{GUIDE}/train-remote-debugging.html",
            quote="isolation prevents outbound network calls",
        ),
        UnwrittenRule(
            check=_hyperparameters,
            source=f"{MODEL}/API_CreateTrainingJob.html",
            quote="Each hyperparameter is a key-value pair",
            remedy="give it a name",
        ),
        *OF_BOTH,
    ),
    PROCESSING: (
        UnwrittenRule(check=_processing_names, source=f"{MODEL}/API_ProcessingInput.html", quote=""),
        UnwrittenRule(
            check=_processing_compression,
            source=f"{MODEL}/API_ProcessingS3Input.html",
            quote="Gzip can only be used when Pipe mode is specified as the S3InputMode",
        ),
        UnwrittenRule(
            check=_processing_paths,
            source=f"{MODEL}/API_ProcessingS3Input.html",
            quote="LocalPath is a required parameter when AppManaged is False",
        ),
        *OF_BOTH,
    ),
}
"""Of each API, in the order in which a request is checked."""
