"""What became of each row, with the job that it has, or had last: a store flows in, GridRows flow out.

One query for all of them: a query a row took longer for 1,000 rows than to draw them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from raysm.grid.attempt import TaskState
from raysm.grid.store import Store
from raysm.grid.task import Value

__all__ = ["TROUBLES_FIRST", "GridRow", "rows_of"]

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
