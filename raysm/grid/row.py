"""Rows of a grid as users see them: state, last job and cost, the result of one row, and tables of all rows."""

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from raysm.client.job.handle import attach
from raysm.client.results.result import Result
from raysm.client.service import Service
from raysm.errors import InvalidRequest, MissingDependency
from raysm.grid.attempt import TaskState
from raysm.grid.endings import brief
from raysm.grid.store import Store
from raysm.grid.task import Value

__all__ = ["GridRow", "KEY", "TROUBLES_FIRST", "row_result", "row_tables", "rows_of", "write_tables"]

TROUBLES_FIRST = (
    TaskState.FAILED,
    TaskState.IMPOSSIBLE,
    TaskState.STOPPED,
    TaskState.PLACED,
    TaskState.WAITING,
    TaskState.DONE,
    TaskState.SKIPPED,
)
"""States in the order in which somebody has to look at them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRow:
    """One row of a grid, as it stands. What is not known is None."""

    key: str
    """The user's name of the row."""
    state: TaskState
    """``waiting``, ``placed``, ``done``, ``failed``, ``stopped``, ``impossible`` or ``skipped``."""
    reason: str
    """Why it failed, waits or is impossible; empty otherwise."""
    attempts: int
    """Jobs that were intended for it."""
    job: str | None
    """Name of the last of them."""
    region: str | None
    """Where that one is, or was."""
    instance_type: str | None
    """On which type."""
    count: int | None
    """Of how many instances."""
    spot: bool | None
    """Whether on spare capacity."""
    sent_s: float | None
    """When the service took it, in seconds since the epoch."""
    started_s: float | None
    """When its instances began to work."""
    ended_s: float | None
    """When it ended."""
    usd: float | None
    """What all of its jobs have cost; None before any has ended, and if the cost of one is unknown."""
    interruptions: int = 0
    """How often spot capacity was taken back from its jobs."""
    rate: float | None
    """What its job does in a second, or did last, where the grid measures it (``Rules.rate``)."""
    parameters: Mapping[str, Value]
    """The columns that are the user's own."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "state": self.state.value}


QUERY = """
WITH cost AS (
    SELECT task, max(number) AS last, name, sum(interruptions) AS interruptions,
        CASE WHEN count(*) = count(usd) THEN sum(usd) END AS usd
    FROM (
        SELECT task, number, name, interruptions, CASE
            WHEN state = 'ended' AND sent_s IS NULL THEN 0.0
            ELSE usd_per_hour * count * billable_s / 3600 END AS usd
        FROM attempt)
    GROUP BY task)
SELECT task.key, task.state, task.reason, task.content, coalesce(cost.last, 0) AS attempts,
    attempt.name AS job,
    attempt.region, attempt.instance_type, attempt.count, attempt.spot, attempt.sent_s,
    attempt.started_s, attempt.ended_s, cost.usd,
    coalesce(cost.interruptions, 0) AS interruptions,
    rate.value AS rate
FROM task LEFT JOIN cost ON cost.task = task.key
LEFT JOIN attempt ON attempt.name = cost.name
LEFT JOIN rate ON rate.attempt = attempt.name
WHERE ? IN (task.state, '') ORDER BY task.position, task.key
"""


def rows_of(store: Store, state: str | None = None) -> Iterator[GridRow]:
    """Yield all rows, or those of a state, in the order of their source."""
    for row in store.database.connection.execute(QUERY, (state or "",)):
        columns = {name: row[name] for name in GridRow.__slots__ if name not in ("state", "spot", "parameters")}
        yield GridRow(
            **columns,
            state=TaskState(row["state"]),
            spot=None if row["spot"] is None else bool(row["spot"]),
            parameters=json.loads(row["content"]).get("parameters", {}),
        )


def row_result(store: Store, key: str, service: Service, to: Path | None = None) -> Any:
    """Return the result of a row that is done.

    Args:
        store: The grid's.
        key: Of the row.
        service: Of the grid's target, in any region.
        to: A folder for its files; None is where they lie already, or a folder below raysm's home.

    Returns:
        What ``Job.result`` returns for its last job.

    Raises:
        InvalidRequest: There is no such row, it is not done, or ``to`` holds something.
        ServiceError: The region does not answer.
    """
    # A row that was skipped is done, and has no job here: another grid has its result.
    record, attempts = store.task(key), store.attempts(key)
    if record.state is not TaskState.DONE or not attempts:
        why = f": {brief(record.reason)}" if record.reason else ""
        raise InvalidRequest(f"the row {key!r} has no result: it is {record.state.value}{why}")
    last = attempts[-1]
    # The embedded SageMaker plays the regions that it is told of, and who asks for a row need not name them all.
    in_region = service.at(service.target.reaching((last.region,)).in_region(last.region))
    return attach(last.name, in_region).result(to=to)


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
