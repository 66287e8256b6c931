"""The result of a batch inference on this machine: one table in parts, in the order of the input.

What flows in is the folder of a result, what flows out are the predictions as Arrow, as a frame of pandas, or as parts
that are read one at a time.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raysm.client.result import Result
from raysm.errors import InvalidRequest, MissingDependency

__all__ = ["BatchResult"]


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
