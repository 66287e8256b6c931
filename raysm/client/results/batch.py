"""``raysm.Batch`` and its result."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from raysm.client.results.result import Result
from raysm.client.source.function import arguments_of, code_digest, name_of, pickled_call
from raysm.client.source.package import late_source
from raysm.client.units import python_version
from raysm.contract.source import Source
from raysm.errors import InvalidRequest, MissingDependency
from raysm.request.batch import BatchInference
from raysm.request.options import check_names

__all__ = ["Batch", "BatchOptions", "BatchResult"]


class BatchResult(Result):
    """A result that is predictions beside the keys of their records."""

    @property
    def parts(self) -> list[Path]:
        """The Parquet files, in the order of the input: together they are the table."""
        return [self.path / file.name for file in self.manifest.files if file.name.endswith(".parquet")]

    @property
    def rows(self) -> int:
        """How many records were predicted."""
        return sum(file.shape[0] for file in self.manifest.files if file.shape)

    def table(self, name: str | None = None) -> Any:
        """Read the predictions as one ``pyarrow.Table``.

        Args:
            name: Of one part; None is all of them.

        Raises:
            InvalidRequest: There is no such part.
            MissingDependency: pyarrow is not installed.
        """
        if name is not None:
            return Result.table(self, name)
        if not self.parts:
            raise InvalidRequest(f"{self.manifest.job} has no predictions: its input had no records")
        return self._one_table(self.parts)

    def tables(self) -> Iterator[Any]:
        """Yield the predictions, a ``pyarrow.Table`` for each part.

        Raises:
            MissingDependency: pyarrow is not installed.
        """
        return (Result.table(self, file.name) for file in self.manifest.files if file.name.endswith(".parquet"))

    def _lines(self) -> list[str]:
        # Thousands of parts would bury what they are together.
        size = sum(file.bytes for file in self.manifest.files)
        count = len(self.parts)
        return [f"  {self.rows:,} predictions in {count:,} part{'s' * (count != 1)}, {size:,} bytes; .table()"]

    def to_frame(self) -> Any:
        """Return the predictions as a ``pandas.DataFrame``.

        Raises:
            MissingDependency: pandas is not installed.
        """
        table = self.table()
        try:
            return table.to_pandas()
        except ImportError as error:
            raise MissingDependency("to_frame needs pandas: python3 -m pip install pandas") from error


class BatchOptions(TypedDict, total=False):
    """How the records are read and predicted; ``request.batch.BatchInference`` says it of each.

    Attributes:
        channel: Which channel is read; None is the only one.
        read: ``images``, ``text``, ``csv``, ``jsonl``, ``parquet``, ``npy`` or ``files``; None goes by the names.
        keep: Columns of the input that stand beside the predictions.
        types: Types of columns of tables, ``{"zip": "string"}``; other columns have the type of all of their values.
        piece_rows: About how many records are one part of the result; None is 16 batches.
        cpus: Of one process that predicts.
        gpus: The same; None is 1 where an instance has any, else 0.
    """

    channel: str | None
    read: str | None
    keep: Sequence[str]
    types: Mapping[str, str]
    piece_rows: int | None
    cpus: float | None
    gpus: float | None


class Batch:
    """A workload: a model over all records of a channel, in batches, on all instances.

    A class is made once in each process, with ``arguments``, and then called with every batch of that process; a
    function is called with every batch and ``arguments``. A batch is a mapping of NumPy arrays by column, and so is
    what is returned: one prediction a record. The result is one table of Parquet parts, in the order of the input.

    Attributes:
        predictor: The class or function.
        arguments: By name.
    """

    def __init__(
        self,
        predictor: Callable[..., Any],
        *,
        batch_size: int,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[BatchOptions],
    ) -> None:
        """Check what can be checked here.

        Args:
            predictor: A class with ``__call__(batch)``, or a function of a batch.
            batch_size: Records of one call.
            arguments: Of the class's ``__init__``, or of the function beside the batch.
            options: As ``BatchOptions`` says.

        Raises:
            InvalidRequest: It cannot be called so, or an option cannot be.
        """
        check_names("Batch", dict.fromkeys(BatchOptions.__annotations__), options)
        if not callable(predictor):
            raise InvalidRequest(f"Batch: the first argument is a class or a function, got {predictor!r}")
        self.predictor, self.arguments = predictor, dict(arguments or {})
        _check_call(predictor, self.arguments)
        fields: dict[str, Any] = dict(options)
        # Without the batch itself, which the function's first parameter is.
        shown = arguments_of(predictor, () if inspect.isclass(predictor) else (None,), self.arguments)
        self._workload = BatchInference(
            name=name_of(predictor),
            python=python_version(),
            code=code_digest(predictor),
            arguments=shown if inspect.isclass(predictor) else dict(list(shown.items())[1:]),
            batch_size=batch_size,
            **fields,
        )

    def workload(self) -> BatchInference:
        """Return what stands for it in the request."""
        return self._workload

    def pickled(self) -> bytes:
        """Return cloudpickle's bytes of the predictor and its arguments.

        Raises:
            InvalidRequest: Something of it cannot be pickled.
        """
        return pickled_call(self.predictor, (), self.arguments)

    def source(self) -> Source | None:
        """Return the user's own modules that the predictor imports when it is called: they travel as files."""
        return late_source(self.predictor)

    def title(self) -> str:
        """Return the predictor's name, which a job has that is given none."""
        return getattr(self.predictor, "__name__", "batch").lower()

    def __repr__(self) -> str:
        return f"Batch({name_of(self.predictor)}, batch_size={self._workload.batch_size})"


def _check_call(predictor: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Refuse a predictor that cannot be called as it will be."""
    # Not by callable(): that is true of every class, for a class can be called to make one of it.
    if inspect.isclass(predictor) and "__call__" not in {name for base in predictor.__mro__ for name in vars(base)}:
        raise InvalidRequest(
            f"Batch: {name_of(predictor)} has no __call__(self, batch), which returns the predictions of a batch"
        )
    try:
        signature = inspect.signature(predictor)
        signature.bind(*(() if inspect.isclass(predictor) else (None,)), **arguments)
    except TypeError as error:
        called = (
            "__init__ takes other arguments" if inspect.isclass(predictor) else "takes other arguments after the batch"
        )
        raise InvalidRequest(f"Batch: {name_of(predictor)} {called}: {error}") from None
    except ValueError:
        return  # a built-in without a signature: the call itself will tell
