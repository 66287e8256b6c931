"""Rows of a data frame, pandas' or Polars', or of an Arrow table: it flows in, a Table flows out.

Told by the interface of Arrow (https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html) and of
pandas, never by importing either: whoever has a frame has imported it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from raysm.errors import InvalidRequest
from raysm.grid.rows.source import Source, check_number
from raysm.grid.rows.table import Table

__all__ = ["ArrowFrame"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArrowFrame(Source):
    """A table of columns in memory."""

    frame: Any
    """The frame or table itself."""
    origin: str = "the data frame"
    """What a message calls it."""

    @classmethod
    def of(cls, rows: Any) -> "ArrowFrame | None":
        """Return the frame where something has columns and a number of rows."""
        is_frame = hasattr(rows, "columns") or hasattr(rows, "column_names")
        return cls(frame=rows) if is_frame and hasattr(rows, "shape") else None

    @property
    def description(self) -> dict[str, Any]:
        """That a program gave it."""
        return {"records": int(self.frame.shape[0])}

    def read(self, max_rows: int) -> Table:
        """Return all rows; see ``Source``."""
        check_number(self.origin, int(self.frame.shape[0]), max_rows)
        # Of an Arrow table, ``columns`` are the values.
        names = getattr(self.frame, "column_names", None) or list(self.frame.columns)
        for name in names:
            if not isinstance(name, str):
                raise InvalidRequest(f"{self.origin}: the name of the column {name!r} is not text; rename it")
        # Its names first: by one that two columns have Arrow gives none of them, and pandas both.
        table = Table(columns=tuple(names), rows=(), origin=self.origin)
        values = [_values(self.frame[name]) for name in names]
        return replace(table, rows=list(zip(*values, strict=True)))


def _values(column: Any) -> Iterable[Any]:
    # Arrow's and Polars' columns name the two ways so; pandas' has tolist alone.
    for convert in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, convert):
            values: Iterable[Any] = getattr(column, convert)()
            return values
    return list(column)
