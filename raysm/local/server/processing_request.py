"""CreateProcessingJob: what is refused here, and what a request means for its instances."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysm.core.protocol.job_api import PROCESSING as API
from raysm.core.protocol.service_rules import DEFAULT_RUNTIME_S
from raysm.local.job_spec import Channel, JobSpec, number_hosts
from raysm.local.server.definitions import (
    BASE,
    Definition,
    Output,
    Source,
    Sources,
    build_command,
    local_part,
    seconds,
)
from raysm.local.server.moto_services import ACCOUNT
from raysm.local.server.objects import Objects
from raysm.local.server.records import JobRecord
from raysm.local.server.validation import validation

PROCESSING = BASE / "processing"


def check(request: Mapping[str, Any]) -> None:
    """Raise ApiError for what is not available on this machine, with what to use instead."""
    for item in request.get("ProcessingInputs") or []:
        _check_input(item)
    for item in _outputs(request):
        if item.get("S3Output") is None:
            raise validation(f"output {item['OutputName']!r}: only S3Output is available here")
        # SageMaker admits only paths below /opt/ml/processing/.
        local_part(f"output {item['OutputName']!r}: LocalPath", _path(item["S3Output"]), PROCESSING)


def image(request: Mapping[str, Any]) -> str:
    return str(request["AppSpecification"]["ImageUri"])


def _check_input(channel: Mapping[str, Any]) -> None:
    name = channel["InputName"]
    source = channel.get("S3Input")
    if source is None:
        raise validation(f"input {name!r}: only S3Input is available here")
    if source.get("S3DataType") not in ("S3Prefix", "ManifestFile"):
        raise validation(f"input {name!r}: S3DataType must be S3Prefix or ManifestFile")
    if source.get("S3InputMode") == "Pipe":
        raise validation(f"input {name!r}: S3InputMode Pipe is not available here; use File")
    if source.get("LocalPath"):
        local_part(f"input {name!r}: LocalPath", _path(source), PROCESSING)


def _path(place: Mapping[str, Any]) -> str:
    return str(place["LocalPath"]).rstrip("/")


def _outputs(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((request.get("ProcessingOutputConfig") or {}).get("Outputs") or [])


def _downloaded_inputs(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    # An AppManaged input may lack LocalPath: the job's own program fetches it.
    return [
        item for item in request.get("ProcessingInputs") or [] if item["S3Input"].get("LocalPath")
    ]


def command(request: Mapping[str, Any]) -> tuple[str, ...]:
    app = request["AppSpecification"]
    return build_command(app.get("ContainerEntrypoint"), app.get("ContainerArguments"))


def define(record: JobRecord) -> Definition:
    request = record.request
    return Definition(
        sources=[
            Source(
                name=item["InputName"],
                uri=item["S3Input"]["S3Uri"],
                manifest=item["S3Input"]["S3DataType"] == "ManifestFile",
            )
            for item in _downloaded_inputs(request)
        ],
        outputs=[
            Output(place=local_part("", _path(item["S3Output"])), uri=item["S3Output"]["S3Uri"])
            for item in _outputs(request)
        ],
        instances=request["ProcessingResources"]["ClusterConfig"]["InstanceCount"],
        max_runtime_s=seconds(
            request.get("StoppingCondition") or {}, "MaxRuntimeInSeconds", DEFAULT_RUNTIME_S
        ),
        kms_key=(request.get("ProcessingOutputConfig") or {}).get("KmsKeyId") or None,
    )


def specify(record: JobRecord, objects: Objects, sources: Sources) -> JobSpec:
    request = record.request
    cluster = request["ProcessingResources"]["ClusterConfig"]
    return JobSpec(
        name=record.name,
        api=API,
        account=ACCOUNT,
        region=record.region,
        # The files of a Processing job have no groups.
        groups=number_hosts(
            ("homogeneousCluster", cluster["InstanceType"], cluster["InstanceCount"])
        ),
        command=command(request),
        channels=tuple(
            _channel(item, *sources[item["InputName"]]) for item in _downloaded_inputs(request)
        ),
        environment=request.get("Environment") or {},
        outputs={
            item["OutputName"]: local_part("", _path(item["S3Output"]))
            for item in _outputs(request)
        },
        description=_description(record),
    )


def _channel(channel: Mapping[str, Any], source: Path, owned: bool) -> Channel:
    return Channel(
        name=channel["InputName"],
        source=source,
        owned=owned,
        distribution=channel["S3Input"].get("S3DataDistributionType") or "FullyReplicated",
        target=local_part("", _path(channel["S3Input"])),
    )


def _description(record: JobRecord) -> dict[str, Any]:
    request = record.request
    app = request["AppSpecification"]
    cluster = request["ProcessingResources"]["ClusterConfig"]
    return {
        "ProcessingJobArn": record.arn,
        "ProcessingJobName": record.name,
        # Missing values are null or their defaults, as the developer guide shows the file.
        "AppSpecification": {"ContainerEntrypoint": None, "ContainerArguments": None, **app},
        "Environment": request.get("Environment") or {},
        "ProcessingInputs": [
            {"AppManaged": False, "DatasetDefinitionInput": None, **item}
            for item in request.get("ProcessingInputs") or []
        ],
        "ProcessingOutputConfig": {
            "Outputs": [
                {"AppManaged": False, "FeatureStoreOutput": None, **item}
                for item in _outputs(request)
            ],
            "KmsKeyId": (request.get("ProcessingOutputConfig") or {}).get("KmsKeyId"),
        },
        "ProcessingResources": {"ClusterConfig": {"VolumeKmsKeyId": None, **cluster}},
        "RoleArn": request["RoleArn"],
        "StoppingCondition": {
            "MaxRuntimeInSeconds": DEFAULT_RUNTIME_S,
            **(request.get("StoppingCondition") or {}),
        },
    }
