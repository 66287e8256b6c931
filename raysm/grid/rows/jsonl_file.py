"""Rows of a file with a JSON object on each line: a path flows in, a Table with every name that occurs flows out."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.errors import InvalidRequest
from raysm.grid.rows.file_source import FileSource
from raysm.grid.rows.records import of_records
from raysm.grid.rows.table import Table

__all__ = ["JsonlFile"]

SUFFIXES = (".jsonl", ".ndjson")


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonlFile(FileSource):
    """A name that a line lacks is a value that is not there."""

    @classmethod
    def reads(cls, path: Path) -> bool:
        """See ``FileSource``."""
        return path.suffix.lower() in SUFFIXES

    def read(self, max_rows: int) -> Table:
        """Return all rows; see ``Source``."""
        origin = str(self.path)
        records: list[dict[str, Any]] = []
        lines: list[int] = []
        try:
            with self.path.open(encoding="utf-8-sig") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        records.append(_object(line, f"{origin}, line {number}"))
                        lines.append(number)
                    if len(records) > max_rows:
                        break
        except OSError as error:
            raise InvalidRequest(f"{origin} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"{origin} is not UTF-8: {error}; save it as UTF-8") from error
        return of_records(records, origin, max_rows, lines)


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise InvalidRequest(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"{where}: a row is a JSON object with a value for each column, got {line.strip():.60}")
    return value
