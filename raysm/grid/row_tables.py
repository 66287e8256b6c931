"""What all rows of a grid have left, as one table: a store flows in, Arrow tables with the key of their row flow out.

A part at a time: the predictions of all regions together may be more than the memory of the machine that asks.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raysm.client.results.result import Result
from raysm.client.service import Service
from raysm.errors import InvalidRequest, MissingDependency
from raysm.grid.attempt import TaskState
from raysm.grid.row import rows_of
from raysm.grid.row_result import row_result
from raysm.grid.store import Store

__all__ = ["KEY", "row_tables", "write_tables"]

KEY = "key"
"""The column that names the row, as in the source of the rows."""

MOST_NAMED = 5


def row_tables(store: Store, service: Service, *, column: str = KEY, partial: bool = False) -> Iterator[Any]:
    """Yield the tables of the rows, in the order of their source; the first column of each is its row's key.

    Args:
        store: The grid's.
        service: Of the grid's target, in any region.
        column: Name of that first column.
        partial: Whether rows that are not done are left out.

    Raises:
        InvalidRequest: A row is not done, has left no table, or one with other columns than the rows before it.
        MissingDependency: pyarrow is not installed.
        ServiceError: A region does not answer.
    """
    schema = None
    # Asked for first: the tables of a thousand rows are not read to find that one of them is missing.
    for key in _keys(store, partial):
        for table in _tables(row_result(store, key, service), key):
            named = _named(table, key, column)
            if schema is not None and not named.schema.equals(schema):
                raise InvalidRequest(
                    f"the table of the row {key!r} has the columns {_columns(named.schema)}, and those of the rows "
                    f"before it {_columns(schema)}: ask for each by itself, result({key!r})"
                )
            schema = named.schema
            yield named


def write_tables(tables: Iterator[Any], path: Path) -> int:
    """Write tables of the same columns as one Parquet file; return how many records it has.

    Args:
        tables: As ``row_tables`` yields them.
        path: Of the file; one that is there is replaced, once all is written.

    Raises:
        InvalidRequest: There is no table.
    """
    first = next(tables, None)
    if first is None:
        raise InvalidRequest("the rows have left no records, so there is nothing to write")
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    # By the process: two that write the same table at once leave one whole file.
    unfinished, count = path.with_name(f".{path.name}.{os.getpid()}"), 0
    try:
        with pyarrow.parquet.ParquetWriter(unfinished, first.schema) as writer:
            for table in itertools.chain((first,), tables):
                writer.write_table(table)
                count += table.num_rows
        # Only now: an error in the last row must not cost the file of yesterday.
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _keys(store: Store, partial: bool) -> list[str]:
    rows = list(rows_of(store))
    # Skipped ones too: another grid has what they left.
    missing = [row for row in rows if row.state is not TaskState.DONE]
    if missing and not partial:
        shown = ", ".join(f"{row.key} ({row.state.value})" for row in missing[:MOST_NAMED])
        more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
        raise InvalidRequest(
            f"{len(missing):,} of {len(rows):,} rows are not done: {shown}{more}; wait for them or try them again "
            "(retry), or take what there is: partial"
        )
    return [row.key for row in rows if row.state is TaskState.DONE]


def _tables(result: Any, key: str) -> Iterator[Any]:
    # What a program without a manifest has left, and the value of a function, are no tables by themselves.
    if not isinstance(result, Result):
        raise InvalidRequest(
            f"the row {key!r} has left a {type(result).__name__} and no table: ask for it by itself, result({key!r})"
        )
    for table in result.tables():
        # An array of NumPy's has no columns beside which a key could stand.
        if not hasattr(table, "schema"):
            raise InvalidRequest(
                f"the row {key!r} has left an array and no table: ask for it by itself, result({key!r})"
            )
        yield table


def _named(table: Any, key: str, column: str) -> Any:
    if column in table.column_names:
        raise InvalidRequest(
            f"the table of the row {key!r} has a column {column!r} of its own; give that of the rows' keys another "
            "name: column"
        )
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependency(f"table needs {error.name}: python3 -m pip install {error.name}") from error
    # Metadata, pandas' above all, describe the columns without this one, and differ where the columns do not.
    return table.add_column(0, column, pyarrow.repeat(key, table.num_rows)).replace_schema_metadata()


def _columns(schema: Any) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)
