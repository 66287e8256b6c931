"""The specification of a job on this machine, which the server makes from an API request.

All data are on this machine: the server has downloaded them from S3, and uploads what remains.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from raysm.contract.job_api import TRAINING, JobApi
from raysm.contract.names import LOCAL_REGION
from raysm.errors import InvalidRequest
from raysm.local.checkpoints import CheckpointStore
from raysm.request.channels import Distribution

__all__ = ["ACCOUNT", "REGION", "Channel", "Checkpoints", "Group", "JobSpec", "Patience", "number_hosts"]

ACCOUNT = "000000000000"
"""No account of AWS."""
REGION = LOCAL_REGION
"""Where a job is that names no region."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long instances that are to end may take; all in seconds."""

    stop_grace_s: float = 120.0
    """From SIGTERM to SIGKILL in a job that is stopped: SageMaker's own 120."""
    # Long enough for the head to notice the loss and say so: its words become the failure reason.
    settle_s: float = 15.0
    """That the others have, once an instance has failed, to end by themselves."""
    # Time to save what they have; one that is frozen hears nothing, and is not to keep the job from its end.
    kill_s: float = 30.0
    """From their SIGTERM to SIGKILL, where they have not."""


@dataclass(frozen=True, slots=True)
class Group:
    """An instance group with its hosts."""

    name: str
    """A plain job has one, ``homogeneousCluster``."""
    instance_type: str
    """As asked for."""
    hosts: tuple[str, ...]
    """In the order of their numbers."""


def number_hosts(*groups: tuple[str, str, int]) -> tuple[Group, ...]:
    """Name the hosts of groups, each of them name, instance type and count: ``algo-1`` upwards, group by group."""
    numbered, number = [], 1
    for name, instance_type, count in groups:
        numbered.append(Group(name, instance_type, tuple(f"algo-{number + i}" for i in range(count))))
        number += count
    return tuple(numbered)


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """A named input whose data lies on this machine."""

    name: str
    """Of the channel."""
    source: Path
    """A file, or a folder of files."""
    distribution: Distribution = "FullyReplicated"
    """FullyReplicated: each instance has all. ShardedByS3Key: each has its share, by key."""
    owned: bool = False
    """False: the source is the user's, which no instance may change. True: it belongs to the job alone, which may move
    it, and each instance gets files of its own that it may change."""
    target: PurePosixPath | None = None
    """Where it appears, relative to the base folder; None is ``input/data/NAME``, or ``processing/input/NAME``."""
    content_type: str | None = None
    """MIME type, told to the job."""
    record_wrapper: str = "None"
    """Told to the job."""
    groups: tuple[str, ...] = ()
    """Instance groups that get it; none is all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoints:
    """State that survives the job."""

    store: CheckpointStore
    """Where it is kept."""
    uri: str
    """What the job is told of that."""
    target: PurePosixPath = PurePosixPath("checkpoints")
    """Where it appears in each instance, relative to the base folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    """One job.

    Raises:
        InvalidRequest: A Processing job has what only training has.
    """

    name: str
    """Of the job."""
    groups: tuple[Group, ...]
    """The instances."""
    command: tuple[str, ...]
    """The main process of each instance; ``/opt/ml`` in it is the instance's, whatever its kind."""
    api: JobApi = TRAINING
    """Which of SageMaker's APIs it was asked of: instances find their files where that one has them."""
    account: str = ACCOUNT
    """Of the ARN."""
    region: str = REGION
    """Of the ARN and of AWS_REGION."""
    head: str | None = None
    """The host that starts first and whose words about a failure count first; None is the first host of all."""
    channels: tuple[Channel, ...] = ()
    """The inputs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The job's own variables; they replace the service's."""
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    """Of a training job."""
    checkpoints: Checkpoints | None = None
    """Of a training job."""
    warm: Path | None = None
    """Of a job whose instances are kept for the next one: where what is kept lies, a folder for each host."""
    outputs: Mapping[str, PurePosixPath] = field(default_factory=dict)
    """Of a Processing job: where each output is collected, relative to the base folder."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """Of a Processing job: what ``processingjobconfig.json`` says, in the words of the API."""
    losses_allowed: bool = False
    """Whether the job goes on without an instance, other than the head, that failed; SageMaker never does."""

    def __post_init__(self) -> None:
        """Check what the kind of job admits."""
        title = self.api.title
        # API_ProcessingResources has one ClusterConfig, of one type, and no groups.
        if len(self.groups) > 1 and not self.api.has_groups:
            raise InvalidRequest(f"a {title} job has instances of one type: give count, not groups, or use training")
        if self.checkpoints and not self.api.has_checkpoints:
            raise InvalidRequest(f"a {title} job has no checkpoints; use training")

    @property
    def arn(self) -> str:
        """The job's ARN."""
        return self.api.arn(region=self.region, account=self.account, name=self.name)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All instances in the order of their numbers."""
        return tuple(host for group in self.groups for host in group.hosts)

    @property
    def first(self) -> str:
        """The host that is the head."""
        # algo-1, where nobody names a group for it.
        return self.head or self.groups[0].hosts[0]

    def hosts_of(self, channel: Channel) -> tuple[str, ...]:
        """Return the instances that get ``channel``."""
        groups = (group for group in self.groups if not channel.groups or group.name in channel.groups)
        return tuple(host for group in groups for host in group.hosts)

    def place_of(self, channel: Channel) -> PurePosixPath:
        """Return where ``channel`` appears, relative to the base folder."""
        # A channel's place is the API's; a Processing input names its own.
        return channel.target or PurePosixPath(self.api.layout.channels) / channel.name
