"""The specification of a job on this machine, made by the server from an API request.

All data are on this machine: the server downloads channels from S3 before the job, and uploads
outputs after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from raysm.core.protocol.job_api import TRAINING, JobApi
from raysm.core.protocol.names import LOCAL_REGION
from raysm.core.request.cluster import Distribution
from raysm.errors import InvalidRequest
from raysm.local.checkpoints import CheckpointStore

ACCOUNT = "000000000000"
REGION = LOCAL_REGION


@dataclass(frozen=True, kw_only=True, slots=True)
class GracePeriods:
    stop_grace_s: float = 120.0
    """From SIGTERM to SIGKILL when the job is stopped: SageMaker documents 120."""
    settle_s: float = 15.0
    """From a failure to SIGTERM: the head needs time to notice the failure and to write the
    reason."""
    kill_s: float = 30.0
    """From SIGTERM to SIGKILL after a failure: instances need time to save work."""


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    instance_type: str
    hosts: tuple[str, ...]


def number_hosts(*groups: tuple[str, str, int]) -> tuple[Group, ...]:
    """Number the hosts of groups, ``algo-1`` upwards, group by group.

    A group is given as name, instance type and count.
    """
    numbered = []
    number = 1
    for name, instance_type, count in groups:
        numbered.append(
            Group(name, instance_type, tuple(f"algo-{number + i}" for i in range(count)))
        )
        number += count
    return tuple(numbered)


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    name: str
    source: Path
    distribution: Distribution = "FullyReplicated"
    """FullyReplicated: each instance gets all objects. ShardedByS3Key: each gets its share."""
    owned: bool = False
    """The source belongs to the job, which may move it, and each instance gets its own copy.
    Otherwise it is the user's and no instance may change it."""
    is_mounted: bool = False
    """The source is a folder of a file system, which is mounted read-only and never copied."""
    target: PurePosixPath | None = None
    content_type: str | None = None
    record_wrapper: str = "None"
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoints:
    store: CheckpointStore
    uri: str
    target: PurePosixPath = PurePosixPath("checkpoints")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    name: str
    groups: tuple[Group, ...]
    command: tuple[str, ...]
    """The main process of each instance; ``/opt/ml`` in it is the instance's, whatever its kind."""
    api: JobApi = TRAINING
    account: str = ACCOUNT
    region: str = REGION
    head: str | None = None
    """The host that starts first and whose failure reason counts first; None is the first host."""
    channels: tuple[Channel, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    checkpoints: Checkpoints | None = None
    outputs: Mapping[str, PurePosixPath] = field(default_factory=dict)
    """The paths of a Processing job's outputs, relative to the base folder."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """The whole job as its instances find it, in ``processingjobconfig.json`` or
    ``trainingjobconfig.json``."""
    losses_allowed: bool = False
    """The job goes on if an instance other than the head fails; SageMaker never does."""

    def __post_init__(self) -> None:
        title = self.api.title
        # API_ProcessingResources has one ClusterConfig, with one type and no groups.
        if len(self.groups) > 1 and not self.api.has_groups:
            raise InvalidRequest(
                f"a {title} job has instances of one type: give count, not groups, or use training"
            )
        if self.checkpoints and not self.api.has_checkpoints:
            raise InvalidRequest(f"a {title} job has no checkpoints; use training")

    @property
    def arn(self) -> str:
        return self.api.arn(region=self.region, account=self.account, name=self.name)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(host for group in self.groups for host in group.hosts)

    @property
    def first(self) -> str:
        return self.head or self.groups[0].hosts[0]

    def hosts_of(self, channel: Channel) -> tuple[str, ...]:
        groups = (
            group for group in self.groups if not channel.groups or group.name in channel.groups
        )
        return tuple(host for group in groups for host in group.hosts)

    def place_of(self, channel: Channel) -> PurePosixPath:
        return channel.target or PurePosixPath(self.api.layout.channels) / channel.name
