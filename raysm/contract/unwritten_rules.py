"""What SageMaker refuses though its service model does not say so: one table for the client and the embedded SageMaker.

What flows in are the parameters of a Create that keep to the model, what flows out are the rules that they break. The
sources are the API reference's notes at each member, and the default quotas of an account.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from raysm.contract.job_api import PROCESSING, TRAINING, JobApi
from raysm.request.limits import MAX_RUNTIME_S

__all__ = ["DEFAULT_RUNTIME_S", "Breach", "breaches"]

DEFAULT_RUNTIME_S = 86_400
"""Seconds that a job may run which does not say; the API's own default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Breach:
    """One rule that a request breaks."""

    message: str
    """As AWS words it: the parameter, and what is wrong with it."""
    is_quota: bool = False
    """Whether it is a limit of the account, which AWS can raise, rather than one of the API."""


Parameters: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[[Parameters], Iterator[Breach]]


def breaches(api: JobApi, parameters: Parameters) -> Iterator[Breach]:
    """Yield the rules that a request to make a job breaks."""
    for check in CHECKS[api]:
        yield from check(parameters)


def _resources(request: Parameters) -> Iterator[Breach]:
    resources = request["ResourceConfig"]
    groups = resources.get("InstanceGroups") or []
    if groups and (resources.get("InstanceType") is not None or resources.get("InstanceCount") is not None):
        yield Breach(message="ResourceConfig: give either InstanceGroups, or InstanceType and InstanceCount, not both")
    # The model takes a count of 0: with groups none is meant.
    if not groups and not (resources.get("InstanceType") and resources.get("InstanceCount")):
        yield Breach(message="ResourceConfig: InstanceType and InstanceCount, at least 1, are required")
    names = [group.get("InstanceGroupName") for group in groups]
    if len(set(names)) != len(names):
        listed = ", ".join(map(str, names))
        yield Breach(message=f"ResourceConfig: instance groups must have distinct names, got {listed}")
    if not all(group.get("InstanceCount") for group in groups):
        yield Breach(message="ResourceConfig: each instance group needs an InstanceCount of at least 1")


def _spot(request: Parameters) -> Iterator[Breach]:
    spot = bool(request.get("EnableManagedSpotTraining"))
    condition, resources = request.get("StoppingCondition") or {}, request["ResourceConfig"]
    wait = condition.get("MaxWaitTimeInSeconds")
    runtime = condition.get("MaxRuntimeInSeconds") or DEFAULT_RUNTIME_S
    if spot and wait is None:
        yield Breach(message="MaxWaitTimeInSeconds must be present when EnableManagedSpotTraining is set to true")
    if wait is not None and not spot:
        yield Breach(message="MaxWaitTimeInSeconds is only supported when EnableManagedSpotTraining is set to true")
    if wait is not None and wait < runtime:
        yield Breach(message=f"MaxWaitTimeInSeconds ({wait}) must be at least MaxRuntimeInSeconds ({runtime})")
    for key in ("KeepAlivePeriodInSeconds", "TrainingPlanArn"):
        if spot and resources.get(key):
            yield Breach(message=f"ResourceConfig: {key} is not supported with EnableManagedSpotTraining")


def _runtime(request: Parameters) -> Iterator[Breach]:
    # Of Processing the model itself says how long a job may run.
    runtime = (request.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds") or DEFAULT_RUNTIME_S
    if runtime > MAX_RUNTIME_S:
        yield Breach(
            message=f"StoppingCondition: MaxRuntimeInSeconds is {runtime}, the maximum is {MAX_RUNTIME_S} "
            f"({MAX_RUNTIME_S // 86_400} days)",
            is_quota=True,
        )


def _channels(request: Parameters) -> Iterator[Breach]:
    channels = request.get("InputDataConfig") or []
    names = [channel["ChannelName"] for channel in channels]
    if len(set(names)) != len(names):
        yield Breach(message=f"InputDataConfig: channel names must be unique, got {', '.join(names)}")
    groups = {group["InstanceGroupName"] for group in request["ResourceConfig"].get("InstanceGroups") or []}
    asked = {name: _groups_of(channel) for name, channel in zip(names, channels, strict=True)}
    for channel in channels:
        name = channel["ChannelName"]
        # The model's pattern admits them.
        if name in (".", ".."):
            yield Breach(message=f"channel {name!r}: the name would be a folder's that is there already; give another")
        if channel.get("CompressionType", "None") != "None" and channel.get("InputMode") != "Pipe":
            yield Breach(message=f"channel {name!r}: CompressionType is supported in Pipe mode only")
        for unknown in sorted(asked[name] - groups):
            yield Breach(message=f"channel {name!r}: {unknown!r} is no instance group of this job")
    if any(asked.values()) and not all(asked.values()):
        yield Breach(message="InputDataConfig: either all channels name InstanceGroupNames, or none does")


def _groups_of(channel: Parameters) -> set[str]:
    source = channel["DataSource"].get("S3DataSource") or {}
    return set(source.get("InstanceGroupNames") or ())


def _remote_debugging(request: Parameters) -> Iterator[Breach]:
    if (request.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug") and request.get("EnableNetworkIsolation"):
        yield Breach(message="RemoteDebugConfig: EnableRemoteDebug is not supported with EnableNetworkIsolation")


def _processing_names(request: Parameters) -> Iterator[Breach]:
    outputs = (request.get("ProcessingOutputConfig") or {}).get("Outputs") or []
    names = [item["InputName"] for item in request.get("ProcessingInputs") or []]
    # Inputs and outputs share one set of names: an input named like an output was refused after the upload.
    names += [item["OutputName"] for item in outputs]
    if len(set(names)) != len(names):
        listed = ", ".join(names)
        yield Breach(message=f"ProcessingInputs and ProcessingOutputConfig: names must be unique, got {listed}")


def _processing_inputs(request: Parameters) -> Iterator[Breach]:
    for item in request.get("ProcessingInputs") or []:
        name, source = item["InputName"], item.get("S3Input") or {}
        if source.get("S3CompressionType", "None") != "None" and source.get("S3InputMode") != "Pipe":
            yield Breach(message=f"input {name!r}: S3CompressionType is supported in Pipe mode only")
        if source and not source.get("LocalPath") and not item.get("AppManaged"):
            yield Breach(message=f"input {name!r}: S3Input needs a LocalPath unless AppManaged is true")


CHECKS: Mapping[JobApi, tuple[Check, ...]] = {
    TRAINING: (_resources, _runtime, _spot, _channels, _remote_debugging),
    PROCESSING: (_processing_names, _processing_inputs),
}
