"""Batch inference as a workload: a model predicts all records of a channel."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from raysm.core.request.cluster import Input
from raysm.core.request.options import check_counts, check_list, optional
from raysm.core.request.programs import PickledWorkload
from raysm.core.request.workload import Wrapper
from raysm.errors import InvalidRequest

READ = ("images", "text", "csv", "jsonl", "parquet", "npy", "files")
"""Formats of files; ``raysm.features.batch.cluster.formats`` has the class of each."""

_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_TIMES = ("date32", *(f"timestamp[{unit}]" for unit in ("s", "ms", "us", "ns")))
TYPES = ("string", "bool", *_INTEGERS, "float32", "float64", *_TIMES)
"""The column types that a user can choose, by Arrow's names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchInference(PickledWorkload):
    """A predictor, pickled by cloudpickle into the payload.

    It is called with every batch of a channel's records.

    Raises:
        InvalidRequest: A field is out of its range.
    """

    kind: ClassVar[str] = "batch"
    runner: ClassVar[str] = "raysm.features.batch.runner:BatchRunner"
    reader: ClassVar[str] = "raysm.features.batch.result:BatchResult"
    label: ClassVar[str] = "the batch inference"
    keeps: ClassVar[str] = "the predictions"
    wrapper: ClassVar[Wrapper | None] = Wrapper(
        "predictor", "raysm.Batch(Classifier, batch_size=256)"
    )
    input_check: ClassVar[str | None] = "raysm.features.batch.cluster.formats:check_inputs"
    packages: ClassVar[tuple[str, ...]] = ("cloudpickle", "numpy", "pyarrow")
    extra: ClassVar[str | None] = "batch"

    batch_size: int
    """Number of records in one call; the last call of a piece may have fewer."""
    channel: str | None = None
    """The channel to read; None is the job's only channel."""
    read: str | None = None
    """The format, one of ``READ``; None infers it from the names of the files."""
    keep: tuple[str, ...] = ()
    """Columns of the input to keep beside the predictions; the columns that identify a record are
    always kept."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Types of columns of tables, ``{"zip": "string"}``; the types of other columns are inferred
    from all values."""
    piece_rows: int | None = None
    """Approximate number of records in one part of the result; after a loss, a part is predicted
    again. None is 16 batches."""
    # The prediction does not depend on the resources.
    cpus: float | None = optional(None, result=False)
    """CPUs of one predicting process; None is 1, or with a GPU its share of the instance's CPUs."""
    gpus: float | None = optional(None, result=False)
    """GPUs of one predicting process; None is 1 if an instance has any, else 0."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", check_list("Batch", "keep", self.keep))
        if not isinstance(self.types, Mapping):
            raise InvalidRequest(
                f"Batch: types is a mapping of columns to types, {{'zip': 'string'}}, got "
                f"{self.types!r}"
            )
        for column, kind in self.types.items():
            if kind not in TYPES:
                raise InvalidRequest(
                    f"Batch: the type of {column!r} is one of {', '.join(TYPES)}, got {kind!r}"
                )
        check_counts(
            "Batch", 1, or_none=True, batch_size=self.batch_size, piece_rows=self.piece_rows
        )
        for name in ("cpus", "gpus"):
            value = getattr(self, name)
            least = "at least 0" if name == "gpus" else "above 0"
            if value is not None and (
                type(value) not in (int, float) or value < 0 or (value == 0 and name == "cpus")
            ):
                raise InvalidRequest(f"Batch: {name} must be a number {least}, got {value!r}")
        if self.read is not None and self.read not in READ:
            raise InvalidRequest(
                f"Batch: read is one of {', '.join(map(repr, READ))}, got {self.read!r}"
            )

    @property
    def rows_of_a_piece(self) -> int:
        """``piece_rows`` or its default.

        The default must not depend on the cluster: it decides the result's parts.
        """
        return self.piece_rows or 16 * self.batch_size

    def check_inputs(self, inputs: Mapping[str, Input], instances: int) -> None:
        self.channel_of(inputs)

    def channel_of(self, inputs: Iterable[str]) -> str:
        """Return the channel whose records are predicted, of the job's ``inputs``."""
        names = sorted(inputs)
        if self.channel is not None and self.channel not in names:
            raise InvalidRequest(
                f"Batch: the job has no input {self.channel!r}; it has {', '.join(names) or 'none'}"
            )
        if self.channel is None and len(names) != 1:
            remedy = (
                f"say which one is read, channel={names[0]!r}"
                if names
                else "give one: inputs={'data': 'folder/'}"
            )
            raise InvalidRequest(f"Batch: the job has {len(names)} inputs; {remedy}")
        return self.channel or names[0]
