"""The configuration files that SageMaker gives to an instance, for training and for processing.

Sources: the SageMaker developer guide, "How Amazon SageMaker Provides Training Information" and "How Amazon SageMaker
Processing Configures Your Processing Container"; fields that only real files show are written as those show them.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.contract.paths import Paths
from raysm.contract.store import make_folder, put
from raysm.local.job_spec import Channel, JobSpec

__all__ = ["JobFiles"]


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFiles:
    """What all instances of a job are told."""

    spec: JobSpec
    """The job."""
    interface: str = "eth0"
    """The network interface between the instances."""

    def variables(self) -> dict[str, str]:
        """Return the environment variables that the service sets."""
        if self.spec.api.layout.description:
            # Name and ARN stand in it.
            return {"AWS_REGION": self.spec.region}
        return {
            "TRAINING_JOB_NAME": self.spec.name,
            "TRAINING_JOB_ARN": self.spec.arn,
            "AWS_REGION": self.spec.region,
        }

    def write(self, host: str, base: Path, inside: Path) -> Paths:
        """Make the folders and files of ``host`` below ``base``.

        Args:
            host: The instance.
            base: The folder of this machine; what it lies in is there.
            inside: What the instance itself calls that folder.

        Returns:
            The layout below ``base``.
        """
        spec = self.spec
        paths, inner_paths = Paths(base, spec.api), Paths(inside, spec.api)
        for folder in (paths.config, paths.model, paths.output_data, paths.failure.parent, paths.payload.parent):
            make_folder(folder, within=base.parent)
        for place in spec.outputs.values():
            make_folder(base / place, within=base)
        if spec.checkpoints:
            make_folder(base / spec.checkpoints.target, within=base)
        for channel in spec.channels:
            # Also for a host whose share of it is empty.
            if channel.distribution != "FullyReplicated" and host in spec.hosts_of(channel):
                make_folder(base / spec.place_of(channel), within=base)
        for path, content in self._contents(host, paths, inner_paths):
            put(path, json.dumps(content, indent=1) + "\n", within=base)
        return paths

    def _contents(self, host: str, paths: Paths, inner_paths: Paths) -> list[tuple[Path, Any]]:
        spec = self.spec
        if paths.description:
            return [
                # All that this file has of a Processing job: neither groups nor the interface's name.
                (paths.resource_config, {"current_host": host, "hosts": sorted(spec.hosts)}),
                (paths.description, dict(spec.description)),
            ]
        mine = [channel for channel in spec.channels if host in spec.hosts_of(channel)]
        contents: list[tuple[Path, Any]] = [
            (paths.resource_config, self._resources(host)),
            (paths.hyperparameters, dict(spec.hyperparameters)),
            (paths.input_data_config, {channel.name: _channel_config(channel) for channel in mine}),
        ]
        if spec.checkpoints:
            place = {"LocalPath": str(inner_paths.base / spec.checkpoints.target), "S3Uri": spec.checkpoints.uri}
            contents.append((paths.checkpoint_config, place))
        return contents

    def _resources(self, host: str) -> dict[str, Any]:
        mine = next(group for group in self.spec.groups if host in group.hosts)
        return {
            "current_host": host,
            "current_instance_type": mine.instance_type,
            "current_group_name": mine.name,
            # As the service lists them: algo-10 before algo-2.
            "hosts": sorted(self.spec.hosts),
            "instance_groups": [
                {
                    "instance_group_name": group.name,
                    "instance_type": group.instance_type,
                    "hosts": sorted(group.hosts),
                }
                for group in self.spec.groups
            ],
            "network_interface_name": self.interface,
        }


def _channel_config(channel: Channel) -> dict[str, str]:
    config = {
        # FastFile is told as File too.
        "TrainingInputMode": "File",
        "S3DistributionType": channel.distribution,
        "RecordWrapperType": channel.record_wrapper,
    }
    return config if channel.content_type is None else {"ContentType": channel.content_type, **config}
