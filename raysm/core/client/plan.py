"""The Create call that will be sent, made from a checked request with inputs in S3.

This module is pure: it reads nothing.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from raysm.core.client.costs.cap import Cap
from raysm.core.client.storage.places import Places
from raysm.core.protocol.job_api import PROCESSING, JobApi, api_of
from raysm.core.protocol.names import CPUS, INSTANCE_KIND_TAG, INSTANCE_TYPE_TAG, TRAIN_STORAGE
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.seal import START, Seal
from raysm.core.protocol.service_model import FILE
from raysm.core.request import Cluster, Input, JobRequest, Target
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.core.request.external import place_of
from raysm.core.request.file_systems import FileSystem, file_system_at
from raysm.core.request.job import JOB_CHANNEL, OWN_PREFIX, PAYLOAD_CHANNEL
from raysm.core.request.options import refuse_what_processing_lacks
from raysm.core.request.targets import LOCAL_INSTANCE_TYPE, Local
from raysm.errors import InvalidRequest, option

_log = logging.getLogger("raysm")

TRAINING_PATHS = Paths()
PROCESSING_PATHS = Paths(api=PROCESSING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    api: JobApi
    request: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.request[self.api.name_key])

    @property
    def outputs(self) -> str:
        return outputs(self.api, self.name, self.request)

    def json(self) -> str:
        return json.dumps(
            {"api": self.api.create, "request": self.request}, indent=1, ensure_ascii=False
        )


def plan(
    request: JobRequest,
    *,
    target: Target,
    places: Places,
    state: str | None = None,
    tags: Mapping[str, str] | None = None,
    seal: Seal | None = None,
    shared: str | None = None,
    cap: Cap | None = None,
) -> Plan:
    """Turn ``request`` into the call that starts it; its inputs have URIs.

    Without ``state`` the job gets a checkpoint prefix of its own; ``request.checkpoint_uri`` wins
    over both. raysm's ``tags`` win over the request's, because another process recognizes the job
    by them. Without ``seal`` the plan is only looked at. ``shared`` is the prefix of the payload's
    part that other jobs use too. ``cap`` may shorten the job's time limit.
    """
    target.job_image()  # a missing image is reported before other missing options
    for name in ("output_uri", "checkpoint_uri"):
        uri = getattr(request, name)
        if uri is not None and not target.takes_files and not uri.startswith("s3://"):
            raise InvalidRequest(
                f"{name}={uri!r} is on this machine, which AWS cannot write to; "
                "give s3://bucket/prefix"
            )
    api = api_of(request.kind)
    parts = _Parts(
        request=request,
        target=target,
        places=places,
        state=state,
        seal=seal,
        shared=shared,
        cap=cap,
    )
    call = _processing_call(parts) if api is PROCESSING else _training_call(parts)
    every_tag = {**request.tags, **(tags or {})}
    kind = target.instance_kind_told()
    if kind is not None:
        every_tag[INSTANCE_KIND_TAG] = kind
    if LOCAL_TYPE in request.cluster.types:
        every_tag[INSTANCE_TYPE_TAG] = LOCAL_TYPE
    call["Tags"] = [{"Key": key, "Value": value} for key, value in every_tag.items()]
    return Plan(api=api, request=call)


def chosen_types(
    instances: tuple[tuple[str, int], ...], tags: Mapping[str, str]
) -> tuple[tuple[str, int], ...]:
    """Return instance types and counts as the user chose them.

    They come from the service's answer and the job's tags.
    """
    # The API needs a type even if the user chose none; the tag says so.
    if tags.get(INSTANCE_TYPE_TAG) != LOCAL_TYPE:
        return instances
    return tuple(
        (LOCAL_TYPE if name == LOCAL_INSTANCE_TYPE else name, count) for name, count in instances
    )


def outputs(api: JobApi, name: str, answer: Mapping[str, Any]) -> str:
    if api is PROCESSING:
        listed = answer.get("ProcessingOutputConfig", {}).get("Outputs", ())
        uris = [output["S3Output"]["S3Uri"].rstrip("/") for output in listed]
        return str(next(iter(uris), "").rpartition("/")[0])
    artifacts = answer.get("ModelArtifacts", {}).get("S3ModelArtifacts", "").rstrip("/")
    # Until the job has artifacts, their place follows from the call.
    if artifacts:
        return str(artifacts.rpartition("/")[0])
    return f"{answer['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{name}/output"


def without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """The arguments of ``plan``, and the parts that both calls have."""

    request: JobRequest
    target: Target
    places: Places
    state: str | None
    seal: Seal | None
    shared: str | None
    cap: Cap | None

    @property
    def max_runtime_s(self) -> int:
        return self.request.limits.max_runtime_s if self.cap is None else self.cap.max_runtime_s

    def entrypoint(self, inside: Paths) -> list[str]:
        if self.seal is None:
            return ["python3", str(inside.payload / START)]
        return self.seal.command(inside.payload, inside.failure)

    def channels(self) -> list[tuple[str, Input]]:
        # The API requires groups for all channels or for none: if the user's have some, the payload
        # names all groups.
        groups = tuple(group.name for group in self.request.cluster.groups)
        named = any(source.groups for source in self.request.inputs.values())
        payload = self.places.payload(self.request.project, self.request.name)
        prefixes = (
            {PAYLOAD_CHANNEL: payload}
            if self.shared is None
            else {PAYLOAD_CHANNEL: self.shared, JOB_CHANNEL: payload}
        )
        # Without the slash, the prefix would also match payloads of jobs whose names begin with
        # this job's name.
        own = {
            name: Input(f"{uri}/", groups=groups if named else ()) for name, uri in prefixes.items()
        }
        return [*own.items(), *self.request.inputs.items()]

    def uri(self, channel: str, source: Input) -> str:
        if source.uri.startswith("s3://") or (
            self.target.takes_files and source.uri.startswith(FILE)
        ):
            return source.uri
        if file_system_at(source.uri) is not None:
            raise InvalidRequest(
                f"the channel {channel!r} is {source.uri!r}, and a Processing job takes no file "
                "systems; send a training job (kind='training'), or give s3://bucket/key"
            )
        raise InvalidRequest(
            f"the channel {channel!r} is {source.uri!r}, which the service cannot read: "
            "give s3://bucket/key (raysm.submit uploads local data for AWS), "
            "or on this machine file:///path"
        )

    def output_root(self) -> str:
        return (self.request.output_uri or self.places.outputs(self.request.project)).rstrip("/")

    def environment(self) -> dict[str, str]:
        capped = {} if self.cap is None else self.cap.environment
        return {**self._environment(), **capped}

    def _environment(self) -> dict[str, str]:
        if isinstance(self.target, Local) and self.target.cpus is not None:
            return {CPUS: str(self.target.cpus), **self.request.environment}
        # Instances on AWS share no disk. Those of the embedded SageMaker share this machine's, or
        # cannot reach its S3.
        request = self.request
        if self.target.takes_files or request.cluster.size == 1 or request.security.isolation:
            return dict(request.environment)
        return {
            TRAIN_STORAGE: f"{self.output_root()}/{request.name}/ray_results",
            **request.environment,
        }

    def network(self) -> dict[str, Any] | None:
        security = self.request.security
        if not security.subnets:
            return None
        return {
            "SecurityGroupIds": list(security.security_groups),
            "Subnets": list(security.subnets),
        }


def _data_type(source: Input) -> str:
    return "ManifestFile" if source.manifest else "S3Prefix"


def _processing_call(parts: _Parts) -> dict[str, Any]:
    request = parts.request
    security = parts.request.security
    cluster = parts.request.cluster
    refuse_what_processing_lacks(request)
    # Unlike CreateTrainingJob's page, API_NetworkConfig.html has no exception for calls between the
    # instances of a job. It is not known whether such jobs fail, so they are not refused.
    if security.isolation and cluster.size > 1:
        _log.warning(
            "AWS forbids network calls of isolated Processing jobs, and documents "
            "no exception for calls between the %d instances, which a cluster needs: "
            "submit with kind='training', or on one instance",
            cluster.size,
        )
    prefix = f"{parts.output_root()}/{request.name}/output"
    return without_none(
        ProcessingJobName=request.name,
        AppSpecification={
            "ImageUri": parts.target.job_image(),
            "ContainerEntrypoint": parts.entrypoint(PROCESSING_PATHS),
        },
        RoleArn=parts.target.job_role(),
        ProcessingInputs=[
            _processing_input(parts, name, source) for name, source in parts.channels()
        ],
        ProcessingOutputConfig=without_none(
            # The same folders as a Training job's. Inputs and outputs share one set of names;
            # raysm's own names begin with its prefix.
            Outputs=[
                _processing_output(
                    f"{OWN_PREFIX}result", f"{prefix}/model", PROCESSING_PATHS.model
                ),
                _processing_output(
                    f"{OWN_PREFIX}data", f"{prefix}/data", PROCESSING_PATHS.output_data
                ),
            ],
            KmsKeyId=security.output_kms_key,
        ),
        ProcessingResources={
            "ClusterConfig": without_none(
                InstanceCount=cluster.count,
                InstanceType=parts.target.instance_type(cluster.instance_type),
                VolumeSizeInGB=cluster.volume_gb,
                VolumeKmsKeyId=security.volume_kms_key,
            )
        },
        StoppingCondition={"MaxRuntimeInSeconds": parts.max_runtime_s},
        NetworkConfig=without_none(
            EnableInterContainerTrafficEncryption=security.encrypt_traffic,
            EnableNetworkIsolation=security.isolation,
            VpcConfig=parts.network(),
        ),
        Environment=parts.environment() or None,
    )


def _processing_input(parts: _Parts, name: str, source: Input) -> dict[str, Any]:
    return {
        "InputName": name,
        "S3Input": {
            "S3Uri": parts.uri(name, source),
            "LocalPath": str(PROCESSING_PATHS.channel(name)),
            "S3DataType": _data_type(source),
            "S3InputMode": "File",
            "S3DataDistributionType": source.distribution,
            "S3CompressionType": "None",
        },
    }


def _processing_output(name: str, uri: str, path: PurePath) -> dict[str, Any]:
    return {
        "OutputName": name,
        "S3Output": {"S3Uri": uri, "LocalPath": str(path), "S3UploadMode": "EndOfJob"},
    }


# Other options that exclude each other are in contract.service_rules, which checks the whole call.
def _training_call(parts: _Parts) -> dict[str, Any]:
    request = parts.request
    security = parts.request.security
    limits = parts.request.limits
    has_state = request.workload.keeps_state or request.checkpoint_uri is not None
    if limits.max_restarts and not has_state:
        raise InvalidRequest(
            f"{request.workload.label} keeps no state (keeps_state of {request.workload.kind}), "
            "so a follow-up job (limits.max_restarts) could not continue it; "
            "drop max_restarts, or give checkpoint_uri"
        )
    # Jobs that are not resumed have checkpoints too: without them no follow-up continues the job.
    state = (
        request.checkpoint_uri
        or parts.state
        or parts.places.state(request.project, request.name, request.name)
    )
    metrics = [{"Name": item.name, "Regex": item.regex} for item in request.metrics]
    # The API requires a maximum wait for spot jobs, and refuses one for all others.
    wait_s = 2 * limits.max_runtime_s if limits.max_wait_s is None else limits.max_wait_s
    return without_none(
        TrainingJobName=request.name,
        AlgorithmSpecification=without_none(
            TrainingImage=parts.target.job_image(),
            TrainingInputMode="File",
            ContainerEntrypoint=parts.entrypoint(TRAINING_PATHS),
            EnableSageMakerMetricsTimeSeries=False,
            MetricDefinitions=metrics or None,
        ),
        RoleArn=parts.target.job_role(),
        InputDataConfig=[_channel(parts, name, source) for name, source in parts.channels()],
        # With an archive, a reader would download and unpack all of it for one file.
        OutputDataConfig=without_none(
            S3OutputPath=parts.output_root(),
            CompressionType="NONE",
            KmsKeyId=security.output_kms_key,
        ),
        ResourceConfig=_resources(parts, request.cluster),
        StoppingCondition=without_none(
            MaxRuntimeInSeconds=parts.max_runtime_s,
            MaxWaitTimeInSeconds=wait_s if limits.spot else None,
        ),
        CheckpointConfig={"S3Uri": state} if has_state else None,
        EnableNetworkIsolation=security.isolation,
        EnableInterContainerTrafficEncryption=security.encrypt_traffic,
        EnableManagedSpotTraining=limits.spot,
        # Explicit also if it is false, because a policy may have a condition on it.
        RemoteDebugConfig={"EnableRemoteDebug": security.remote_debug},
        RetryStrategy=None
        if limits.retry_attempts is None
        else {"MaximumRetryAttempts": limits.retry_attempts},
        MlflowConfig=_mlflow(request),
        HyperParameters=dict(request.hyperparameters) or None,
        VpcConfig=parts.network(),
        Environment=parts.environment() or None,
    )


def _mlflow(job: JobRequest) -> dict[str, Any] | None:
    if job.tracking is None or not place_of(job.tracking).is_of_service:
        return None
    # The head finds the service's run by its name.
    return {
        "MlflowResourceArn": job.tracking,
        "MlflowExperimentName": job.project,
        "MlflowRunName": job.name,
    }


def _resources(parts: _Parts, cluster: Cluster) -> dict[str, Any]:
    shape: dict[str, Any]
    # The API takes either groups or a type and a count.
    if cluster.groups:
        kind = parts.target.instance_type
        groups = [
            {
                "InstanceType": kind(each.instance_type),
                "InstanceCount": each.count,
                "InstanceGroupName": each.name,
            }
            for each in cluster.groups
        ]
        shape = {"InstanceGroups": groups}
    elif cluster.alternatives:
        preferences = cluster.preferences
        # The API takes a count for each preference, or one for all.
        has_one = all(each.count == cluster.count for each in preferences)
        shape = {
            "InstancePreferences": [
                without_none(
                    InstanceType=each.instance_type,
                    InstanceCount=None if has_one else each.count,
                    TrainingPlanArns=[each.training_plan] if each.training_plan else None,
                )
                for each in preferences
            ]
        } | without_none(InstanceCount=cluster.count if has_one else None)
    else:
        shape = {
            "InstanceType": parts.target.instance_type(cluster.instance_type),
            "InstanceCount": cluster.count,
        }
    return shape | without_none(
        VolumeSizeInGB=cluster.volume_gb,
        VolumeKmsKeyId=parts.request.security.volume_kms_key,
        KeepAlivePeriodInSeconds=cluster.keep_alive_s or None,
        TrainingPlanArn=None if cluster.alternatives else cluster.training_plan,
    )


def _channel(parts: _Parts, name: str, source: Input) -> dict[str, Any]:
    mounted = file_system_at(source.uri)
    if mounted is not None:
        return without_none(
            ChannelName=name,
            DataSource={"FileSystemDataSource": _mount(parts, name, mounted)},
            ContentType=source.content_type,
            InputMode=source.mode,
        )
    return without_none(
        ChannelName=name,
        DataSource={
            "S3DataSource": without_none(
                S3DataType=_data_type(source),
                S3Uri=parts.uri(name, source),
                S3DataDistributionType=source.distribution,
                InstanceGroupNames=list(source.groups) or None,
            )
        },
        ContentType=source.content_type,
        InputMode=source.mode,
    )


def _mount(parts: _Parts, channel: str, mounted: FileSystem) -> dict[str, Any]:
    if parts.target.mounts_in_network and parts.network() is None:
        raise InvalidRequest(
            f"the channel {channel!r} is on the file system {mounted.id}, which instances reach "
            f"through its VPC: give {option('subnets', 'subnet-…')} and "
            f"{option('security_groups', 'sg-…')} of it"
        )
    return {
        "FileSystemId": mounted.id,
        "FileSystemType": mounted.kind,
        "DirectoryPath": mounted.directory,
        "FileSystemAccessMode": "ro",
    }
