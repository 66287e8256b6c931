"""The Create calls of SageMaker's APIs, from a request."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from raysm.client.storage.places import Places
from raysm.contract.job_api import PROCESSING, TRAINING, JobApi
from raysm.contract.names import INSTANCE_KIND_TAG, INSTANCE_TYPE_TAG
from raysm.contract.paths import Paths
from raysm.contract.seal import START, Seal
from raysm.contract.service_model import FILE
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, JobRequest, Target
from raysm.request.cluster import LOCAL_TYPE
from raysm.request.external import place_of
from raysm.request.job import JOB_CHANNEL, OWN_PREFIX, PAYLOAD_CHANNEL
from raysm.request.options import refuse_what_processing_lacks

__all__ = [
    "Call",
    "PROCESSING_CALL",
    "Parts",
    "TRAINING_CALL",
    "call_of",
    "join_path",
    "present",
]

_log = logging.getLogger("raysm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What the parts of a call are made of."""

    request: JobRequest
    """The job."""
    target: Target
    """Where it goes."""
    places: Places
    """The target's prefixes."""
    state: str | None
    """Checkpoint prefix; None is a new one of this job."""
    tags: Mapping[str, str]
    """The user's and raysm's."""

    seal: Seal | None
    """Of the payload; None is a plan that is looked at, and not sent."""
    shared: str | None = None
    """Prefix of what the payload shares with those of other jobs; None is nothing."""

    def entrypoint(self, inside: Paths) -> list[str]:
        """Return the main process of each instance, whose folders are ``inside``."""
        if self.seal is None:
            return ["python3", str(inside.payload / START)]
        return self.seal.command(inside.payload, inside.failure)

    def channels(self) -> list[tuple[str, Input]]:
        """Return the inputs by name, raysm's own first."""
        # Channels name groups all or none: where the user's do, the payload goes to all groups by name.
        groups = tuple(group.name for group in self.request.cluster.groups)
        named = any(source.groups for source in self.request.inputs.values())
        # With the slash: else the payload of a job whose name begins with this one's would come along.
        payload = self.places.payload(self.request.project, self.request.name)
        prefixes = (
            {PAYLOAD_CHANNEL: payload} if self.shared is None else {PAYLOAD_CHANNEL: self.shared, JOB_CHANNEL: payload}
        )
        channels = {name: Input(f"{uri}/", groups=groups if named else ()) for name, uri in prefixes.items()}
        return [*channels.items(), *self.request.inputs.items()]

    def uri(self, channel: str, source: Input) -> str:
        """Return where the service reads an input."""
        if source.uri.startswith("s3://"):
            return source.uri
        if self.target.takes_files and source.uri.startswith(FILE):
            return source.uri
        raise InvalidRequest(
            f"the channel {channel!r} is {source.uri!r}, which the service cannot read: give s3://bucket/key "
            "(raysm.submit uploads local data for AWS), or on this machine file:///path"
        )

    def data_type(self, source: Input) -> str:
        """Return what the service finds at an input's URI."""
        return "ManifestFile" if source.manifest else "S3Prefix"

    def output_root(self) -> str:
        """Return the prefix below which the service makes one for the job."""
        return (self.request.output_uri or self.places.outputs(self.request.project)).rstrip("/")

    def output_prefix(self) -> str:
        """Return the prefix below which ``model/`` and ``data/`` of this job will lie."""
        return join_path(self.output_root(), self.request.name)

    def network(self) -> dict[str, Any] | None:
        """Return the VPC that the instances join; None is none."""
        security = self.request.security
        if not security.subnets:
            return None
        return {"SecurityGroupIds": list(security.security_groups), "Subnets": list(security.subnets)}

    def tag_list(self) -> list[dict[str, str]]:
        """Return all tags, as the API takes them."""
        tags = {**self.tags, **self._kind_tag(), **self._type_tag()}
        return [{"Key": key, "Value": value} for key, value in tags.items()]

    def _kind_tag(self) -> Mapping[str, str]:
        # Of the other kinds the image itself says so; a real image has a name of its own.
        kind = self.target.instance_kind_told()
        return {} if kind is None else {INSTANCE_KIND_TAG: kind}

    def _type_tag(self) -> Mapping[str, str]:
        return {INSTANCE_TYPE_TAG: LOCAL_TYPE} if LOCAL_TYPE in self.request.cluster.types else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """How one API is called."""

    check: Callable[[JobRequest], None]
    """Refuses what is not to be had there, or excludes itself."""
    parameters: Callable[[Parts], dict[str, Any]]
    """Returns the parameters of its Create."""
    outputs: Callable[[str, Mapping[str, Any]], str]
    """Returns the prefix below which ``model/`` and ``data/`` of a job lie, without a slash at its end: of the job's
    name, and its request or what Describe answered."""


def present(**values: Any) -> dict[str, Any]:
    """Return what is there: the API takes no null."""
    return {name: value for name, value in values.items() if value is not None}


def join_path(root: str, job: str) -> str:
    """Return the prefix below which the service leaves what ``job`` made, where ``root`` is its output path."""
    return f"{root.rstrip('/')}/{job}/output"


INSIDE = Paths(api=PROCESSING)


def _processing_parameters(parts: Parts) -> dict[str, Any]:
    request, security, cluster = parts.request, parts.request.security, parts.request.cluster
    prefix = parts.output_prefix()
    return present(
        ProcessingJobName=request.name,
        AppSpecification={"ImageUri": parts.target.job_image(), "ContainerEntrypoint": parts.entrypoint(INSIDE)},
        RoleArn=parts.target.job_role(),
        ProcessingInputs=[_input(parts, name, source) for name, source in parts.channels()],
        ProcessingOutputConfig=present(
            # Side by side where a Training job's would lie, so that both are read alike. Inputs and outputs share one
            # set of names here, of which raysm's begin with its prefix.
            Outputs=[
                _output(f"{OWN_PREFIX}result", f"{prefix}/model", INSIDE.model),
                _output(f"{OWN_PREFIX}data", f"{prefix}/data", INSIDE.output_data),
            ],
            KmsKeyId=security.output_kms_key,
        ),
        ProcessingResources={
            "ClusterConfig": present(
                InstanceCount=cluster.count,
                InstanceType=parts.target.instance_type(cluster.instance_type),
                VolumeSizeInGB=cluster.volume_gb,
                VolumeKmsKeyId=security.volume_kms_key,
            )
        },
        StoppingCondition={"MaxRuntimeInSeconds": request.limits.max_runtime_s},
        NetworkConfig=present(
            EnableInterContainerTrafficEncryption=security.encrypt_traffic,
            EnableNetworkIsolation=security.isolation,
            VpcConfig=parts.network(),
        ),
        Tags=parts.tag_list(),
        Environment=dict(request.environment) or None,
    )


def _input(parts: Parts, name: str, source: Input) -> dict[str, Any]:
    return {
        "InputName": name,
        "S3Input": {
            "S3Uri": parts.uri(name, source),
            "LocalPath": str(INSIDE.channel(name)),
            "S3DataType": parts.data_type(source),
            "S3InputMode": "File",
            "S3DataDistributionType": source.distribution,
            "S3CompressionType": "None",
        },
    }


def _output(name: str, uri: str, path: PurePath) -> dict[str, Any]:
    return {
        "OutputName": name,
        "S3Output": {"S3Uri": uri, "LocalPath": str(path), "S3UploadMode": "EndOfJob"},
    }


def _processing_outputs(name: str, answer: Mapping[str, Any]) -> str:
    outputs = answer.get("ProcessingOutputConfig", {}).get("Outputs", ())
    uris = [output["S3Output"]["S3Uri"].rstrip("/") for output in outputs]
    return str(next(iter(uris), "").rpartition("/")[0])


def _processing_check(request: JobRequest) -> None:
    refuse_what_processing_lacks(request)
    # The API reference excepts calls between peers of CreateTrainingJob's isolation alone (API_NetworkConfig.html has
    # no such words). Not refused, since it is not known to fail.
    if request.security.isolation and request.cluster.size > 1:
        _log.warning(
            "AWS documents that isolated containers of a Processing job can neither be called nor call, and excepts no "
            "calls between its %d instances, without which no cluster forms: submit with kind='training', or on one "
            "instance",
            request.cluster.size,
        )


PROCESSING_CALL = Call(check=_processing_check, parameters=_processing_parameters, outputs=_processing_outputs)


def _training_parameters(parts: Parts) -> dict[str, Any]:
    request, security = parts.request, parts.request.security
    return present(
        TrainingJobName=request.name,
        AlgorithmSpecification=_algorithm(parts),
        RoleArn=parts.target.job_role(),
        InputDataConfig=[_channel(parts, name, source) for name, source in parts.channels()],
        # As an archive, a result would have to be fetched and unpacked whole to read one file.
        OutputDataConfig=present(
            S3OutputPath=parts.output_root(), CompressionType="NONE", KmsKeyId=security.output_kms_key
        ),
        ResourceConfig=_resources(parts, request.cluster),
        StoppingCondition=_stopping(request),
        CheckpointConfig=_checkpoints(parts),
        EnableNetworkIsolation=security.isolation,
        EnableInterContainerTrafficEncryption=security.encrypt_traffic,
        EnableManagedSpotTraining=request.limits.spot,
        # Also where it is false: a policy's condition on it may want it said.
        RemoteDebugConfig={"EnableRemoteDebug": security.remote_debug},
        Tags=parts.tag_list(),
        RetryStrategy=_retries(request),
        MlflowConfig=_mlflow(request),
        HyperParameters=dict(request.hyperparameters) or None,
        VpcConfig=parts.network(),
        Environment=dict(request.environment) or None,
    )


def _algorithm(parts: Parts) -> dict[str, Any]:
    metrics = [{"Name": item.name, "Regex": item.regex} for item in parts.request.metrics]
    return present(
        TrainingImage=parts.target.job_image(),
        TrainingInputMode="File",
        ContainerEntrypoint=parts.entrypoint(Paths()),
        EnableSageMakerMetricsTimeSeries=False,
        MetricDefinitions=metrics or None,
    )


def _stopping(request: JobRequest) -> dict[str, Any]:
    limits = request.limits
    # The API wants a limit for the waiting too; twice the runtime leaves as long to wait as to run.
    wait_s = 2 * limits.max_runtime_s if limits.max_wait_s is None else limits.max_wait_s
    return present(
        MaxRuntimeInSeconds=limits.max_runtime_s,
        # SageMaker refuses it for all but spot jobs.
        MaxWaitTimeInSeconds=wait_s if limits.spot else None,
    )


def _checkpoints(parts: Parts) -> dict[str, Any] | None:
    request = parts.request
    if request.checkpoint_uri is None and not request.workload.keeps_state:
        return None
    # Also of a job that is not resumed: without it, no follow-up goes on with it.
    state = parts.state or parts.places.state(request.project, request.name, request.name)
    return {"S3Uri": request.checkpoint_uri or state}


def _mlflow(request: JobRequest) -> dict[str, Any] | None:
    if request.tracking is None or not place_of(request.tracking).is_of_service:
        return None
    return {
        "MlflowResourceArn": request.tracking,
        "MlflowExperimentName": request.project,
        # By it the head finds the run that the service has made.
        "MlflowRunName": request.name,
    }


def _retries(request: JobRequest) -> dict[str, Any] | None:
    attempts = request.limits.retry_attempts
    return None if attempts is None else {"MaximumRetryAttempts": attempts}


def _resources(parts: Parts, cluster: Cluster) -> dict[str, Any]:
    shape: dict[str, Any]
    # The API takes groups, or a type and a count, not both.
    if cluster.groups:
        shape = {
            "InstanceGroups": [
                {
                    "InstanceType": parts.target.instance_type(group.instance_type),
                    "InstanceCount": group.count,
                    "InstanceGroupName": group.name,
                }
                for group in cluster.groups
            ]
        }
    elif cluster.alternatives:
        # One count for all: the request says how many instances there are, whatever they are.
        shape = {
            "InstancePreferences": [{"InstanceType": name} for name in cluster.types],
            "InstanceCount": cluster.count,
        }
    else:
        shape = {"InstanceType": parts.target.instance_type(cluster.instance_type), "InstanceCount": cluster.count}
    return shape | present(
        VolumeSizeInGB=cluster.volume_gb,
        VolumeKmsKeyId=parts.request.security.volume_kms_key,
        KeepAlivePeriodInSeconds=cluster.keep_alive_s or None,
        TrainingPlanArn=cluster.training_plan,
    )


def _channel(parts: Parts, name: str, source: Input) -> dict[str, Any]:
    return present(
        ChannelName=name,
        DataSource={
            "S3DataSource": present(
                S3DataType=parts.data_type(source),
                S3Uri=parts.uri(name, source),
                S3DataDistributionType=source.distribution,
                InstanceGroupNames=list(source.groups) or None,
            )
        },
        ContentType=source.content_type,
        InputMode=source.mode,
    )


def _training_outputs(name: str, answer: Mapping[str, Any]) -> str:
    artifacts = answer.get("ModelArtifacts", {}).get("S3ModelArtifacts", "").rstrip("/")
    # Until the job has artifacts, their place follows from the call.
    if artifacts:
        return str(artifacts.rpartition("/")[0])
    return join_path(answer["OutputDataConfig"]["S3OutputPath"], name)


# What else excludes itself in a training job stands among the rules that no model says, which check the whole call.
def _training_check(request: JobRequest) -> None:
    if request.limits.max_restarts and not request.workload.keeps_state and request.checkpoint_uri is None:
        raise InvalidRequest(
            f"{request.workload.label} keeps no state (keeps_state of {request.workload.kind}) with which a follow-up "
            "job could go on (limits.max_restarts); drop one"
        )


TRAINING_CALL = Call(check=_training_check, parameters=_training_parameters, outputs=_training_outputs)


CALLS: Mapping[str, Call] = {TRAINING.kind: TRAINING_CALL, PROCESSING.kind: PROCESSING_CALL}


def call_of(api: JobApi) -> Call:
    """Return how ``api`` is called."""
    return CALLS[api.kind]
