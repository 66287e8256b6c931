"""The parameters of CreateProcessingJob. Pure: what flows in are the parts of a call, what flows out is the call."""

import logging
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from raysm.client.calls.parts import Call, Parts, present
from raysm.contract.job_api import PROCESSING
from raysm.contract.paths import Paths
from raysm.request import Input, JobRequest
from raysm.request.job import OWN_PREFIX
from raysm.request.options import refuse_what_processing_lacks

__all__ = ["CALL"]

INSIDE = Paths(api=PROCESSING)

_log = logging.getLogger("raysm")


def _parameters(parts: Parts) -> dict[str, Any]:
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


def _outputs(name: str, answer: Mapping[str, Any]) -> str:
    outputs = answer.get("ProcessingOutputConfig", {}).get("Outputs", ())
    uris = [output["S3Output"]["S3Uri"].rstrip("/") for output in outputs]
    return str(next(iter(uris), "").rpartition("/")[0])


def _check(request: JobRequest) -> None:
    refuse_what_processing_lacks(request)
    # The API reference excepts calls between peers of CreateTrainingJob's isolation alone (API_NetworkConfig.html has
    # no such words). Not refused: nobody has said that it fails, either.
    if request.security.isolation and request.cluster.size > 1:
        _log.warning(
            "AWS documents that isolated containers of a Processing job can neither be called nor call, and excepts no "
            "calls between its %d instances, without which no cluster forms: submit with kind='training', or on one "
            "instance",
            request.cluster.size,
        )


CALL = Call(check=_check, parameters=_parameters, outputs=_outputs)
