"""Rows of a file of comma- or tab-separated values, plain or gzipped: a path flows in, a Table of texts flows out."""

import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from raysm.errors import InvalidRequest
from raysm.grid.rows.file_source import FileSource
from raysm.grid.rows.source import check_number
from raysm.grid.rows.table import Table

__all__ = ["CsvFile"]

DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": ","}
GZIPPED = ".gz"


@dataclass(frozen=True, kw_only=True, slots=True)
class CsvFile(FileSource):
    """The file's first line names the columns; every value is a text, an empty one is nothing."""

    columns: tuple[str, ...] = ()
    """Names of the columns, of a file whose first line is a row already; empty is what its first line says."""

    def with_columns(self, columns: Sequence[str]) -> "CsvFile":
        """See ``Source``."""
        return replace(self, columns=tuple(columns))

    @classmethod
    def again(cls, description: Mapping[str, Any]) -> "CsvFile | None":
        """Return the file that was described so, its columns with it."""
        # Not by super(): a class with slots is made anew, and super() would mean the one before.
        source = cls.of(description["file"]) if "file" in description else None
        return None if source is None else source.with_columns(description.get("columns", ()))

    @property
    def description(self) -> dict[str, Any]:
        """The path, and the names of columns that do not stand in the file."""
        # Else a grid that is extended would take the first row for names.
        names = {"columns": list(self.columns)} if self.columns else {}
        return {"file": str(self.path.absolute()), **names}

    @classmethod
    def reads(cls, path: Path) -> bool:
        """See ``FileSource``."""
        return _suffix(path) in DELIMITERS

    def read(self, max_rows: int) -> Table:
        """Return all rows; see ``Source``."""
        origin = str(self.path)
        try:
            with self._open() as file:
                return self._table(file, origin, max_rows)
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidRequest(f"{origin} cannot be read: {reason}") from error
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"{origin} is not UTF-8: {error}; save it as UTF-8") from error
        except csv.Error as error:
            raise InvalidRequest(f"{origin} cannot be read as CSV: {error}") from error

    def _open(self) -> IO[str]:
        # Spreadsheets put a mark of byte order first, which would become part of the first column's name.
        if self.path.suffix.lower() == GZIPPED:
            return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="")
        return self.path.open(encoding="utf-8-sig", newline="")

    def _table(self, file: IO[str], origin: str, max_rows: int) -> Table:
        # Strict: what follows a closed quote is an error, where the default would glue it to the value.
        reader = csv.reader(file, delimiter=DELIMITERS[_suffix(self.path)], strict=True)
        columns = self.columns or tuple(name.strip() for name in next(reader, ()))
        rows: list[tuple[Any, ...]] = []
        lines: list[int] = []
        begin = reader.line_num + 1
        for values in reader:
            # A quoted value may have lines of its own, so that rows and lines differ.
            line, begin = begin, reader.line_num + 1
            if not values:
                continue
            if len(values) != len(columns):
                raise InvalidRequest(
                    f"{origin}, line {line}: {len(values)} values for {len(columns)} columns; quote values with commas"
                )
            rows.append(tuple(value or None for value in values))
            lines.append(line)
            # Counted here: lines without a value are none, and must not take the place of rows behind them.
            if len(rows) > max_rows:
                break
        check_number(origin, len(rows), max_rows)
        return Table(columns=columns, rows=rows, origin=origin, lines=lines)


def _suffix(path: Path) -> str:
    name = path.name.lower().removesuffix(GZIPPED)
    return Path(name).suffix
