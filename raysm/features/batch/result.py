"""``raysm.Batch`` and its result."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from raysm.core.client.results.result import Result
from raysm.core.client.source.function import PickledCall, check_call, code_digest, name_of
from raysm.core.client.units import PYTHON_VERSION
from raysm.core.request.options import check_names
from raysm.core.request.workload import arguments_of
from raysm.errors import InvalidRequest, used_by
from raysm.features.batch.request import BatchInference


class BatchResult(Result):
    """A result that is predictions beside the keys of their records."""

    @property
    def parts(self) -> list[Path]:
        """The Parquet files, in the order of the input: together they are the table."""
        return [self.path / name for name in self._names]

    @property
    def _names(self) -> list[str]:
        return [file.name for file in self.manifest.files if file.name.endswith(".parquet")]

    @property
    def rows(self) -> int:
        """Number of records that were predicted."""
        return sum(file.shape[0] for file in self.manifest.files if file.shape)

    def table(self, name: str | None = None) -> Any:
        """Read the predictions as one ``pyarrow.Table``.

        Args:
            name: Name of one part; None is all of them.

        Raises:
            InvalidRequest: There is no such part.
            MissingDependency: pyarrow is not installed.
        """
        if name is not None:
            return Result.table(self, name)
        if not self._names:
            raise InvalidRequest(
                f"{self.manifest.job} has no predictions: its input had no records"
            )
        return self._one_table(self.parts)

    def tables(self) -> Iterator[Any]:
        """Yield the predictions, a ``pyarrow.Table`` for each part.

        Raises:
            MissingDependency: pyarrow is not installed.
        """
        return (Result.table(self, name) for name in self._names)

    def _lines(self) -> list[str]:
        # One line for thousands of parts.
        size = sum(file.bytes for file in self.manifest.files)
        count = len(self._names)
        return [
            f"  {self.rows:,} predictions in {count:,} part{'s' * (count != 1)}, {size:,} bytes; "
            ".table()"
        ]

    def to_frame(self) -> Any:
        """Return the predictions as a ``pandas.DataFrame``.

        Raises:
            MissingDependency: pandas is not installed.
        """
        table = self.table()
        with used_by("to_frame"):
            return table.to_pandas()


class BatchOptions(TypedDict, total=False):
    """Options for reading and predicting records; ``request.batch.BatchInference`` describes each.

    Attributes:
        channel: The channel that is read; None is the only one.
        read: ``images``, ``text``, ``csv``, ``jsonl``, ``parquet``, ``npy`` or ``files``; None goes
            by the names.
        keep: Columns of the input to copy beside the predictions.
        types: Types of columns of tables, ``{"zip": "string"}``; other columns have the type of all
            of their values.
        piece_rows: Approximate number of records in one part of the result; None is 16 batches.
        cpus: CPUs of one process that predicts.
        gpus: GPUs of one process that predicts; None is 1 if an instance has any, else 0.
    """

    channel: str | None
    read: str | None
    keep: Sequence[str]
    types: Mapping[str, str]
    piece_rows: int | None
    cpus: float | None
    gpus: float | None


class Batch(PickledCall):
    """A workload: a model over all records of a channel, in batches, on all instances.

    A class is instantiated once in each process, with ``arguments``, and then called with every
    batch of that process; a function is called with every batch and ``arguments``. A batch is a
    mapping of NumPy arrays by column, and so is the return value, with one prediction for each
    record. The result is one table of Parquet parts, in the order of the input.

    Attributes:
        predictor: The class or function.
        arguments: Its arguments by name.
    """

    def __init__(
        self,
        predictor: Callable[..., Any],
        *,
        batch_size: int,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[BatchOptions],
    ) -> None:
        """Check the predictor and the options.

        Args:
            predictor: A class with ``__call__(batch)``, or a function of a batch.
            batch_size: Records of one call.
            arguments: Arguments of the class's ``__init__``, or of the function beside the batch.
            options: As ``BatchOptions`` describes.

        Raises:
            InvalidRequest: ``predictor`` cannot be called this way, or an option is not allowed.
        """
        check_names("Batch", dict.fromkeys(BatchOptions.__annotations__), options)
        if not callable(predictor):
            raise InvalidRequest(
                f"Batch: the first argument is a class or a function, got {predictor!r}"
            )
        self.predictor = predictor
        self.arguments = dict(arguments or {})
        self.batch_size = batch_size
        super().__init__(predictor, (), self.arguments)
        # A function's first parameter is the batch.
        batch = () if inspect.isclass(predictor) else (None,)
        # Not by callable(), which is true of every class.
        if inspect.isclass(predictor) and "__call__" not in {
            name for base in predictor.__mro__ for name in vars(base)
        }:
            raise InvalidRequest(
                f"Batch: {name_of(predictor)} has no __call__(self, batch), which returns the "
                "predictions of a batch"
            )
        refusal = (
            "takes other arguments after the batch" if batch else "__init__ takes other arguments"
        )
        check_call("Batch:", predictor, batch, self.arguments, refusal)
        fields: dict[str, Any] = dict(options)
        self._workload = BatchInference(
            name=name_of(predictor),
            python=PYTHON_VERSION,
            code=code_digest(predictor),
            arguments=dict(
                list(arguments_of(predictor, batch, self.arguments).items())[len(batch) :]
            ),
            batch_size=batch_size,
            **fields,
        )

    def title(self) -> str:
        return getattr(self.predictor, "__name__", "batch").lower()

    def __repr__(self) -> str:
        return f"Batch({name_of(self.predictor)}, batch_size={self.batch_size})"
