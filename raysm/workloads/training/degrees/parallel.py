"""How a training is cut over its workers: degrees that multiply to their number, checked before anything is done."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, get_args

from raysm.errors import InvalidRequest
from raysm.workloads.training.degrees.layout import Layout, Placement
from raysm.workloads.training.degrees.smdistributed import fields_from_smdistributed

__all__ = ["Optimize", "Parallel", "Schedule"]

Schedule = Literal["gpipe", "1f1b", "interleaved"]
Optimize = Literal["speed", "memory"]

MICROBATCHES_PER_WORKER = 4
"""With four times as many micro-batches as stages, the pipeline's idle time is negligible (GPipe, arXiv 1811.06965)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallel:
    """Degrees of parallelism: ``data`` x ``shard`` x ``pipeline`` x ``tensor`` is the number of workers.

    ``data`` and ``shard`` together are hybrid sharding: the parameters are cut over the ``shard`` workers of a group,
    and the groups are replicas.

    Raises:
        InvalidRequest: A field is out of its range, or two do not go together.
    """

    data: int | None = None
    """Replicas; None is as many as the workers allow."""
    shard: int | None = 1
    """Workers over which parameters, gradients and optimizer state of a replica are cut (FSDP); each reads its own
    slice of the data. None is as many as the workers allow, with one replica unless ``data`` says more."""
    pipeline: int = 1
    """Workers of a pipeline, each with other layers of the model."""
    tensor: int = 1
    """Workers over which single matrices are cut; always within one instance."""
    placement: Placement = "cluster"
    """``cluster``: the stages of one replica are neighbours, within an instance where they fit; ``spread``: the
    replicas of one stage are, so that a pipeline goes over instances."""
    schedule: Schedule = "1f1b"
    """Order of a pipeline's work: ``gpipe`` (all forward, then all backward), ``1f1b`` (one forward, one backward:
    less memory), ``interleaved`` (several stages per worker: less idle time, more traffic)."""
    microbatches: int | None = None
    """Parts of a worker's slice that go through the pipeline one after the other; None is four per worker of it. Layers
    that look at other rows (batch norm) see those of one part only, and the running averages that are kept are those
    of the first replica."""
    stages_per_worker: int | None = None
    """Stages of each worker; None is 2 with ``interleaved``, else it is 1."""
    optimize: Optimize = "speed"
    """``memory``: activations are computed again in the backward pass, and stages are balanced by their parameters;
    ``speed``: they are kept, and stages are balanced by their time where an example batch allows to measure it."""
    offload: bool = False
    """Whether what the backward pass needs waits in the memory of the CPU."""
    workers_per_instance: int | None = None
    """What each instance has to run; None is any number. Only checked: the job's workload says how many are started."""

    def __post_init__(self) -> None:
        """Check each field, and the fields against each other."""
        for name in (
            "data",
            "shard",
            "pipeline",
            "tensor",
            "microbatches",
            "stages_per_worker",
            "workers_per_instance",
        ):
            value = getattr(self, name)
            # True is an int to Python, and shard=True a likely slip for shard=None.
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InvalidRequest(f"Parallel: {name} is {value!r}; it must be a whole number from 1")
        for name, kinds in (("placement", Placement), ("schedule", Schedule), ("optimize", Optimize)):
            if getattr(self, name) not in get_args(kinds):
                options = ", ".join(repr(kind) for kind in get_args(kinds))
                raise InvalidRequest(f"Parallel: {name} is {getattr(self, name)!r}; it must be one of {options}")
        if self.pipeline == 1:
            for name in ("microbatches", "stages_per_worker"):
                if getattr(self, name) is not None:
                    raise InvalidRequest(
                        f"Parallel: {name} belongs to a pipeline: set pipeline above 1, or leave it out"
                    )
            return
        self._check_schedule()

    def _check_schedule(self) -> None:
        if self.schedule != "interleaved" and self.stages_per_worker not in (None, 1):
            raise InvalidRequest(
                f"Parallel: stages_per_worker is {self.stages_per_worker}, but only schedule='interleaved' takes more "
                f"than 1, not {self.schedule!r}"
            )
        if self.schedule == "interleaved" and self.stages_per_worker == 1:
            raise InvalidRequest("Parallel: schedule='interleaved' needs stages_per_worker of at least 2")
        count = self.microbatch_count
        # Torch says it only in the first step, when all weights have been read and cut.
        if self.schedule == "1f1b" and count < self.pipeline:
            raise InvalidRequest(
                f"Parallel: microbatches={count} is below pipeline={self.pipeline}: 1f1b keeps a micro-batch in each "
                "stage; use more, or schedule='gpipe'"
            )
        # Torch's schedule goes round the workers in whole rounds.
        if self.schedule == "interleaved" and count % self.pipeline:
            raise InvalidRequest(
                f"Parallel: microbatches={count} is no multiple of pipeline={self.pipeline}, as interleaved needs it"
            )

    @staticmethod
    def from_smdistributed(options: Mapping[str, Any]) -> "Parallel":
        """Return what does the same as these options of SageMaker's model parallel library, v1 or v2.

        Args:
            options: The ``distribution`` of an estimator, or the ``parameters`` alone.

        Raises:
            InvalidRequest: An option has no counterpart; the message names it.
        """
        return Parallel(**fields_from_smdistributed(options))

    @property
    def stages(self) -> int:
        """Number of stages into which the model is cut."""
        if self.pipeline == 1:
            return 1
        # Two is the least with which stages can interleave; more of them cost more messages.
        return self.pipeline * (self.stages_per_worker or (2 if self.schedule == "interleaved" else 1))

    @property
    def microbatch_count(self) -> int:
        """Number of micro-batches of each slice; 1 without a pipeline."""
        return 1 if self.pipeline == 1 else self.microbatches or MICROBATCHES_PER_WORKER * self.pipeline

    def layout(self, workers: int) -> Layout:
        """Return the mesh of ranks for so many workers.

        Raises:
            InvalidRequest: The degrees do not multiply to it.
        """
        degrees = {"data": self.data, "shard": self.shard, "pipeline": self.pipeline, "tensor": self.tensor}
        # Both open would have no one answer: sharding over all is what FSDP does by itself.
        if self.shard is None:
            degrees["data"] = self.data or 1
        total = prod(degree for degree in degrees.values() if degree is not None)
        shown = " x ".join(f"{name}={degree}" for name, degree in degrees.items() if degree is not None)
        # Without an open degree the total has to be the very number; with one it only has to divide it.
        whole = None not in degrees.values()
        if workers % total or (whole and workers != total):
            rule = "must equal" if whole else "must divide"
            raise InvalidRequest(
                f"Parallel: {shown} is {total}, which {rule} the number of workers, {workers}; change a degree or "
                "the workers"
            )
        resolved = {name: workers // total if degree is None else degree for name, degree in degrees.items()}
        return Layout(**resolved, placement=self.placement)

    def check_batch(self, batch_size: int, workers: int) -> None:
        """Check that the slices of a global batch can be cut into micro-batches.

        Raises:
            InvalidRequest: It cannot.
        """
        slices = self.layout(workers).data_ranks
        count = self.microbatch_count
        # Rows that are left over would make a micro-batch of another shape, for which a schedule has to be made anew.
        if count > 1 and batch_size % (slices * count):
            raise InvalidRequest(
                f"batch_size={batch_size} over {slices} data ranks and microbatches={count} leaves no whole rows; "
                f"make it a multiple of {slices * count}, or change microbatches"
            )
