"""Compare the API call that raysm makes for a translated job with that of the SDK."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from raysm.core.client.images import with_image
from raysm.core.client.plan import Plan, plan
from raysm.core.client.settings import OWN, Layer, Settings
from raysm.core.client.storage.places import Places
from raysm.core.request import AWS, JobRequest
from raysm.core.request.job import hyperparameter_text
from raysm.features.migrate.output import ROLE
from raysm.features.migrate.translation import Translation, not_constant

ROOT = "s3://BUCKET/raysm"
OF_RAYSM = (
    "AlgorithmSpecification.ContainerEntrypoint",
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries",
    "InputDataConfig[raysm]",
    "ProcessingInputs[raysm]",
    "ProcessingOutputConfig",
    "CheckpointConfig",
    "RemoteDebugConfig",
)
"""Fields, or their beginnings, that the SDK leaves out unless it is asked for them."""
TRAINING = {
    "AlgorithmSpecification.TrainingImage": "the image of the class",
    "OutputDataConfig.S3OutputPath": "s3://sagemaker-REGION-ACCOUNT/",
    "OutputDataConfig.CompressionType": "GZIP",
}
ESTIMATOR = TRAINING | {
    "HyperParameters.sagemaker_program": "the script",
    "HyperParameters.sagemaker_submit_directory": "s3://…/sourcedir.tar.gz",
}
TRAINER = TRAINING | {
    "StoppingCondition.MaxRuntimeInSeconds": "3600",
    "InputDataConfig[code]": "the source folder",
    "InputDataConfig[sm_drivers]": "the SDK's launcher",
    "AlgorithmSpecification.ContainerEntrypoint": "/bin/bash …/sm_train.sh",
}
PROCESSOR = {
    "AppSpecification.ImageUri": "the image of the class",
    "AppSpecification.ContainerEntrypoint": "python3 /opt/ml/processing/input/code/…",
    "ProcessingInputs[code]": "the script",
}
NAMED = {
    "AlgorithmSpecification.TrainingImage": "aws.image",
    "AppSpecification.ImageUri": "aws.image",
    "OutputDataConfig.S3OutputPath": "output_uri",
    "CheckpointConfig.S3Uri": "checkpoint_uri",
    "StoppingCondition.MaxRuntimeInSeconds": "limits.max_runtime_s",
    "RemoteDebugConfig.EnableRemoteDebug": "security.remote_debug",
}
"""Fields that both calls take from an option, if it is given."""


def api_differences(job: Translation) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the API, and each field that differs: its path, the SDK's value and raysm's."""
    planned = _plan(job)
    ours = dict(_flat("", planned.request))
    theirs = dict.fromkeys([path for path in ours if path.startswith(OF_RAYSM)], "-")
    if "kind" in job.options:
        theirs |= PROCESSOR
    else:
        theirs |= TRAINER if job.title == "ModelTrainer" else ESTIMATOR
    differing = [
        (path, value, ours.get(path, "-"))
        for path, value in theirs.items()
        if NAMED.get(path) not in job.options
    ]
    return planned.api.create, differing


def _plan(job: Translation) -> Plan:
    values: dict[str, Any] = {
        "name": "job",
        "workload.script": "train.py",
        "cluster.instance_type": "ml.m5.large",
        "aws.role": ROLE,
    }
    for name, value in job.options.items():
        if name.endswith(".uri") and not str(value).startswith("s3://"):
            values[name] = f"{ROOT}/inputs/{name.split('.')[1]}"
        elif list(not_constant(name, value)) or name == "output":
            continue
        elif name == "metrics":
            values[name] = [{"name": key, "regex": regex} for key, regex in value.items()]
        elif name == "hyperparameters" and isinstance(value, dict):
            values[name] = {key: hyperparameter_text(key, item) for key, item in value.items()}
        else:
            values[name] = value
    keys = {tuple(name.split(".")): value for name, value in values.items()}
    layer = Layer(values={("on",): "aws", **keys}, origin=lambda key: "the script")
    settings = Settings([layer])
    options = {name: value for name, value in settings.options().items() if name not in OWN}
    request = JobRequest(workload=settings.workload(), **options)
    target = settings.target()
    assert isinstance(target, AWS)
    return plan(
        request,
        target=with_image(target, request, lambda: "us-east-1")[0],
        places=Places(bucket="BUCKET", root=ROOT, data=ROOT),
    )


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{path}.{key}".lstrip("."), item)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for item in value:
            uris = [text for key, text in _flat("", item) if key.endswith("S3Uri")]
            yield f"{path}[{next(iter(item.values()))}]", uris[0] if uris else json.dumps(item)
    elif value is not None and value != []:
        yield path, " ".join(map(str, value)) if isinstance(value, list) else str(value)
