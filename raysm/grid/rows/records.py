"""Rows that a program has as a list of mappings: they flow in, a Table with every name that occurs flows out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raysm.errors import InvalidRequest
from raysm.grid.rows.source import Source, check_number
from raysm.grid.rows.table import Table

__all__ = ["Records", "of_records"]

ORIGIN = "rows"


@dataclass(frozen=True, kw_only=True, slots=True)
class Records(Source):
    """A list or other iterable of mappings."""

    records: Sequence[Any]
    """As they came; mappings, once they are read."""

    @classmethod
    def of(cls, rows: Any) -> "Records | None":
        """Return the records of an iterable; a text or one mapping alone is none."""
        if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
            return None
        return cls(records=list(rows))

    @property
    def description(self) -> dict[str, Any]:
        """That a program gave them."""
        return {"records": len(self.records)}

    def read(self, max_rows: int) -> Table:
        """Return all rows; see ``Source``."""
        for place, record in enumerate(self.records, 1):
            if not isinstance(record, Mapping):
                raise InvalidRequest(
                    f"{ORIGIN}, row {place}: expected a dictionary with a value for each column, got {record!r:.60}"
                )
            for name in record:
                if not isinstance(name, str):
                    raise InvalidRequest(
                        f"{ORIGIN}, row {place}: the name of the column {name!r} is not text; rename it"
                    )
        return of_records(self.records, ORIGIN, max_rows)


def of_records(
    records: Sequence[Mapping[str, Any]], origin: str, max_rows: int, lines: Sequence[int] | None = None
) -> Table:
    """Return mappings as a table.

    Args:
        records: Each may lack names that others have.
        origin: What a message calls the source.
        max_rows: More are refused.
        lines: Of a file, where each stands.

    Raises:
        InvalidRequest: There are more, or none.
    """
    check_number(origin, len(records), max_rows)
    # In the order in which they first occur, as a reader of the source would list them.
    columns = tuple(dict.fromkeys(name for record in records for name in record))
    rows = [tuple(record.get(name) for name in columns) for record in records]
    return Table(columns=columns, rows=rows, origin=origin, lines=lines)
