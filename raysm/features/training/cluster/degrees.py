"""How a training is cut over its workers: degrees, and each rank's part of model and data.

This module is arithmetic, without torch and without processes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, get_args

from raysm.core.request.options import check_counts
from raysm.errors import InvalidRequest
from raysm.features.training.cluster.smdistributed import fields_from_smdistributed

Placement = Literal["cluster", "spread"]

ORDER: dict[str, tuple[str, ...]] = {
    "cluster": ("data", "shard", "pipeline", "tensor"),
    "spread": ("pipeline", "data", "shard", "tensor"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Coordinates:
    data: int
    shard: int
    pipeline: int
    tensor: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    data: int = 1
    shard: int = 1
    pipeline: int = 1
    tensor: int = 1
    placement: Placement = "cluster"

    def __str__(self) -> str:
        """Return ``data=2 × pipeline=2, spread``.

        Two layouts have the same text if each rank has the same part of model and data.
        """
        degrees = {name: getattr(self, name) for name in sorted(self.dimensions)}
        text = (
            " × ".join(f"{name}={degree}" for name, degree in degrees.items() if degree > 1)
            or "one worker"
        )
        # Without a pipeline and replicas both orders give every rank the same part: a checkpoint of
        # one is one of the other.
        matters = self.pipeline > 1 and self.data_ranks > 1
        return text if self.placement == "cluster" or not matters else f"{text}, {self.placement}"

    @property
    def dimensions(self) -> tuple[str, ...]:
        return ORDER[self.placement]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(getattr(self, name) for name in self.dimensions)

    @property
    def world_size(self) -> int:
        return prod(self.shape)

    @property
    def data_ranks(self) -> int:
        return self.data * self.shard

    def coordinates(self, rank: int) -> Coordinates:
        coordinates = {}
        # The coordinates are the digits of the rank: the fastest dimension is the lowest digit.
        for name, size in zip(reversed(self.dimensions), reversed(self.shape), strict=True):
            rank, coordinates[name] = divmod(rank, size)
        return Coordinates(**coordinates)

    def data_rank(self, rank: int) -> int:
        coordinates = self.coordinates(rank)
        # Ranks that share a pipeline or a tensor have the same number, and so read the same rows.
        return coordinates.data * self.shard + coordinates.shard

    def groups(self, name: str) -> list[list[int]]:
        groups: dict[tuple[int, ...], list[int]] = {}
        others = [other for other in self.dimensions if other != name]
        for rank in range(self.world_size):
            coordinates = self.coordinates(rank)
            groups.setdefault(tuple(getattr(coordinates, other) for other in others), []).append(
                rank
            )
        return list(groups.values())

    def check_hosts(self, hosts: Sequence[str], workers_per_instance: int | None = None) -> None:
        """Check that no tensor is cut over two instances, and the workers of each instance.

        If ``workers_per_instance`` is given, each instance must run that many workers.
        """
        # Counted here, because bare torchrun has no list of hosts.
        for host, count in Counter(hosts).items():
            if workers_per_instance not in (None, count):
                raise InvalidRequest(
                    f"Parallel: workers_per_instance={workers_per_instance}, but {host} runs "
                    f"{count}; start the job with --workers-per-instance {workers_per_instance}, "
                    "or change the field"
                )
        for group in self.groups("tensor"):
            # Two sums per layer and pass over the network would cost more than a second instance
            # gains.
            if len({hosts[rank] for rank in group}) > 1:
                where = ", ".join(f"rank {rank} on {hosts[rank]}" for rank in group)
                # The degree must fit the smallest instance.
                fewest = min(Counter(hosts).values())
                raise InvalidRequest(
                    f"tensor={self.tensor}: these ranks would cut tensors over several instances "
                    f"({where}), which talk within every layer; choose a tensor degree that "
                    f"divides the {fewest} workers of an instance"
                )

    def map(self, hosts: Sequence[str]) -> str:
        lines = []
        for rank, host in enumerate(hosts):
            coordinates = self.coordinates(rank)
            parts = [
                f"{word} {index + 1} of {size}"
                for word, index, size in (
                    ("replica", coordinates.data, self.data),
                    ("shard", coordinates.shard, self.shard),
                    ("pipeline rank", coordinates.pipeline, self.pipeline),
                    ("tensor part", coordinates.tensor, self.tensor),
                )
                if size > 1
            ]
            lines.append(f"rank {rank} on {host}: {', '.join(parts) or 'the whole model'}")
        return "\n".join(lines)


Schedule = Literal["gpipe", "1f1b", "interleaved"]
Optimize = Literal["speed", "memory"]

MICROBATCHES_PER_WORKER = 4
"""With four times as many micro-batches as stages, the pipeline's idle time is negligible (GPipe,
arXiv 1811.06965)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallel:
    """Degrees of parallelism, whose product is the number of workers.

    The degrees are ``data``, ``shard``, ``pipeline`` and ``tensor``. ``data`` and ``shard``
    together are hybrid sharding: the parameters are cut over the ``shard`` workers of a group, and
    the groups are replicas.

    Raises:
        InvalidRequest: A field is out of its range, or two do not go together.
    """

    data: int | None = None
    """Replicas; None is as many as the workers allow."""
    shard: int | None = 1
    """Workers over which parameters, gradients and optimizer state of a replica are cut (FSDP);
    each reads its own slice of the data. None is as many as the workers allow, with one replica
    unless ``data`` says more."""
    pipeline: int = 1
    """Workers of a pipeline, each with other layers of the model."""
    tensor: int = 1
    """Workers over which single matrices are cut; always within one instance."""
    placement: Placement = "cluster"
    """``cluster``: the stages of one replica are neighbours, within an instance if they fit;
    ``spread``: the replicas of one stage are, so that a pipeline goes over instances."""
    schedule: Schedule = "1f1b"
    """Order of a pipeline's work: ``gpipe`` (all forward, then all backward), ``1f1b`` (one
    forward, one backward: less memory), ``interleaved`` (several stages per worker: less idle time,
    more traffic)."""
    microbatches: int | None = None
    """Parts of a worker's slice that go through the pipeline one after the other; None is four per
    worker of it. Layers that look at other rows (batch norm) see those of one part only, and the
    running averages that are kept are those of the first replica."""
    stages_per_worker: int | None = None
    """Stages of each worker; None is 2 with ``interleaved``, else it is 1."""
    optimize: Optimize = "speed"
    """``memory``: activations are computed again in the backward pass; ``speed``: they are kept."""
    offload: bool = False
    """Keep activations in the memory of the CPU until the backward pass."""
    offload_weights: bool = False
    """Keep the shards of parameters, gradients and optimizer state in the memory of the CPU, where
    the optimizer computes (FSDP2's ``CPUOffloadPolicy``). It needs ``shard``."""
    keep_gradients: bool = False
    """With ``prepare(accumulate=…)``, shards add up whole gradients and reduce them once: fewer
    messages, and the memory of all gradients on each worker. False reduces those of each piece. It
    needs ``shard``."""
    unused_parameters: bool = False
    """The loss of some rows does not depend on all parameters, as in a mixture of experts. Each
    step then takes a look at which were used. Each worker must still call every block."""
    workers_per_instance: int | None = None
    """Workers that each instance must run; None is any. Only checked: the job's workload starts
    them."""

    def __post_init__(self) -> None:
        degrees = (
            "data",
            "shard",
            "pipeline",
            "tensor",
            "microbatches",
            "stages_per_worker",
            "workers_per_instance",
        )
        check_counts("Parallel", 1, or_none=True, **{name: getattr(self, name) for name in degrees})
        for name, kinds in (
            ("placement", Placement),
            ("schedule", Schedule),
            ("optimize", Optimize),
        ):
            if getattr(self, name) not in get_args(kinds):
                options = ", ".join(repr(kind) for kind in get_args(kinds))
                raise InvalidRequest(
                    f"Parallel: {name} is {getattr(self, name)!r}; it must be one of {options}"
                )
        for name in ("offload_weights", "keep_gradients"):
            if getattr(self, name) and self.shard == 1:
                raise InvalidRequest(
                    f"Parallel: {name} is about shards: set shard above 1, or leave it out"
                )
        if self.unused_parameters and self.pipeline > 1:
            raise InvalidRequest(
                f"Parallel: unused_parameters does not go with pipeline={self.pipeline}: leave it "
                "out; pipelines with replicas need no option, and pipelines with shards cannot "
                "train such models"
            )
        if self.keep_gradients and self.pipeline > 1:
            raise InvalidRequest(
                "Parallel: keep_gradients is for prepare(accumulate=…), which does not go with "
                f"pipeline={self.pipeline}: leave it out"
            )
        if self.pipeline == 1:
            for name in ("microbatches", "stages_per_worker"):
                if getattr(self, name) is not None:
                    raise InvalidRequest(
                        f"Parallel: {name} belongs to a pipeline: set pipeline above 1, or leave "
                        "it out"
                    )
            return
        if self.schedule != "interleaved" and self.stages_per_worker not in (None, 1):
            raise InvalidRequest(
                "Parallel: stages_per_worker > 1 needs schedule='interleaved', got "
                f"{self.schedule!r}"
            )
        if self.schedule == "interleaved" and self.stages_per_worker == 1:
            raise InvalidRequest(
                "Parallel: schedule='interleaved' needs stages_per_worker of at least 2"
            )
        count = self.microbatch_count
        # Torch would raise only in the first step, after all weights were read and cut.
        if self.schedule == "1f1b" and count < self.pipeline:
            raise InvalidRequest(
                f"Parallel: microbatches={count} is below pipeline={self.pipeline}: 1f1b keeps a "
                "micro-batch in each stage; use more, or schedule='gpipe'"
            )
        # Torch's schedule goes round the workers in whole rounds.
        if self.schedule == "interleaved" and count % self.pipeline:
            raise InvalidRequest(
                f"Parallel: microbatches={count} is no multiple of pipeline={self.pipeline}, as "
                "interleaved needs it"
            )

    @staticmethod
    def from_smdistributed(options: Mapping[str, Any]) -> "Parallel":
        """Return the ``Parallel`` for options of version 2 of SageMaker's model parallel library.

        Args:
            options: The ``distribution`` of an estimator, or the ``parameters`` alone.

        Raises:
            InvalidRequest: An option has no counterpart; the message names it.
        """
        return Parallel(**fields_from_smdistributed(options))

    @property
    def stages(self) -> int:
        if self.pipeline == 1:
            return 1
        # Interleaving needs at least two; more cost more messages.
        return self.pipeline * (
            self.stages_per_worker or (2 if self.schedule == "interleaved" else 1)
        )

    @property
    def microbatch_count(self) -> int:
        return (
            1
            if self.pipeline == 1
            else self.microbatches or MICROBATCHES_PER_WORKER * self.pipeline
        )

    def layout(self, workers: int) -> Layout:
        degrees = {
            "data": self.data,
            "shard": self.shard,
            "pipeline": self.pipeline,
            "tensor": self.tensor,
        }
        # If shard is open, data is 1 unless it is given: two open degrees would be ambiguous.
        if self.shard is None:
            degrees["data"] = self.data or 1
        total = prod(degree for degree in degrees.values() if degree is not None)
        shown = " x ".join(
            f"{name}={degree}" for name, degree in degrees.items() if degree is not None
        )
        # Without an open degree the total must equal the number of workers; with one it must divide
        # it.
        whole = None not in degrees.values()
        if workers % total or (whole and workers != total):
            rule = "must equal" if whole else "must divide"
            raise InvalidRequest(
                f"Parallel: {shown} is {total}, which {rule} the number of workers, {workers}; "
                "change a degree or the workers"
            )
        resolved = {
            name: workers // total if degree is None else degree for name, degree in degrees.items()
        }
        return Layout(**resolved, placement=self.placement)

    def check_batch(self, batch_size: int, workers: int) -> None:
        slices = self.layout(workers).data_ranks
        count = self.microbatch_count
        # Rows that are left over would make a micro-batch of another shape, which needs another
        # schedule.
        if count > 1 and batch_size % (slices * count):
            raise InvalidRequest(
                f"batch_size={batch_size} over {slices} data ranks and microbatches={count} leaves "
                f"no whole rows; make it a multiple of {slices * count}, or change microbatches"
            )
