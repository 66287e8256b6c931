"""Where the rows of a grid come from: one object that answers for itself, and a line here.

What flows in is what the user names: a path, a query, a data frame, a list. What flows out is its Table.
"""

import abc
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.errors import InvalidRequest
from raysm.grid.rows.table import Table

__all__ = ["MAX_ROWS", "SOURCES", "Source", "check_number", "source_again", "source_of"]

MAX_ROWS = 10_000
"""Rows unless the user says otherwise: a query without its WHERE must not become a hundred thousand jobs."""

SOURCES = (
    "raysm.grid.rows.query:QuerySource",
    "raysm.grid.rows.csv_file:CsvFile",
    "raysm.grid.rows.jsonl_file:JsonlFile",
    "raysm.grid.rows.parquet_file:ParquetFile",
    "raysm.grid.rows.arrow:ArrowFrame",
    "raysm.grid.rows.records:Records",
)
"""Who is asked, in this order, whether something is a source of its kind."""


class Source(abc.ABC):
    """Rows that can be read."""

    @classmethod
    @abc.abstractmethod
    def of(cls, rows: Any) -> "Source | None":
        """Return the source, if ``rows`` is one of this kind; else None."""

    @classmethod
    def again(cls, description: Mapping[str, Any]) -> "Source | None":
        """Return the source that was described so, if it was one of this kind; else None.

        Raises:
            InvalidRequest: It was, but not all that it takes to read it is kept.
        """
        # Most are what a program holds in its memory, of which nothing is left to be read.
        return None

    def with_columns(self, columns: Sequence[str]) -> "Source":
        """Return the same rows with other names of their columns, where they have none of their own.

        Raises:
            InvalidRequest: They have.
        """
        raise InvalidRequest(f"--columns names those of a .csv, .tsv or .txt without a first line, got {columns}")

    @abc.abstractmethod
    def read(self, max_rows: int) -> Table:
        """Return all rows.

        Args:
            max_rows: More are refused, and no more than one more is read.

        Raises:
            InvalidRequest: It cannot be read, or has more rows.
        """

    @property
    def database(self) -> Any:
        """What names the database that the rows come from, and are written back to; None where they come from none."""
        return None

    @property
    @abc.abstractmethod
    def description(self) -> dict[str, Any]:
        """What a grid remembers of where its rows came from, as JSON values; never a password."""


def source_again(description: Mapping[str, Any]) -> Source:
    """Return the source that ``description``, as a grid remembers it, tells of: to be read again.

    Raises:
        InvalidRequest: It is not kept: a program gave the rows, or it was an open connection.
    """
    for name in SOURCES:
        source: Source | None = pkgutil.resolve_name(name).again(description)
        if source is not None:
            return source
    raise InvalidRequest(
        "a program gave this grid its rows, so they cannot be read again; give the new rows: grid.extend(rows) or "
        "raysm grid extend NAME --rows FILE"
    )


def source_of(rows: Any) -> Source:
    """Return the source that ``rows`` names.

    Args:
        rows: A path of .csv, .tsv, .jsonl or .parquet, a ``raysm.Query``, a data frame, a list of mappings.

    Raises:
        InvalidRequest: It is none.
    """
    # A source of the user's own needs no line in SOURCES.
    if isinstance(rows, Source):
        return rows
    for name in SOURCES:
        # Imported when it is its turn: a CSV file does not need pyarrow, nor a list a database.
        source: Source | None = pkgutil.resolve_name(name).of(rows)
        if source is not None:
            return source
    raise InvalidRequest(
        f"rows={rows!r:.80} is not a source of rows; give a path of .csv, .tsv, .jsonl or .parquet, raysm.Query(sql, "
        "on=…), a data frame, or a list of dictionaries"
    )


def check_number(origin: str, number: int, max_rows: int) -> None:
    """Refuse more rows than may be.

    Raises:
        InvalidRequest: There are more; or there are none.
    """
    # Refused, not cut off: which rows are missing from a result nobody would see.
    if number > max_rows:
        raise InvalidRequest(
            f"{origin} has more than {max_rows:,} rows, and each becomes a job; choose fewer, or allow more with "
            f"max_rows={10 * max_rows}"
        )
    if number == 0:
        raise InvalidRequest(f"{origin} has no rows; check the file or the query")
