"""The parameters of CreateTrainingJob. Pure: what flows in are the parts of a call, what flows out is the call."""

from collections.abc import Mapping
from typing import Any

from raysm.client.calls.parts import Call, Parts, join_path, present
from raysm.contract.paths import Paths
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, JobRequest
from raysm.request.external import place_of

__all__ = ["CALL"]


def _parameters(parts: Parts) -> dict[str, Any]:
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
    # Also of a job that nobody wants to resume: without it, no follow-up goes on with it.
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


def _outputs(name: str, answer: Mapping[str, Any]) -> str:
    artifacts = answer.get("ModelArtifacts", {}).get("S3ModelArtifacts", "").rstrip("/")
    # Until the job has artifacts, their place follows from the call.
    if artifacts:
        return str(artifacts.rpartition("/")[0])
    return join_path(answer["OutputDataConfig"]["S3OutputPath"], name)


# What else excludes itself in a training job stands among the rules that no model says, which check the whole call.
def _check(request: JobRequest) -> None:
    if request.limits.max_restarts and not request.workload.keeps_state and request.checkpoint_uri is None:
        raise InvalidRequest(
            f"{request.workload.label} keeps no state (keeps_state of {request.workload.kind}) with which a follow-up "
            "job could go on (limits.max_restarts); drop one"
        )


CALL = Call(check=_check, parameters=_parameters, outputs=_outputs)
