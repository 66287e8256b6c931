"""The request as the API call that will be sent. Pure: same input, same plan; nothing is read, nothing is asked.

What flows in is a checked JobRequest whose inputs lie where the service can read them; what flows out is the very
parameters of CreateTrainingJob or CreateProcessingJob.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from raysm.client.places import Places
from raysm.contract.names import INSTANCE_KIND_TAG, INSTANCE_TYPE_TAG
from raysm.contract.paths import Paths
from raysm.contract.payload import START
from raysm.errors import InvalidRequest, option
from raysm.request import AWS, Cluster, Input, JobRequest, Local, Target
from raysm.request.job import OWN_PREFIX, PAYLOAD_CHANNEL
from raysm.request.options import refuse_what_processing_lacks

__all__ = ["API", "LOCAL_ROLE", "LOCAL_TYPE", "Plan", "chosen_types", "output_prefix", "plan"]

API: TypeAlias = Literal["CreateTrainingJob", "CreateProcessingJob"]

LOCAL_ROLE = "arn:aws:iam::123456789012:role/raysm-local"
"""The API wants a role; on this machine nobody assumes it."""

LOCAL_TYPE = "local"
"""The instance type of whoever chose none: this machine."""

LOCAL_INSTANCE_TYPE = "ml.m5.large"
"""What the API is told of ``instance_type='local'``: it takes no type that SageMaker does not have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One API call, sent unchanged."""

    api: API
    """The operation."""
    request: Mapping[str, Any]
    """Its parameters, JSON values."""

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.request["TrainingJobName" if self.api == "CreateTrainingJob" else "ProcessingJobName"])

    def json(self) -> str:
        """Return it as text, for people and for comparisons."""
        return json.dumps({"api": self.api, "request": self.request}, indent=1, ensure_ascii=False)


def plan(
    request: JobRequest,
    *,
    target: Target,
    places: Places,
    state: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Plan:
    """Turn ``request`` into the call that starts it.

    Args:
        request: The job; its inputs are ``s3://`` URIs, or ``file:///`` ones where the target is Local.
        target: Where it goes.
        places: The target's prefixes.
        state: Checkpoint prefix; None is a new one of this job. ``request.checkpoint_uri`` wins over both.
        tags: raysm's own, beside those of the request.

    Raises:
        InvalidRequest: The target or the API cannot do what is asked for.
    """
    if isinstance(target, AWS) and target.image is None:
        raise InvalidRequest(
            "AWS(image=…) is missing: give the URI of a container image with Python 3.11 or later in Amazon ECR, such "
            "as one of AWS's deep-learning images (763104351884.dkr.ecr.REGION.amazonaws.com/pytorch-training:TAG) or "
            "one that you built from containers/"
        )
    for name in ("output_uri", "checkpoint_uri"):
        uri = getattr(request, name)
        if isinstance(target, AWS) and uri is not None and not uri.startswith("s3://"):
            raise InvalidRequest(
                f"{name}={uri!r} is on this machine, which AWS cannot write to; give s3://bucket/prefix"
            )
    builder = _Builder(
        request=request, target=target, places=places, state=state, tags={**request.tags, **(tags or {})}
    )
    if request.kind == "processing":
        refuse_what_processing_lacks(request)
        return Plan(api="CreateProcessingJob", request=builder.processing())
    _refuse_what_excludes_itself(request)
    return Plan(api="CreateTrainingJob", request=builder.training())


def chosen_types(instances: tuple[tuple[str, int], ...], tags: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return instance types and counts as the user chose them.

    Args:
        instances: As the service tells them.
        tags: The job's.
    """
    if tags.get(INSTANCE_TYPE_TAG) != LOCAL_TYPE:
        return instances
    return tuple((LOCAL_TYPE if kind == LOCAL_INSTANCE_TYPE else kind, count) for kind, count in instances)


def output_prefix(request: JobRequest, places: Places) -> str:
    """Return the prefix below which ``model/`` and ``data/`` of this job will lie."""
    return f"{_outputs(request, places)}/{request.name}/output"


def _outputs(request: JobRequest, places: Places) -> str:
    return (request.output_uri or places.outputs(request.project)).rstrip("/")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Builder:
    """What the parts of a call are made of."""

    request: JobRequest
    target: Target
    places: Places
    state: str | None
    tags: Mapping[str, str]

    def training(self) -> dict[str, Any]:
        request, security, limits = self.request, self.request.security, self.request.limits
        checkpoints = request.checkpoint_uri or self.state
        debug = not security.isolation if security.remote_debug is None else security.remote_debug
        algorithm: dict[str, Any] = {
            "TrainingImage": self._image(),
            "TrainingInputMode": "File",
            "ContainerEntrypoint": self._entrypoint(Paths()),
            "EnableSageMakerMetricsTimeSeries": False,
        }
        if request.metrics:
            algorithm["MetricDefinitions"] = [{"Name": item.name, "Regex": item.regex} for item in request.metrics]
        call: dict[str, Any] = {
            "TrainingJobName": request.name,
            "AlgorithmSpecification": algorithm,
            "RoleArn": self._role(),
            "InputDataConfig": [self._channel(name, given) for name, given in self._channels()],
            "OutputDataConfig": _present(
                S3OutputPath=_outputs(request, self.places),
                CompressionType="NONE",
                KmsKeyId=security.output_kms_key,
            ),
            "ResourceConfig": self._resources(request.cluster),
            "StoppingCondition": {"MaxRuntimeInSeconds": limits.max_runtime_s},
            "CheckpointConfig": {
                "S3Uri": checkpoints or self.places.state(request.project, request.name, request.name),
            },
            "EnableNetworkIsolation": security.isolation,
            "EnableInterContainerTrafficEncryption": security.encrypt_traffic,
            "EnableManagedSpotTraining": limits.spot,
            "RemoteDebugConfig": {"EnableRemoteDebug": debug},
            "Tags": self._tags(),
        }
        if limits.spot:
            wait_s = 2 * limits.max_runtime_s if limits.max_wait_s is None else limits.max_wait_s
            call["StoppingCondition"]["MaxWaitTimeInSeconds"] = wait_s
        if limits.retry_attempts is not None:
            call["RetryStrategy"] = {"MaximumRetryAttempts": limits.retry_attempts}
        if request.hyperparameters:
            call["HyperParameters"] = dict(request.hyperparameters)
        if security.subnets:
            call["VpcConfig"] = self._network()
        return self._with_environment(call)

    def processing(self) -> dict[str, Any]:
        request, security, cluster = self.request, self.request.security, self.request.cluster
        seen = Paths(processing=True)
        prefix = output_prefix(request, self.places)
        network: dict[str, Any] = {
            "EnableInterContainerTrafficEncryption": security.encrypt_traffic,
            "EnableNetworkIsolation": security.isolation,
        }
        if security.subnets:
            network["VpcConfig"] = self._network()
        call: dict[str, Any] = {
            "ProcessingJobName": request.name,
            "AppSpecification": {"ImageUri": self._image(), "ContainerEntrypoint": self._entrypoint(seen)},
            "RoleArn": self._role(),
            "ProcessingInputs": [self._processing_input(name, given, seen) for name, given in self._channels()],
            "ProcessingOutputConfig": _present(
                Outputs=[
                    _processing_output(f"{OWN_PREFIX}result", f"{prefix}/model", seen.model),
                    _processing_output(f"{OWN_PREFIX}data", f"{prefix}/data", seen.output_data),
                ],
                KmsKeyId=security.output_kms_key,
            ),
            "ProcessingResources": {
                "ClusterConfig": _present(
                    InstanceCount=cluster.count,
                    InstanceType=self._instance_type(cluster.instance_type),
                    VolumeSizeInGB=cluster.volume_gb,
                    VolumeKmsKeyId=security.volume_kms_key,
                )
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": request.limits.max_runtime_s},
            "NetworkConfig": network,
            "Tags": self._tags(),
        }
        return self._with_environment(call)

    def _with_environment(self, call: dict[str, Any]) -> dict[str, Any]:
        if self.request.environment:
            call["Environment"] = dict(self.request.environment)
        return call

    def _image(self) -> str:
        if isinstance(self.target, AWS):
            return str(self.target.image)
        if self.target.instance_kind != "docker":
            return f"raysm/{self.target.instance_kind}:latest"
        if self.target.image is None:
            raise InvalidRequest(f"instances of the kind docker need the image that plays one: {option('image')}")
        return self.target.image

    def _role(self) -> str:
        return self.target.role if isinstance(self.target, AWS) else LOCAL_ROLE

    def _instance_type(self, given: str) -> str:
        if given != LOCAL_TYPE:
            return given
        if isinstance(self.target, AWS):
            raise InvalidRequest(
                "Cluster(instance_type='local') is this machine; name one of SageMaker's for AWS, as in "
                "Cluster('ml.m5.xlarge', count=2)"
            )
        return LOCAL_INSTANCE_TYPE

    def _entrypoint(self, seen: Paths) -> list[str]:
        # Exec form, so that PID 1 hears SIGTERM: a shell would swallow it.
        return ["python3", str(seen.payload / START)]

    def _resources(self, cluster: Cluster) -> dict[str, Any]:
        shape: dict[str, Any]
        if cluster.groups:
            shape = {
                "InstanceGroups": [
                    {
                        "InstanceType": self._instance_type(group.instance_type),
                        "InstanceCount": group.count,
                        "InstanceGroupName": group.name,
                    }
                    for group in cluster.groups
                ]
            }
        else:
            shape = {"InstanceType": self._instance_type(cluster.instance_type), "InstanceCount": cluster.count}
        return shape | _present(
            VolumeSizeInGB=cluster.volume_gb,
            VolumeKmsKeyId=self.request.security.volume_kms_key,
            KeepAlivePeriodInSeconds=cluster.keep_alive_s or None,
            TrainingPlanArn=cluster.training_plan,
        )

    def _channels(self) -> list[tuple[str, Input]]:
        # Channels name groups all or none: where the user's do, the payload goes to all groups by name.
        groups = tuple(group.name for group in self.request.cluster.groups)
        named = any(given.groups for given in self.request.inputs.values())
        payload = Input(
            self.places.payload(self.request.project, self.request.name) + "/", groups=groups if named else ()
        )
        return [(PAYLOAD_CHANNEL, payload), *self.request.inputs.items()]

    def _channel(self, name: str, given: Input) -> dict[str, Any]:
        source: dict[str, Any] = {
            "S3DataType": "S3Prefix",
            "S3Uri": self._uri(name, given),
            "S3DataDistributionType": given.distribution,
        }
        if given.groups:
            source["InstanceGroupNames"] = list(given.groups)
        return _present(
            ChannelName=name,
            DataSource={"S3DataSource": source},
            ContentType=given.content_type,
            InputMode=given.mode,
        )

    def _processing_input(self, name: str, given: Input, seen: Paths) -> dict[str, Any]:
        return {
            "InputName": name,
            "S3Input": {
                "S3Uri": self._uri(name, given),
                "LocalPath": str(seen.channel(name)),
                "S3DataType": "S3Prefix",
                "S3InputMode": "File",
                "S3DataDistributionType": given.distribution,
                "S3CompressionType": "None",
            },
        }

    def _uri(self, name: str, given: Input) -> str:
        if given.uri.startswith("s3://"):
            return given.uri
        if isinstance(self.target, Local) and given.uri.startswith("file:///"):
            return given.uri
        raise InvalidRequest(
            f"the channel {name!r} is {given.uri!r}, which the service cannot read: give s3://bucket/key (raysm.submit "
            "uploads local data for AWS), or on this machine file:///path"
        )

    def _network(self) -> dict[str, Any]:
        security = self.request.security
        return {"SecurityGroupIds": list(security.security_groups), "Subnets": list(security.subnets)}

    def _tags(self) -> list[dict[str, str]]:
        return [
            {"Key": key, "Value": value} for key, value in {**self.tags, **self._kind_tag(), **self._type_tag()}.items()
        ]

    def _kind_tag(self) -> Mapping[str, str]:
        # Of the other kinds the image itself says so; a real image has a name of its own.
        is_docker = isinstance(self.target, Local) and self.target.instance_kind == "docker"
        return {INSTANCE_KIND_TAG: "docker"} if is_docker else {}

    def _type_tag(self) -> Mapping[str, str]:
        cluster = self.request.cluster
        types = [group.instance_type for group in cluster.groups] or [cluster.instance_type]
        return {INSTANCE_TYPE_TAG: LOCAL_TYPE} if LOCAL_TYPE in types else {}


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _processing_output(name: str, uri: str, path: PurePath) -> dict[str, Any]:
    return {
        "OutputName": name,
        "S3Output": {"S3Uri": uri, "LocalPath": str(path), "S3UploadMode": "EndOfJob"},
    }


def _refuse_what_excludes_itself(request: JobRequest) -> None:
    cluster, limits = request.cluster, request.limits
    if cluster.keep_alive_s and limits.spot:
        raise InvalidRequest("warm pools (cluster.keep_alive_s) cannot be had on spot capacity (limits.spot); drop one")
    if cluster.training_plan is not None and limits.spot:
        raise InvalidRequest("a training plan (cluster.training_plan) excludes spot capacity (limits.spot); drop one")
