"""The configuration files that SageMaker gives to an instance, for training and for processing.

Sources: the SageMaker developer guide, "How Amazon SageMaker Provides Training Information" and "How Amazon SageMaker
Processing Configures Your Processing Container"; fields that only real files show are written as those show them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysm.contract.paths import Paths
from raysm.contract.store import put
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, JobRequest
from raysm.request.job import PAYLOAD_CHANNEL

__all__ = ["Group", "JobFiles", "groups_of", "head_of"]

ACCOUNT = "000000000000"
"""No account of AWS."""


@dataclass(frozen=True, slots=True)
class Group:
    """An instance group with its hosts."""

    name: str
    """A plain job has one, ``homogeneousCluster``."""
    instance_type: str
    """As asked for."""
    hosts: tuple[str, ...]
    """In the order of their numbers."""


def groups_of(cluster: Cluster) -> list[Group]:
    """Name the hosts: ``algo-1`` upwards, group by group."""
    asked = [(group.name, group.instance_type, group.count) for group in cluster.groups]
    found, number = [], 1
    for name, instance_type, count in asked or [("homogeneousCluster", cluster.instance_type, cluster.count)]:
        found.append(Group(name, instance_type, tuple(f"algo-{number + i}" for i in range(count))))
        number += count
    return found


def head_of(cluster: Cluster) -> str:
    """Return the host that is the head."""
    groups = groups_of(cluster)
    return next((group.hosts[0] for group in groups if group.name == cluster.head), groups[0].hosts[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFiles:
    """What all instances of a job are told.

    Raises:
        InvalidRequest: A Processing job cannot have what is asked for.
    """

    request: JobRequest
    """The job."""
    processing: bool = False
    """The layout of a Processing job."""
    interface: str = "eth0"
    """The network interface between the instances."""
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    """As CreateTrainingJob has them."""
    checkpoints: bool = False
    """Whether the job has a checkpoint URI."""
    region: str = "us-east-1"
    """Of the ARN and of AWS_REGION."""

    def __post_init__(self) -> None:
        """Check what the kind of job admits."""
        if self.processing and self.request.cluster.groups:
            raise InvalidRequest("a Processing job has instances of one type: give count, not groups, or use training")
        if self.processing and self.checkpoints:
            raise InvalidRequest("a Processing job has no checkpoints; use training")

    @property
    def arn(self) -> str:
        """The job's ARN."""
        kind = "processing-job" if self.processing else "training-job"
        return f"arn:aws:sagemaker:{self.region}:{ACCOUNT}:{kind}/{self.request.name}"

    def variables(self) -> dict[str, str]:
        """Return the environment variables that the service sets."""
        if self.processing:
            return {"AWS_REGION": self.region}
        return {
            "TRAINING_JOB_NAME": self.request.name,
            "TRAINING_JOB_ARN": self.arn,
            "AWS_REGION": self.region,
        }

    def write(self, host: str, base: Path, inside: Path) -> Paths:
        """Make the folders and files of ``host`` below ``base``.

        Args:
            host: The instance.
            base: The folder of this machine.
            inside: What the instance itself calls that folder.

        Returns:
            The layout below ``base``.
        """
        paths, seen = Paths(base, self.processing), Paths(inside, self.processing)
        for folder in (paths.config, paths.model, paths.output_data, paths.failure.parent, paths.payload.parent):
            folder.mkdir(parents=True, exist_ok=True)
        if self.checkpoints:
            paths.checkpoints.mkdir(exist_ok=True)
        for channel in self.request.inputs:
            # Also for a host whose share of it is empty.
            if self.request.inputs[channel].distribution != "FullyReplicated":
                paths.channel(channel).mkdir(parents=True, exist_ok=True)
        for path, content in self._contents(host, paths, seen):
            put(path, json.dumps(content, indent=1) + "\n")
        return paths

    def _contents(self, host: str, paths: Paths, seen: Paths) -> list[tuple[Path, Any]]:
        if self.processing:
            return [
                (paths.resource_config, {"current_host": host, "hosts": self._hosts()}),
                (paths.processing_config, self._processing_job(seen)),
            ]
        found: list[tuple[Path, Any]] = [
            (paths.resource_config, self._resources(host)),
            (paths.hyperparameters, dict(self.hyperparameters)),
            (paths.input_data_config, {name: _channel(given) for name, given in self._channels().items()}),
        ]
        if self.checkpoints:
            uri = f"s3://local/{self.request.name}/checkpoints"
            found.append((paths.checkpoint_config, {"LocalPath": str(seen.checkpoints), "S3Uri": uri}))
        return found

    def _hosts(self) -> list[str]:
        # As the service lists them: algo-10 before algo-2.
        return sorted(host for group in groups_of(self.request.cluster) for host in group.hosts)

    def _channels(self) -> dict[str, Input]:
        return {**self.request.inputs, PAYLOAD_CHANNEL: Input(f"s3://local/{self.request.name}/payload")}

    def _resources(self, host: str) -> dict[str, Any]:
        groups = groups_of(self.request.cluster)
        mine = next(group for group in groups if host in group.hosts)
        return {
            "current_host": host,
            "current_instance_type": mine.instance_type,
            "current_group_name": mine.name,
            "hosts": self._hosts(),
            "instance_groups": [
                {
                    "instance_group_name": group.name,
                    "instance_type": group.instance_type,
                    "hosts": sorted(group.hosts),
                }
                for group in groups
            ],
            "network_interface_name": self.interface,
        }

    def _processing_job(self, seen: Paths) -> dict[str, Any]:
        cluster = self.request.cluster
        outputs: Sequence[tuple[str, Path]] = [("result", seen.model), ("data", seen.output_data)]
        return {
            "ProcessingJobArn": self.arn,
            "ProcessingJobName": self.request.name,
            "AppSpecification": {"ImageUri": "local", "ContainerEntrypoint": None, "ContainerArguments": None},
            "Environment": {},
            "ProcessingInputs": [
                _processing_input(name, given, seen.channel(name)) for name, given in self._channels().items()
            ],
            "ProcessingOutputConfig": {
                "Outputs": [_processing_output(self.request.name, name, path) for name, path in outputs],
                "KmsKeyId": None,
            },
            "ProcessingResources": {
                "ClusterConfig": {
                    "InstanceCount": cluster.count,
                    "InstanceType": cluster.instance_type,
                    "VolumeSizeInGB": 30,
                    "VolumeKmsKeyId": None,
                }
            },
            "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/local",
            "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        }


def _channel(given: Input) -> dict[str, str]:
    return {
        "TrainingInputMode": "File",
        "S3DistributionType": given.distribution,
        "RecordWrapperType": "None",
    }


def _processing_input(name: str, given: Input, path: Path) -> dict[str, Any]:
    return {
        "InputName": name,
        "AppManaged": False,
        "S3Input": {
            "LocalPath": str(path),
            "S3Uri": given.uri,
            "S3DataDistributionType": given.distribution,
            "S3DataType": "S3Prefix",
            "S3InputMode": "File",
            "S3CompressionType": "None",
            "S3DownloadMode": "StartOfJob",
        },
        "DatasetDefinitionInput": None,
    }


def _processing_output(job: str, name: str, path: Path) -> dict[str, Any]:
    return {
        "OutputName": name,
        "AppManaged": False,
        "S3Output": {
            "LocalPath": str(path),
            "S3Uri": f"s3://local/{job}/output/{name}",
            "S3UploadMode": "EndOfJob",
        },
        "FeatureStoreOutput": None,
    }
