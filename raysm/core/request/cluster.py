"""The cluster of a job, its ports, and the channels that its instances read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from raysm.core.request.file_systems import file_system_at
from raysm.core.request.options import check_counts, check_list, check_numbers, decides, optional
from raysm.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """TCP ports, the same numbers on every instance.

    0 lets the system choose, except for the head's three ports.

    Raises:
        InvalidRequest: A port is out of range, or two are the same.
    """

    control: int = 6380
    """Head: raysm's control channel."""
    gcs: int = 6379
    """Head: Ray's GCS, the port of ``RAY_ADDRESS``."""
    dashboard: int = 8265
    """Head: the Ray dashboard and the Jobs API."""
    node_manager: int = 6381
    """Every instance: the raylet."""
    object_manager: int = 6382
    """Every instance: the transfer of objects."""
    runtime_env_agent: int = 6383
    """Every instance: Ray's agent for runtime environments."""
    dashboard_agent: int = 6384
    """Every instance: the dashboard's agent, HTTP."""
    dashboard_agent_grpc: int = 6385
    """Every instance: the dashboard's agent, gRPC."""
    metrics_export: int = 6386
    """Every instance: Ray's metrics, for Prometheus."""
    # Ray's default range. The fixed ports lie outside of it, so that no worker takes one first.
    worker_min: int = 10002
    """Every instance: first port of the workers' range; 0 lets the system choose them all."""
    worker_max: int = 19999
    """Every instance: last port of the workers' range."""

    def __post_init__(self) -> None:
        seen: dict[int, str] = {}
        for item in fields(self):
            port = getattr(self, item.name)
            if not 0 <= port <= 65535:
                raise InvalidRequest(f"Ports: {item.name} must be 0 to 65535, got {port}")
            # Several ports may be 0: the system never chooses the same port twice.
            if port and port in seen:
                raise InvalidRequest(f"Ports: {item.name} and {seen[port]} are both {port}")
            seen[port] = item.name
        for name in ("control", "gcs", "dashboard"):
            if getattr(self, name) == 0:
                raise InvalidRequest(
                    f"Ports: {name} must be a fixed port: the other instances have to find it"
                )
        if self.worker_max < self.worker_min:
            raise InvalidRequest(
                f"Ports: worker_max={self.worker_max} lies below worker_min={self.worker_min}"
            )


LOCAL_TYPE = "local"
"""The default instance type: this machine."""
MIN_SILENCE_S = 3.0
"""Three heartbeats, one a second: with a shorter limit, a busy network would lose healthy
instances."""
MAX_SILENCE_S = 86_400.0
MAX_GROUPS = 5
"""CreateTrainingJob takes at most this many instance groups."""
MAX_TYPES = 5
"""CreateTrainingJob takes at most this many instance types to choose from."""


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Instances of one type under one name, a part of a heterogeneous cluster.

    Raises:
        InvalidRequest: The name is empty, or the count is below 1.
    """

    name: str
    """1 to 64 characters."""
    instance_type: str
    """SageMaker's name, ``ml.g5.12xlarge``."""
    count: int
    """Number of instances, at least 1."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= 64:
            raise InvalidRequest(
                f"an instance group's name has 1 to 64 characters, got {self.name!r}"
            )
        check_counts(f"instance group {self.name!r}", 1, count=self.count)


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another instance type for a cluster, with its number of instances and reserved capacity.

    Raises:
        InvalidRequest: The count is below 1.
    """

    instance_type: str
    """SageMaker's name, ``ml.p4d.24xlarge``."""
    count: int | None = None
    """Number of instances if the service takes this type; None is that of the cluster."""
    training_plan: str | None = None
    """ARN of a training plan whose reserved capacity is used; None is on demand."""

    def __post_init__(self) -> None:
        check_counts(f"alternative {self.instance_type!r}", 1, or_none=True, count=self.count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """The shape of the cluster, and the rules for instances that are missing or lost.

    Raises:
        InvalidRequest: The fields contradict each other, or one is out of its range.
    """

    instance_type: str = field(
        default=LOCAL_TYPE,
        kw_only=False,
        metadata=decides(result=True, create="ResourceConfig.InstanceType"),
    )
    """Type of all instances; with ``groups``, each group has its own and this stays at its
    default."""
    count: int = optional(1, result=True, create="ResourceConfig.InstanceCount")
    """Number of instances, at least 1; with ``groups``, each group has its own and this stays at
    its default."""
    groups: tuple[InstanceGroup, ...] = optional(
        (),
        result=True,
        create=(
            "ResourceConfig.InstanceGroups",
            "ResourceConfig.InstanceType",
            "ResourceConfig.InstanceCount",
        ),
        processing_lacks="instance groups",
    )
    """A heterogeneous cluster: up to five groups with distinct names."""
    head: str | None = optional(None, result=True)
    """The group whose first instance is the head; None is the instance with the lowest number of
    all."""
    coordinator_only: bool = optional(False, result=True)
    """True keeps all work off the head: it runs the driver and gathers, nothing else."""
    min_instances: int | None = optional(None, result=True)
    """Start with this many instances, including the head, when ``join_timeout_s`` has passed; None
    is all of them."""
    join_timeout_s: float = optional(600.0, result=False)
    """Seconds from the start of the head until every instance must have joined."""
    placement_timeout_s: float = optional(600.0, result=False)
    """Seconds that Ray may wait for CPUs, GPUs, memory or custom resources that the whole cluster
    does not have; then the job fails. The log names such a request after 60 s."""
    volume_gb: int = optional(30, result=False, create="ResourceConfig.VolumeSizeInGB")
    """Size of each instance's volume, GB."""
    keep_alive_s: int = optional(
        0,
        result=False,
        create="ResourceConfig.KeepAlivePeriodInSeconds",
        processing_lacks="warm pools",
    )
    """Seconds that the instances stay warm for the next job, at most 21,600; 0 is not at all."""
    training_plan: str | None = optional(
        None,
        result=False,
        create="ResourceConfig.TrainingPlanArn",
        processing_lacks="training plans",
    )
    """ARN of a training plan whose reserved capacity is used; with alternatives, for
    ``instance_type`` alone."""
    alternatives: tuple[str | Alternative, ...] = optional(
        (),
        result=True,
        create=("ResourceConfig.InstancePreferences", "ResourceConfig.InstanceType"),
        processing_lacks="a choice of instance types",
    )
    """Other types, the best first: names, or ``Alternative`` for another number of instances. The
    service takes one if the region has no ``instance_type``. Not on spot."""
    on_instance_loss: Literal["fail", "continue"] = optional("fail", result=True)
    """The effect of the loss of an instance other than the head."""
    silence_s: float = optional(30.0, result=False)
    """Seconds without a heartbeat after which an instance is lost, 3 to 86,400; an instance whose
    connection closes is lost at once."""
    allow_cpu: bool = optional(False, result=False)
    """True lets a job run on instances whose GPUs torch cannot use; otherwise it fails at once."""

    def __post_init__(self) -> None:
        # Users may pass lists; tuples keep the request immutable and hashable.
        for name in ("groups", "alternatives"):
            object.__setattr__(self, name, check_list("Cluster", name, getattr(self, name)))
        self._check_alternatives()
        check_counts("Cluster", 1, count=self.count, volume_gb=self.volume_gb)
        check_counts("Cluster", 1, or_none=True, min_instances=self.min_instances)
        check_counts("Cluster", 0, keep_alive_s=self.keep_alive_s)
        timeouts = {
            "join_timeout_s": self.join_timeout_s,
            "placement_timeout_s": self.placement_timeout_s,
        }
        check_numbers("Cluster", silence_s=self.silence_s, **timeouts)
        # This accepts a user who passes the defaults explicitly, because they look like missing
        # ones.
        if self.groups and (self.count != 1 or self.instance_type != LOCAL_TYPE):
            raise InvalidRequest(
                "Cluster: give either groups, or instance_type and count, not both"
            )
        if len(self.groups) > MAX_GROUPS:
            raise InvalidRequest(
                f"Cluster: at most {MAX_GROUPS} instance groups, got {len(self.groups)}"
            )
        names = [group.name for group in self.groups]
        if len(set(names)) != len(names):
            raise InvalidRequest(
                f"Cluster: instance groups need distinct names, got {', '.join(names)}"
            )
        if self.head is not None and self.head not in names:
            # Only groups have a choice of head: in a plain cluster all instances are alike.
            listed = ", ".join(names) or "none: give groups=[InstanceGroup(...), ...]"
            raise InvalidRequest(
                f"Cluster: head={self.head!r} is not an instance group; the groups are {listed}"
            )
        if self.coordinator_only and self.min_size < 2:
            raise InvalidRequest(
                "Cluster: coordinator_only leaves no instance to work on; add one or drop it"
            )
        if self.min_instances is not None and self.min_instances > self.min_size:
            raise InvalidRequest(
                f"Cluster: min_instances must be 1 to {self.min_size}, got {self.min_instances}"
            )
        if self.keep_alive_s > 21_600:
            raise InvalidRequest(
                f"Cluster: keep_alive_s must be 0 to 21600, got {self.keep_alive_s}"
            )
        # "not x > 0" also refuses NaN, with which no deadline would ever pass.
        if not self.join_timeout_s > 0:
            raise InvalidRequest(
                f"Cluster: join_timeout_s must be above 0, got {self.join_timeout_s}"
            )
        if not self.placement_timeout_s > 0:
            raise InvalidRequest(
                f"Cluster: placement_timeout_s must be above 0, got {self.placement_timeout_s}"
            )
        if not MIN_SILENCE_S <= self.silence_s <= MAX_SILENCE_S:
            raise InvalidRequest(
                f"silence_s must be {MIN_SILENCE_S:g} (three heartbeats) to "
                f"{MAX_SILENCE_S:g}, got {self.silence_s}"
            )
        # The codec would check this only in the instances, which cost money by then.
        if self.on_instance_loss not in ("fail", "continue"):
            raise InvalidRequest(
                f"Cluster: on_instance_loss is 'fail' or 'continue', got {self.on_instance_loss!r}"
            )

    def _check_alternatives(self) -> None:
        if not self.alternatives:
            return
        types = tuple(each.instance_type for each in self.preferences)
        if self.groups:
            raise InvalidRequest(
                "Cluster: alternatives are those of instance_type: drop the groups"
            )
        if len(set(types)) != len(types) or LOCAL_TYPE in types or len(types) > MAX_TYPES:
            raise InvalidRequest(
                f"Cluster: instance_type and its alternatives are at most {MAX_TYPES} "
                f"distinct types of SageMaker, got {', '.join(types)}"
            )

    @property
    def preferences(self) -> tuple[Alternative, ...]:
        """``instance_type`` and its alternatives, in order, each with its number of instances."""
        return (
            Alternative(self.instance_type, self.count, self.training_plan),
            *(
                Alternative(each, self.count)
                if isinstance(each, str)
                else replace(each, count=each.count or self.count)
                for each in self.alternatives
            ),
        )

    @property
    def types(self) -> tuple[str, ...]:
        """Instance types that the cluster may have.

        They are those of the groups, or ``instance_type`` and its alternatives.
        """
        return tuple(each.instance_type for each in self.groups or self.preferences)

    @property
    def choices(self) -> tuple[Mapping[str, int], ...]:
        """The instances that the service may start, as counts by type, in order of preference."""
        if not self.groups:
            return tuple({each.instance_type: each.count or 0} for each in self.preferences)
        counts: dict[str, int] = {}
        # Two groups may have the same type, and then share its quota.
        for group in self.groups:
            counts[group.instance_type] = counts.get(group.instance_type, 0) + group.count
        return (counts,)

    @property
    def size(self) -> int:
        """Number of instances in all; the largest one if it depends on the type."""
        return max(sum(choice.values()) for choice in self.choices)

    @property
    def min_size(self) -> int:
        """The smallest number of instances in all."""
        return min(sum(choice.values()) for choice in self.choices)


Distribution = Literal["FullyReplicated", "ShardedByS3Key"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One channel: where its data lies, and how the instances share it.

    Raises:
        InvalidRequest: The URI is empty, or two options contradict each other.
    """

    uri: str = field(kw_only=False, metadata=decides(result=True, create="InputDataConfig"))
    """``s3://bucket/key``, ``file:///path`` or a local path; a file, or a folder of files. Or a
    folder of a file system, ``efs://fs-…/folder`` or ``fsx://fs-…/MOUNT/folder``, which is
    mounted."""
    distribution: Distribution = optional("FullyReplicated", result=True, create="InputDataConfig")
    """FullyReplicated: each instance has all. ShardedByS3Key: each has about 1/n of the objects, by
    key."""

    mode: Literal["File", "FastFile"] = optional(
        "File", result=True, create="InputDataConfig", processing_lacks="FastFile channels"
    )
    """File: downloaded before the job starts. FastFile: streamed as it is read."""
    content_type: str | None = optional(
        None, result=True, create="InputDataConfig", processing_lacks="content types of channels"
    )
    """MIME type that the service passes to the job."""
    groups: tuple[str, ...] = optional(
        (), result=True, create="InputDataConfig", processing_lacks="instance groups"
    )
    """Instance groups that get the channel; either all channels name groups, or none does."""
    manifest: bool = optional(False, result=True, create="InputDataConfig")
    """True if the URI is a manifest, a JSON list of a prefix and the names of some objects below
    it: ``[{"prefix": "s3://bucket/images/"}, "0001.png", "a/0002.png"]``. The channel then contains
    only these objects."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", check_list("Input", "groups", self.groups))
        if not self.uri:
            raise InvalidRequest("Input: the uri is empty; give s3://…, file://… or a path")
        # The codec would refuse this only in the instances.
        if self.distribution not in ("FullyReplicated", "ShardedByS3Key"):
            raise InvalidRequest(
                "Input: distribution is 'FullyReplicated' or 'ShardedByS3Key', "
                f"got {self.distribution!r}"
            )
        if self.mode not in ("File", "FastFile"):
            raise InvalidRequest(
                f"Input: mode is 'File' or 'FastFile' (streamed plain files), got {self.mode!r}"
            )
        if file_system_at(self.uri) is not None and (
            (self.distribution, self.mode) != ("FullyReplicated", "File")
            or self.groups
            or self.manifest
        ):
            raise InvalidRequest(
                f"Input: {self.uri!r} is mounted as it is in every instance; "
                "leave out distribution, mode, groups and manifest"
            )
        if self.manifest and self.mode == "FastFile":
            raise InvalidRequest(
                f"Input: the manifest {self.uri!r} cannot be streamed; "
                "drop mode='FastFile', or give a prefix"
            )
