"""Sources of a grid's rows: files, data frames, lists of dictionaries and queries.

A user's own source is a subclass of ``Source``; ``source_of`` takes it as it is.
"""

import abc
import csv
import gzip
import json
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import Storage
from raysm.core.request import Local, Target
from raysm.errors import InvalidRequest, used_by
from raysm.features.grid.row import row_label
from raysm.features.grid.sources.columns import Table, plain
from raysm.features.grid.sources.databases import Query, database_of, kept_name

__all__ = ["MAX_ROWS", "Source", "source_from_description", "source_of"]

MAX_ROWS = 10_000
"""Default limit of rows: a query whose WHERE was forgotten must not become a hundred thousand
jobs."""

DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": ","}
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")


class Source(abc.ABC):
    @abc.abstractmethod
    def read(self, max_rows: int) -> Table:
        """Return all rows; InvalidRequest if there are none, or more than ``max_rows``."""

    @property
    @abc.abstractmethod
    def description(self) -> dict[str, Any]:
        """The source as a grid stores it: JSON values without passwords."""

    @property
    def database(self) -> Any:
        """The database that the rows come from and that states are written back to, or None."""
        return None

    def by(self, target: Target) -> "Source":
        """Return the same rows, read with the credentials of ``target`` if they are in S3."""
        return self

    def with_columns(self, columns: Sequence[str]) -> "Source":
        """Return the same rows with these column names; InvalidRequest if the source has names."""
        raise InvalidRequest(
            "--columns is for a .csv, .tsv or .txt file without a line of "
            f"column names, got {columns}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSource(Source):
    """A file of .csv, .tsv, .txt (each also with .gz), .jsonl, .ndjson, .parquet or .pq.

    It need not exist yet.
    """

    path: Path
    columns: tuple[str, ...] = ()
    """Column names of a text file whose first line is a row; empty if the first line has the
    names."""
    uri: str = ""
    """The file's place in S3, from which ``read`` fetches it; empty for a file of this machine."""
    target: Target = field(default_factory=Local)
    """The target whose credentials read ``uri``."""

    @property
    def kind(self) -> str:
        return Path(self.path.name.lower().removesuffix(".gz")).suffix

    @property
    def description(self) -> dict[str, Any]:
        """The absolute path and the given column names.

        The path is absolute since the grid may continue in another folder.
        """
        names = {"columns": list(self.columns)} if self.columns else {}
        return {"file": self.uri or str(self.path.absolute()), **names}

    def by(self, target: Target) -> Source:
        return replace(self, target=target)

    def with_columns(self, columns: Sequence[str]) -> Source:
        if self.kind not in DELIMITERS:
            # Not super(): slots=True creates a second class, and super() would mean the first one.
            return Source.with_columns(self, columns)
        return replace(self, columns=tuple(columns))

    def read(self, max_rows: int) -> Table:
        if self.uri:
            content = Storage(Service(self.target)).read(self.uri)
            if content is None:
                raise InvalidRequest(f"{self.uri} does not exist")
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, self.path)
                path.write_bytes(content)
                return replace(replace(self, path=path, uri="").read(max_rows), origin=self.uri)
        try:
            if self.kind in PARQUET:
                return _read_parquet(self.path, max_rows)
            with self._opened() as lines:
                if self.kind in JSON_LINES:
                    return _read_json_lines(lines, str(self.path), max_rows)
                return _read_csv(
                    lines, str(self.path), max_rows, DELIMITERS[self.kind], self.columns
                )
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidRequest(f"{self.path} cannot be read: {reason}") from error
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"{self.path} is not UTF-8: {error}; save it as UTF-8") from error

    def _opened(self) -> Any:
        # Spreadsheets begin a file with a byte-order mark, which would become part of the first
        # column's name.
        if self.path.suffix.lower() == ".gz":
            return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="")
        return self.path.open(encoding="utf-8-sig", newline="")


def _read_csv(
    lines: Iterable[str], origin: str, max_rows: int, delimiter: str, columns: tuple[str, ...]
) -> Table:
    # Strict, so that text after a closing quote is an error.
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    rows: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    try:
        columns = columns or tuple(name.strip() for name in next(reader, ()))
        begin = reader.line_num + 1
        if delimiter == "," and len(columns) == 1 and ";" in columns[0]:
            raise InvalidRequest(
                f"{origin}, line 1: semicolons separate the columns; save the file with commas"
            )
        for values in reader:
            # A quoted value may contain line breaks.
            line = begin
            begin = reader.line_num + 1
            if not values:
                continue
            if len(values) != len(columns):
                raise InvalidRequest(
                    f"{origin}, line {line}: {len(values)} values for {len(columns)} columns; "
                    "quote values with commas"
                )
            rows.append(tuple(value or None for value in values))
            numbers.append(line)
            if len(rows) > max_rows:
                break
    except csv.Error as error:
        raise InvalidRequest(f"{origin} cannot be read as CSV: {error}") from error
    _check_count(origin, len(rows), max_rows)
    return Table(columns=columns, rows=rows, origin=origin, lines=numbers)


def _read_json_lines(lines: Iterable[str], origin: str, max_rows: int) -> Table:
    records: list[dict[str, Any]] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{origin}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"{where} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise InvalidRequest(
                f"{where}: a row is a JSON object with a value for each column, "
                f"got {line.strip():.60}"
            )
        records.append(value)
        numbers.append(number)
        if len(records) > max_rows:
            break
    return _of_records(records, origin, max_rows, numbers)


def _read_parquet(path: Path, max_rows: int) -> Table:
    with used_by(str(path)):
        from pyarrow import ArrowException, parquet
    try:
        with parquet.ParquetFile(path) as file:
            # The footer has the count, so that too many rows are refused before they are read.
            _check_count(str(path), file.metadata.num_rows, max_rows)
            return Frame(frame=file.read(), origin=str(path)).read(max_rows)
    except (OSError, ArrowException) as error:
        raise InvalidRequest(f"{path} cannot be read as Parquet: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame(Source):
    """A data frame of pandas or Polars, or an Arrow table.

    It is recognized by its attributes, without importing either library.
    """

    frame: Any
    origin: str = "the data frame"

    @property
    def description(self) -> dict[str, Any]:
        return {"records": int(self.frame.shape[0])}

    def read(self, max_rows: int) -> Table:
        _check_count(self.origin, int(self.frame.shape[0]), max_rows)
        # The ``columns`` of an Arrow table are its values.
        names = getattr(self.frame, "column_names", None) or list(self.frame.columns)
        for name in names:
            if not isinstance(name, str):
                raise InvalidRequest(
                    f"{self.origin}: the name of the column {name!r} is not text; rename it"
                )
        # The table refuses duplicate names before columns are taken by name.
        table = Table(columns=tuple(names), rows=(), origin=self.origin)
        return replace(
            table, rows=list(zip(*(_values(self.frame[name]) for name in names), strict=True))
        )


def _values(column: Any) -> Iterable[Any]:
    for convert in ("to_pylist", "to_list", "tolist"):  # Arrow, Polars, pandas
        if hasattr(column, convert):
            values: Iterable[Any] = getattr(column, convert)()
            return values
    return list(column)


@dataclass(frozen=True, kw_only=True, slots=True)
class Records(Source):
    records: Sequence[Any]

    @property
    def description(self) -> dict[str, Any]:
        return {"records": len(self.records)}

    def read(self, max_rows: int) -> Table:
        for index, record in enumerate(self.records):
            if not isinstance(record, Mapping):
                raise InvalidRequest(
                    f"rows, {row_label(index)}: "
                    f"expected a dictionary with a value for each column, got {record!r:.60}"
                )
            for name in record:
                if not isinstance(name, str):
                    raise InvalidRequest(
                        f"rows, {row_label(index)}: "
                        f"the name of the column {name!r} is not text; rename it"
                    )
        return _of_records(self.records, "rows", max_rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuerySource(Source):
    """The rows that a query returns; the database is asked once."""

    query: Query

    @property
    def database(self) -> Any:
        return self.query.on

    @property
    def description(self) -> dict[str, Any]:
        """The statement, its values, and the database's name if it has no password."""
        params = {name: plain(value) for name, value in self.query.params.items()}
        return {
            "sql": self.query.sql,
            "params": params,
            "on": kept_name(self.query.on),
            "at_s": time.time(),
        }

    def read(self, max_rows: int) -> Table:
        # One row more than allowed shows that there are too many, without fetching all.
        columns, rows = database_of(self.query.on).select(
            self.query.sql, self.query.params, max_rows + 1
        )
        _check_count("the query", len(rows), max_rows)
        return Table(columns=columns, rows=rows, origin="the query")


def source_of(rows: Any) -> Source:
    if isinstance(rows, Source):
        return rows
    if isinstance(rows, Query):
        return QuerySource(query=rows)
    if isinstance(rows, str | Path):
        file = FileSource(path=Path(rows))
        if str(rows).startswith("s3://"):
            file = FileSource(path=Path(file.path.name), uri=str(rows))
        if file.kind in (*DELIMITERS, *JSON_LINES, *PARQUET):
            return file
    elif (hasattr(rows, "columns") or hasattr(rows, "column_names")) and hasattr(rows, "shape"):
        return Frame(frame=rows)
    elif isinstance(rows, Iterable) and not isinstance(rows, bytes | Mapping):
        return Records(records=list(rows))
    raise InvalidRequest(
        f"rows={rows!r:.80} is not a source of rows; give a path or s3://… of .csv, .tsv, "
        ".jsonl or .parquet, raysm.Query(sql, on=…), a data frame, or a list of dictionaries"
    )


def source_from_description(description: Mapping[str, Any], on: Any = None) -> Source:
    if "file" in description:
        source = source_of(description["file"])
        return source.with_columns(description["columns"]) if description.get("columns") else source
    if "sql" not in description:
        raise InvalidRequest(
            "a program gave this grid its rows, so they cannot be read again; give the new rows: "
            "grid.extend(rows) or raysm grid extend NAME --rows FILE"
        )
    database = on if on is not None else description.get("on")
    if database is None:
        raise InvalidRequest(
            "this grid's database was an open connection or has a password; "
            "give it again, or as env:NAME"
        )
    return source_of(Query(description["sql"], on=database, params=description["params"]))


def _of_records(
    records: Sequence[Mapping[str, Any]],
    origin: str,
    max_rows: int,
    lines: Sequence[int] | None = None,
) -> Table:
    """Return mappings as a table; a name that a mapping lacks has the value None."""
    _check_count(origin, len(records), max_rows)
    columns = tuple(dict.fromkeys(name for record in records for name in record))
    rows = [tuple(record.get(name) for name in columns) for record in records]
    return Table(columns=columns, rows=rows, origin=origin, lines=lines)


def _check_count(origin: str, count: int, max_rows: int) -> None:
    # Refuse instead of truncating: missing rows of a result would go unnoticed.
    if count > max_rows:
        raise InvalidRequest(
            f"{origin} has more than {max_rows:,} rows, each a job; "
            f"choose fewer, or give max_rows={10 * max_rows}"
        )
    if count == 0:
        raise InvalidRequest(f"{origin} has no rows; check the file or the query")
