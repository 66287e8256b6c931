"""What became of the rows, back in a database: a store's outbox flows in, rows of one table flow out.

The store notes each task whose state changes; whoever runs the grid calls ``write_back`` now and then. It writes what
is noted, in one transaction, and only then takes the notes away: a database that is away, or an answer that was lost,
means that the same is written again, over the same row. So nothing is missing, and nothing is there twice.
"""

from collections.abc import Callable, Mapping
from typing import Any

from raysm.grid.attempt import Attempt
from raysm.grid.endings import shortened
from raysm.grid.records import TaskRecord
from raysm.grid.rows.databases import Database, Execute
from raysm.grid.store import Store

__all__ = ["COLUMNS", "TABLE", "make_table", "write_back"]

TABLE = "raysm_tasks"

# Not "key", as the rows have it: to MySQL that is a word of its own.
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
    "result_uri": "VARCHAR(1024)",
    "reason": "VARCHAR(1024)",
}
"""Names and types, such as every database has. Moments are seconds since the epoch: of dates each has another idea."""

MAKE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())}, "
    "PRIMARY KEY (grid, task))"
)
CHANGE = (
    f"UPDATE {TABLE} SET {', '.join(f'{name} = :{name}' for name in COLUMNS if name not in ('grid', 'task'))} "
    "WHERE grid = :grid AND task = :task"
)
UNSETTLE = f"UPDATE {TABLE} SET state = '' WHERE grid = :grid AND task = :task"
INSERT = f"INSERT INTO {TABLE} ({', '.join(COLUMNS)}) VALUES ({', '.join(f':{name}' for name in COLUMNS)})"

MOST_CHARACTERS = 1024

BATCH = 500
"""Tasks of one transaction: a database that is slow must not hold up a step of the grid for long."""


def write_back(
    store: Store, database: Database, result_uri: Callable[[TaskRecord, Attempt], str | None] = lambda task, last: None
) -> int:
    """Write what has changed since the last time; return how many tasks that were.

    Args:
        store: The grid's.
        database: Where to.
        result_uri: Returns where the result of a task lies; None is nowhere yet.

    Raises:
        ServiceError: The database is away, or refuses; what was not written stays noted, and the grid goes on.
    """
    grid, written = store.grid().name, 0
    while True:
        noted = store.unwritten(BATCH)
        if not noted:
            return written
        rows = [_row(grid, store, task, result_uri) for _, task in noted]
        with database.transaction() as execute:
            for row in rows:
                _put(execute, row)
        # A task that has changed meanwhile has another number by now, and stays noted.
        store.written([(number, task.task.key) for number, task in noted])
        written += len(noted)


def make_table(database: Database) -> None:
    """Make the table, where there is none.

    Raises:
        ServiceError: The database is away, or refuses.
    """
    with database.transaction() as execute:
        execute(MAKE, {})


def _put(execute: Execute, row: Mapping[str, Any]) -> None:
    # No upsert: each database has another word for it. That nobody else inserts between the two, the key sees to.
    if execute(CHANGE, row) > 0:
        return
    # MySQL's drivers count the rows that are others now: one that has been written before, by a call whose answer was
    # lost, counts as none unless it is made another first.
    is_there = execute(UNSETTLE, row) > 0
    execute(CHANGE if is_there else INSERT, row)


def _row(
    grid: str, store: Store, task: TaskRecord, result_uri: Callable[[TaskRecord, Attempt], str | None]
) -> dict[str, Any]:
    attempts = store.attempts(task.task.key)
    last = attempts[-1] if attempts else None
    # Failed attempts are paid for too, so that the table adds up to what the grid has cost.
    costs = [attempt.usd for attempt in attempts if attempt.sent_s is not None]
    amounts = [usd for usd in costs if usd is not None]
    billed = [attempt.billable_s for attempt in attempts if attempt.billable_s is not None]
    return {
        "grid": grid,
        "task": task.task.key,
        "state": str(task.state),
        "region": None if last is None else last.region,
        "instance_type": None if last is None else last.instance_type,
        "job": None if last is None else last.name,
        "attempts": len(attempts),
        "started_s": None if last is None else last.started_s,
        "ended_s": None if last is None else last.ended_s,
        "billable_s": sum(billed) if billed else None,
        "usd": sum(amounts) if costs and len(amounts) == len(costs) else None,
        "result_uri": None if last is None else result_uri(task, last),
        "reason": shortened(task.reason, MOST_CHARACTERS),
    }
