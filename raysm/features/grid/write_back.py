"""The states of a grid's rows in the user's database, beside the table that they came from."""

from collections.abc import Mapping
from typing import Any

from raysm.features.grid.endings import shortened
from raysm.features.grid.sources.databases import Execute, UserDatabase
from raysm.features.grid.store.rows import RowRecord
from raysm.features.grid.store.store import Store

TABLE = "raysm_tasks"

# Not "key", which is a reserved word of MySQL.
COLUMNS: Mapping[str, str] = {
    "grid": "VARCHAR(255) NOT NULL",
    "task": "VARCHAR(255) NOT NULL",
    "state": "VARCHAR(16) NOT NULL",
    "region": "VARCHAR(32)",
    "instance_type": "VARCHAR(64)",
    "job": "VARCHAR(63)",
    "attempts": "INTEGER",
    "started_s": "DOUBLE PRECISION",
    "ended_s": "DOUBLE PRECISION",
    "billable_s": "DOUBLE PRECISION",
    "usd": "DOUBLE PRECISION",
    "reason": "VARCHAR(1024)",
}
"""Names and types that every database has. Times are seconds since the epoch, since dates differ
among databases."""

MAKE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} "
    f"({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())}, PRIMARY KEY (grid, task))"
)
CHANGE = (
    f"UPDATE {TABLE} "
    f"SET {', '.join(f'{name} = :{name}' for name in COLUMNS if name not in ('grid', 'task'))} "
    "WHERE grid = :grid AND task = :task"
)
UNSETTLE = f"UPDATE {TABLE} SET state = '' WHERE grid = :grid AND task = :task"
INSERT = (
    f"INSERT INTO {TABLE} ({', '.join(COLUMNS)}) VALUES "
    f"({', '.join(f':{name}' for name in COLUMNS)})"
)

MAX_CHARACTERS = 1024
WRITE_BATCH = 500


def make_table(database: UserDatabase) -> None:
    with database.transaction() as execute:
        execute(MAKE, {})


def write_back(store: Store, database: UserDatabase) -> int:
    """Write the states that changed since the last time; return the number of rows.

    Rows are marked as written only after their transaction. If the answer is lost, the same rows
    are written again, so that none is missing or duplicated.
    """
    grid = store.grid().name
    written = 0
    while noted := store.rows.unwritten(WRITE_BATCH):
        rows = [_row(grid, store, record) for _, record in noted]
        with database.transaction() as execute:
            for row in rows:
                _put(execute, row)
        # A row that has changed meanwhile has a new number, and stays marked.
        store.rows.mark_written([(number, record.row.key) for number, record in noted])
        written += len(noted)
    return written


def _put(execute: Execute, row: Mapping[str, Any]) -> None:
    # No upsert, whose syntax differs among databases; the primary key prevents double inserts.
    if execute(CHANGE, row) > 0:
        return
    # MySQL's drivers count only rows whose values change. A row that an earlier call has written,
    # whose answer was lost, counts 0; changing its state first shows that it exists.
    is_there = execute(UNSETTLE, row) > 0
    execute(CHANGE if is_there else INSERT, row)


def _row(grid: str, store: Store, record: RowRecord) -> dict[str, Any]:
    attempts = store.attempts.of_row(record.row.key)
    last = attempts[-1] if attempts else None
    # Failed attempts are paid for too, so that the table adds up to the grid's costs.
    costs = [attempt.usd for attempt in attempts if attempt.sent_s is not None]
    amounts = [usd for usd in costs if usd is not None]
    billed = [attempt.billable_s for attempt in attempts if attempt.billable_s is not None]
    return {
        "grid": grid,
        "task": record.row.key,
        "state": str(record.state),
        "region": last and last.region,
        "instance_type": last and last.instance_type,
        "job": last and last.name,
        "attempts": len(attempts),
        "started_s": last and last.started_s,
        "ended_s": last and last.ended_s,
        "billable_s": sum(billed) if billed else None,
        "usd": sum(amounts) if costs and len(amounts) == len(costs) else None,
        "reason": shortened(record.reason, MAX_CHARACTERS),
    }
