"""Which part of the model and which slice of the data each rank has: arithmetic only, without torch or processes.

The tensor dimension varies fastest, because its ranks talk within every layer and have to share an instance; then
come, with ``placement="cluster"``, the stages of one replica, with ``"spread"`` the replicas of one stage.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from raysm.errors import InvalidRequest

__all__ = ["Coordinates", "Layout", "Placement"]

Placement = Literal["cluster", "spread"]

ORDER: dict[str, tuple[str, ...]] = {
    "cluster": ("data", "shard", "pipeline", "tensor"),
    "spread": ("pipeline", "data", "shard", "tensor"),
}
"""The dimensions of the mesh of ranks, the slowest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Coordinates:
    """Where one rank is in the mesh."""

    data: int
    """Replica."""
    shard: int
    """Part of the replica's parameters."""
    pipeline: int
    """Place in the pipeline."""
    tensor: int
    """Part of each tensor."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The mesh of all ranks."""

    data: int = 1
    """Replicas."""
    shard: int = 1
    """Ranks over which the parameters of a replica are cut."""
    pipeline: int = 1
    """Ranks of a pipeline."""
    tensor: int = 1
    """Ranks over which single tensors are cut."""
    placement: Placement = "cluster"
    """Which ranks are neighbours."""

    def __str__(self) -> str:
        """``data=2 × pipeline=2, spread``: equal where each rank has the same part of model and data, and else not."""
        degrees = {name: getattr(self, name) for name in sorted(self.dimensions)}
        text = " × ".join(f"{name}={degree}" for name, degree in degrees.items() if degree > 1) or "one worker"
        # Without a pipeline and replicas both orders give every rank the same part: a checkpoint of one is one of the
        # other.
        matters = self.pipeline > 1 and self.data_ranks > 1
        return text if self.placement == "cluster" or not matters else f"{text}, {self.placement}"

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the dimensions, the slowest first."""
        return ORDER[self.placement]

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each dimension, in the order of ``dimensions``."""
        return tuple(getattr(self, name) for name in self.dimensions)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return prod(self.shape)

    @property
    def data_ranks(self) -> int:
        """Number of slices of a batch: replicas and the shards within each read different data."""
        return self.data * self.shard

    def coordinates(self, rank: int) -> Coordinates:
        """Return where a rank is."""
        coordinates = {}
        # As the digits of a number: the fastest dimension is the lowest digit.
        for name, size in zip(reversed(self.dimensions), reversed(self.shape), strict=True):
            rank, coordinates[name] = divmod(rank, size)
        return Coordinates(**coordinates)

    def data_rank(self, rank: int) -> int:
        """Return which slice of each batch a rank reads."""
        place = self.coordinates(rank)
        # Ranks that share a pipeline or a tensor have the same number, and so read the same rows.
        return place.data * self.shard + place.shard

    def groups(self, name: str) -> list[list[int]]:
        """Return the ranks that differ in one dimension only, as lists in its order."""
        groups: dict[tuple[int, ...], list[int]] = {}
        others = [other for other in self.dimensions if other != name]
        for rank in range(self.world_size):
            place = self.coordinates(rank)
            groups.setdefault(tuple(getattr(place, other) for other in others), []).append(rank)
        return list(groups.values())

    def check_hosts(self, hosts: Sequence[str], workers_per_instance: int | None = None) -> None:
        """Check that no tensor is cut over two instances, and the workers of each instance.

        Args:
            hosts: The instance of each rank.
            workers_per_instance: How many each has to run; None is any number.

        Raises:
            InvalidRequest: One would be, or an instance runs another number.
        """
        # Counted, not taken from the launcher: under bare torchrun nobody else knows.
        for host, count in Counter(hosts).items():
            if workers_per_instance not in (None, count):
                raise InvalidRequest(
                    f"Parallel: workers_per_instance={workers_per_instance}, but {host} runs {count}; start the job "
                    f"with --workers-per-instance {workers_per_instance}, or change the field"
                )
        for group in self.groups("tensor"):
            # Two sums per layer and pass over a network of some GB/s would cost more than a second instance brings.
            if len({hosts[rank] for rank in group}) > 1:
                where = ", ".join(f"rank {rank} on {hosts[rank]}" for rank in group)
                # The degree has to fit the smallest instance, whichever it is.
                fewest = min(Counter(hosts).values())
                raise InvalidRequest(
                    f"tensor={self.tensor}: these ranks would cut tensors over several instances ({where}), which "
                    f"talk within every layer; choose a tensor degree that divides the {fewest} workers of an instance"
                )

    def map(self, hosts: Sequence[str]) -> str:
        """Return the map of ranks for people: a line per rank with its instance and its part."""
        lines = []
        for rank, host in enumerate(hosts):
            place = self.coordinates(rank)
            parts = [
                f"{word} {index + 1} of {size}"
                for word, index, size in (
                    ("replica", place.data, self.data),
                    ("shard", place.shard, self.shard),
                    ("pipeline rank", place.pipeline, self.pipeline),
                    ("tensor part", place.tensor, self.tensor),
                )
                if size > 1
            ]
            lines.append(f"rank {rank} on {host}: {', '.join(parts) or 'the whole model'}")
        return "\n".join(lines)
