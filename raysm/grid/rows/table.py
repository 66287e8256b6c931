"""A table of rows as a source has them: column names, values, and the place of each row for messages."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from raysm.errors import InvalidRequest
from raysm.grid.task import Value

__all__ = ["Table", "plain"]

SHOWN = 60
"""Characters of a value that an error shows: a cell may hold a document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows as a source has them, before their columns are interpreted.

    Raises:
        InvalidRequest: A column has no name, or two have the same.
    """

    columns: tuple[str, ...]
    """Names."""
    rows: Sequence[tuple[Any, ...]]
    """Values in the order of the columns."""
    origin: str
    """What a message calls the source: a file's path, ``the query``."""
    lines: Sequence[int] | None = None
    """Of a file of text, the line on which each row begins; None counts the rows."""

    def __post_init__(self) -> None:
        """Check the names."""
        for place, name in enumerate(self.columns, 1):
            if not name:
                raise InvalidRequest(f"{self.origin}: column {place} has no name; give it one")
        double = [name for name, times in Counter(self.columns).items() if times > 1]
        if double:
            # Of a join; a dictionary would silently keep the last one.
            raise InvalidRequest(f"{self.origin}: two columns are named {double[0]!r}; rename one (in SQL: AS)")

    def where(self, row: int) -> str:
        """Return how a message names a row, ``drives.csv, line 5``.

        Args:
            row: Its index, from 0.
        """
        return f"{self.origin}, line {self.lines[row]}" if self.lines is not None else f"{self.origin}, row {row + 1}"


def plain(value: Any) -> Value:
    """Return a value as JSON has it; what is not there is None.

    Raises:
        ValueError: JSON has nothing like it.
    """
    match value:
        # First, for speed: nearly all are.
        case str() | int() | None:  # bool is an int
            return value
        case float():
            # pandas says NaN for what is not there; JSON has no infinity, which is a value, as text as a CSV has it.
            return None if math.isnan(value) else value if math.isfinite(value) else str(float(value))
        case datetime() | date() | time():
            # pandas' NaT is a date that equals nothing, itself neither.
            return value.isoformat() if value == value else None
        case Decimal() | UUID():
            # As text: a float would change the digits of a Decimal.
            return str(value)
    # NumPy's and pandas' numbers and dates, without importing them. Of pandas' NA nobody can say what it equals.
    if type(value).__name__ == "NAType":
        return None
    # Of nanoseconds there is no datetime, and item() is their number.
    if type(value).__name__ == "datetime64" and isinstance(value.item(), int):
        return str(value)
    for convert in ("isoformat", "item"):
        if hasattr(value, convert):
            return None if value != value else plain(getattr(value, convert)())
    raise ValueError(f"a {type(value).__name__} cannot be a value of a row: {repr(value)[:SHOWN]}")
