"""What a format is: it cuts files into spans without reading more than it must, and reads the records of a span.

How files are cut depends on the files and the request alone, never on the cluster: parts, and the batches that a
predictor sees, are then the same on any number of instances.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Columns", "Format", "Span", "TableColumns", "groups_of", "is_gzipped"]

Columns = Mapping[str, NDArray[Any]]
"""Records by column: arrays of equal length, numbers as numbers, all else as objects."""


class TableColumns(dict[str, NDArray[Any]]):
    """Records of a table.

    Attributes:
        table: The same as the file has them: to NumPy a whole number that is missing makes fractions of all others.
    """

    def __init__(self, columns: Columns, table: "pa.Table") -> None:
        """Take both."""
        super().__init__(columns)
        self.table = table


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Consecutive records of one file, or several whole files."""

    files: tuple[str, ...]
    """Paths inside the channel's folder."""
    start: int = 0
    """Where it begins in its file, in what the format counts: bytes, rows, row groups."""
    stop: int | None = None
    """Where it ends; None is the end of the file."""
    first_row: int = 0
    """Number of its first record in the file."""
    rows: int | None = None
    """How many records; None where nobody has counted."""


class Format(Protocol):
    """Reads files of one kind."""

    keys: tuple[str, ...]
    """The columns that name a record; they stand in the result beside the predictions."""

    def cut(self, folder: Path, files: Sequence[str], rows: int) -> list[Span]:
        """Cut files into spans of about so many records, in the order of the input.

        Raises:
            InvalidInput: A file cannot be read.
        """
        ...

    def batches(self, folder: Path, span: Span, batch_size: int, threads: int) -> Iterator[Columns]:
        """Yield the records of a span, ``batch_size`` at a time, fewer at its end; the columns ``keys`` among them.

        Args:
            folder: The channel's.
            span: Which records.
            batch_size: How many at a time.
            threads: How many may decode at once.

        Raises:
            InvalidInput: A file cannot be read.
        """
        ...


def is_gzipped(name: str) -> bool:
    """Return whether a file is compressed, by its name."""
    # In any case, as its format is known by its name in any.
    return name.lower().endswith(".gz")


def groups_of(files: Sequence[str], rows: int) -> list[Span]:
    """Cut files that are a record each into spans of so many."""
    starts = range(0, len(files), rows)
    return [Span(files=tuple(files[start : start + rows]), rows=len(files[start : start + rows])) for start in starts]
