"""Jobs of a grid that nobody waits for: stopped, and what they cost counted as waste.

There are two kinds. A Create whose answer was lost, that was refused when it was sent again, and landed after that; and
a job of a store that was lost, and made anew from an older copy.
"""

from raysm.client.job.description import Description
from raysm.grid.attempt import Attempt
from raysm.grid.concluding import billed_s
from raysm.grid.ledger import settle_stray
from raysm.grid.region import Listed
from raysm.grid.store import Store

__all__ = ["end_stray", "live_strays", "note_stray", "stray_asked"]


def note_stray(store: Store, listed: Listed, attempt: Attempt | None, region: str, now: float) -> bool:
    """Keep a job that nobody waits for, within a transaction; return whether Describe has something to tell of it."""
    execute = store.database.connection.execute
    row = execute("SELECT ended_s FROM stray WHERE name = ?", (listed.name,)).fetchone()
    if row is None:
        # Of a job that no attempt made nothing is known but its name.
        values = (
            listed.name,
            attempt.task if attempt else _task_of(store, listed.name),
            region,
            attempt.count if attempt else 1,
            attempt.usd_per_hour if attempt else None,
            attempt.max_runtime_s if attempt else 0,
            now,
        )
        execute(
            "INSERT INTO stray (name, task, region, count, usd_per_hour, max_runtime_s, seen_s) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        store.log(now, "", "stray", "a job that nobody waits for is stopped", task=values[1], attempt=listed.name)
    return (row is None or row["ended_s"] is None) and listed.status.is_terminal


def _task_of(store: Store, name: str) -> str | None:
    """Return the task whose key's hash stands in a name; None where there is none."""
    # Through all rows: strays are few, and an index for them would be kept for every row.
    digits = name.removeprefix(store.grid().prefix).partition("-")[0]
    return next((record.task.key for record in store.tasks() if record.task.key_hash == digits), None)


def live_strays(store: Store, now: float, again_s: float) -> list[tuple[str, str]]:
    """Return region and name of those that are to be asked to stop, now or once more."""
    # Once more after a while: a Stop may be lost, or come before the service knows the job.
    rows = store.database.connection.execute(
        "SELECT region, name FROM stray WHERE ended_s IS NULL AND coalesce(asked_s, -1e18) <= ? ORDER BY seen_s",
        (now - again_s,),
    )
    return [(row[0], row[1]) for row in rows]


def stray_asked(store: Store, name: str, now: float) -> None:
    """Take note that one was asked to stop, within a transaction."""
    store.database.connection.execute("UPDATE stray SET asked_s = ? WHERE name = ?", (now, name))


def end_stray(store: Store, name: str, description: Description, now: float) -> None:
    """Take over the end of one, and its cost, within a transaction."""
    execute = store.database.connection.execute
    # Only while it is open: whoever tells of an end a second time must not have it billed twice.
    row = execute("SELECT * FROM stray WHERE name = ? AND ended_s IS NULL", (name,)).fetchone()
    if row is None or not description.status.is_terminal:
        return
    billable = billed_s(description)
    execute("UPDATE stray SET ended_s = ?, billable_s = ? WHERE name = ?", (now, billable, name))
    cost = Attempt(
        task=row["task"] or "", number=0, name=name, region=row["region"], instance_type="", count=row["count"],
        billable_s=billable, usd_per_hour=row["usd_per_hour"],
    )  # fmt: skip
    settle_stray(store, cost)
