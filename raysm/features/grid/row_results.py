"""The results of a grid's rows: of one row, and the tables of all rows as one."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raysm.core.client.job.handle import attach
from raysm.core.client.results.result import Result
from raysm.core.client.service import Service
from raysm.errors import InvalidRequest, used_by
from raysm.features.grid.endings import brief
from raysm.features.grid.row import RowState
from raysm.features.grid.row_view import row_views
from raysm.features.grid.store.store import Store


def row_result(store: Store, key: str, service: Service, to: Path | None = None) -> Any:
    """Return the result of a done row, as ``Job.result`` of its last job returns it."""
    record = store.rows.get(key)
    attempts = store.attempts.of_row(key)
    if record.state is not RowState.DONE:
        why = f": {brief(record.reason)}" if record.reason else ""
        raise InvalidRequest(f"the row {key!r} has no result: it is {record.state.value}{why}")
    last = attempts[-1]
    # The embedded SageMaker emulates only the regions that its target names.
    in_region = service.at(service.target.reaching((last.region,)).in_region(last.region))
    return attach(last.name, in_region).result(to=to)


KEY = "key"
"""Default name of the column with the rows' keys."""

MAX_NAMED = 5


def row_tables(
    store: Store, service: Service, *, column: str = KEY, partial: bool = False
) -> Iterator[Any]:
    """Yield the rows' result tables in the order of their source, with the key as first column."""
    schema = None
    # A missing row is reported before the tables of a thousand rows are read.
    for key in _done_keys(store, partial):
        result = row_result(store, key, service)
        by_itself = f"ask for it by itself, result({key!r})"
        if not isinstance(result, Result):
            raise InvalidRequest(
                f"the row {key!r} has left a {type(result).__name__} and no table: {by_itself}"
            )
        for table in result.tables():
            if not hasattr(table, "schema"):
                raise InvalidRequest(f"the row {key!r} has left an array and no table: {by_itself}")
            named = _named(table, key, column)
            fitting = named if schema is None else _fitted(named, schema)
            if fitting is None:
                raise InvalidRequest(
                    f"the table of the row {key!r} has the columns {_columns(named.schema)}, "
                    f"and those of the rows before it {_columns(schema)}",
                    remedy="let every row write the same columns and types; raysm grid result "
                    "NAME KEY (in Python result(KEY)) has the table of one row",
                )
            schema = fitting.schema
            yield fitting


def write_tables(tables: Iterator[Any], path: Path) -> int:
    """Write tables with the same columns as one Parquet file, and replace an existing one.

    Returns:
        The number of records.
    """
    if path.suffix.lower() in (".csv", ".tsv", ".json", ".jsonl", ".xlsx"):
        raise InvalidRequest(
            f"{path.name}: the table is written as Parquet; name a file that ends with .parquet"
        )
    first = next(tables, None)
    if first is None:
        raise InvalidRequest("the rows have left no records, so there is nothing to write")
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    # The process's number keeps two writers of the same table apart: one whole file remains.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    count = 0
    try:
        with pyarrow.parquet.ParquetWriter(unfinished, first.schema) as writer:
            for table in itertools.chain((first,), tables):
                writer.write_table(table)
                count += table.num_rows
        # Only now, so that an error in the last row leaves the existing file.
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _done_keys(store: Store, partial: bool) -> list[str]:
    rows = list(row_views(store))
    missing = [row for row in rows if row.state is not RowState.DONE]
    if missing and not partial:
        shown = ", ".join(f"{row.key} ({row.state.value})" for row in missing[:MAX_NAMED])
        more = f" and {len(missing) - MAX_NAMED:,} more" if len(missing) > MAX_NAMED else ""
        raise InvalidRequest(
            f"{len(missing):,} of {len(rows):,} rows are not done: {shown}{more}; wait for them "
            "or try them again (retry), or take what there is: --partial, in Python partial=True"
        )
    return [row.key for row in rows if row.state is RowState.DONE]


def _named(table: Any, key: str, column: str) -> Any:
    if column in table.column_names:
        raise InvalidRequest(
            f"the table of the row {key!r} has a column {column!r} too; "
            "name that of the rows' keys otherwise: --column NAME (column=)"
        )
    with used_by("table"):
        import pyarrow
    # pandas' metadata do not describe this column, and may differ between tables with equal
    # columns.
    return table.add_column(
        0, column, pyarrow.repeat(key, table.num_rows)
    ).replace_schema_metadata()


def _fitted(table: Any, schema: Any) -> Any:
    """Return the table with the columns of ``schema``, or None if it does not fit.

    A number may change its type, but not its value.
    """
    import pyarrow

    if table.schema.names != schema.names:
        return None
    for field in schema:
        column = table.column(field.name)
        if column.null_count < len(column) and not _is_castable(column.type, field.type):
            return None
    try:
        return table.cast(schema)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        return None


def _is_castable(given: Any, wanted: Any) -> bool:
    from pyarrow import types

    if types.is_floating(given) and types.is_floating(wanted):
        # Arrow does not check whether a narrower float has the same value.
        return bool(given.bit_width <= wanted.bit_width)
    of_numbers = all(types.is_integer(each) or types.is_floating(each) for each in (given, wanted))
    return (
        given == wanted
        or of_numbers
        or all(str(each) in ("string", "large_string") for each in (given, wanted))
    )


def _columns(schema: Any) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)
