"""The rows of a grid: their states, which of them wait, and which are not yet written back."""

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from raysm.errors import InvalidRequest
from raysm.features.grid.row import OPEN_STATES, Row, RowState
from raysm.features.grid.store.database import GridDatabase
from raysm.features.grid.store.events import EventLog

OPEN = f"state IN ({', '.join(map(repr, map(str, OPEN_STATES)))})"

# While an orphaned job of a row runs, the row gets no second job.
NO_ORPHAN = "NOT EXISTS (SELECT 1 FROM stray WHERE stray.ended_s IS NULL AND stray.task = task.key)"

VIEWS = """
WITH cost AS (
    -- "name" is a bare column: SQLite takes it from the row with max(number), since the query has
    -- one max() and no min() (https://www.sqlite.org/lang_select.html#bareagg).
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
"""Each row with its last job and its costs, as users see it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRecord:
    row: Row
    state: RowState
    retries_left: int
    attempts: int
    reason: str
    retries_reset_at: int = 0
    """Number of its last attempt when the user last queued it again; attempts up to this one no
    longer count."""


class Rows:
    def __init__(self, database: GridDatabase, events: EventLog) -> None:
        self._database = database
        self._events = events

    # -- adding and changing

    def add(self, rows: Iterable[Row], retries: int) -> int:
        """Add the rows whose keys are new within a transaction; return how many are."""
        before = self._database.value("SELECT count(*) FROM task")
        self._database.connection.executemany(
            "INSERT OR IGNORE INTO task (key, position, content, region, shape, priority, "
            "expected_s, state, retries_left) VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?)",
            ((*_columns(row), retries) for row in rows),
        )
        return int(self._database.value("SELECT count(*) FROM task") - before)

    def replace(self, row: Row, region: str | None, retries: int) -> None:
        """Give a row other values within a transaction; its earlier attempts no longer count.

        ``region`` is the only one where it may run; None is that of its data, or any.
        """
        placed = row if region is None else dataclasses.replace(row, region=region)
        _, _, content, home, _, priority, expected_s = _columns(row)
        self._database.execute(
            "UPDATE task SET content = ?, region = ?, shape = ?, priority = ?, "
            "expected_s = ?, retries_left = ?, forgiven = attempts WHERE key = ?",
            (content, home, _shape(placed), priority, expected_s, retries, row.key),
        )

    def move(self, key: str, was: RowState, state: RowState, now: float, **changes: Any) -> None:
        """Change a row's state within a transaction, and mark it for writing back."""
        self._database.change_state("task", "key", key, was, {"state": state.value, **changes})
        seq = self._events.add(now, was, state, str(changes.get("reason", "")), row_key=key)
        # In the same transaction, so that no state is missing in the user's database.
        self._database.execute(
            "INSERT OR REPLACE INTO outbox (task, seq) VALUES (?, ?)", (key, seq)
        )

    def bind(self, row: Row, region: str) -> None:
        """Let a row wait apart from those that may run elsewhere, which it must not hold up."""
        shape = _shape(dataclasses.replace(row, region=region))
        self._database.execute("UPDATE task SET shape = ? WHERE key = ?", (shape, row.key))

    def set_reason(self, key: str, reason: str) -> None:
        self._database.execute("UPDATE task SET reason = ? WHERE key = ?", (reason, key))

    def explain(self, key: str, reason: str, now: float) -> None:
        self.set_reason(key, reason)
        self._events.add(now, RowState.PLACED, RowState.PLACED, reason, row_key=key)

    def delay(self, key: str, after_s: float) -> None:
        self._database.execute("UPDATE task SET after_s = ? WHERE key = ?", (after_s, key))

    def set_attempts(self, key: str, number: int) -> None:
        self._database.execute("UPDATE task SET attempts = ? WHERE key = ?", (number, key))

    # -- reading

    def get(self, key: str) -> RowRecord:
        values = self._database.execute("SELECT * FROM task WHERE key = ?", (key,)).fetchone()
        if values is None:
            raise InvalidRequest(f"the grid has no row {key!r}; raysm grid rows lists its rows")
        return _record(values)

    def all(self, state: str | None = None) -> Iterator[RowRecord]:
        # Two queries: with "? IN (state, '')" SQLite would read all rows to find those of one
        # state.
        chosen, values = ("", ()) if state is None else (" WHERE state = ?", (state,))
        yield from map(
            _record,
            self._database.execute(f"SELECT * FROM task{chosen} ORDER BY position, key", values),
        )

    def views(self, state: str) -> Iterator[Any]:
        yield from self._database.execute(VIEWS, (state,))

    def states(self) -> dict[str, int]:
        return dict(
            self._database.execute("SELECT state, count(*) FROM task GROUP BY state").fetchall()
        )

    def are_final(self) -> bool:
        return not self._database.exists(f"SELECT 1 FROM task WHERE {OPEN} LIMIT 1")

    # -- waiting rows

    def waiting_keys(self) -> list[str]:
        return [
            key
            for (key,) in self._database.execute(
                "SELECT key FROM task WHERE state = 'waiting' ORDER BY position, key"
            )
        ]

    def shapes(self) -> list[str]:
        """Return the shapes of the waiting rows: all columns that a row's place depends on."""
        shapes: list[str] = []
        # One query per shape: DISTINCT would read every waiting row. INDEXED BY is needed because
        # the planner prefers the index of states, which reads every waiting row, too, until the
        # table is analyzed.
        query = (
            "SELECT shape FROM task INDEXED BY waiting WHERE state = 'waiting' "
            "AND shape > ? ORDER BY shape LIMIT 1"
        )
        while (
            found := self._database.execute(query, (shapes[-1] if shapes else "",)).fetchone()
        ) is not None:
            shapes.append(found[0])
        return shapes

    def waiting(self, shape: str, now: float, limit: int) -> list[RowRecord]:
        found = self._database.execute(
            "SELECT * FROM task WHERE state = 'waiting' AND shape = ? AND after_s <= ? "
            f"AND {NO_ORPHAN} ORDER BY priority DESC, expected_s DESC, position LIMIT ?",
            (shape, now, limit),
        )
        return list(map(_record, found))

    def waiting_count(self, limit: int) -> int:
        """Return how many rows wait, at most ``limit``: counting 100,000 at each step is slow."""
        query = "SELECT count(*) FROM (SELECT 1 FROM task WHERE state = 'waiting' LIMIT ?)"
        return int(self._database.value(query, limit))

    # -- writing back

    def unwritten(self, limit: int = 1000) -> list[tuple[int, RowRecord]]:
        """Return the rows whose state is not yet written back, with their last event's number."""
        found = self._database.execute(
            "SELECT task.*, seq FROM outbox "
            "JOIN task ON task.key = outbox.task ORDER BY seq LIMIT ?",
            (limit,),
        )
        return [(values["seq"], _record(values)) for values in found]

    def mark_written(self, rows: Iterable[tuple[int, str]]) -> None:
        """Mark rows as written back, by number and key.

        Rows that have changed since stay marked as unwritten.
        """
        with self._database.transaction("written", fenced=False):
            self._database.connection.executemany(
                "DELETE FROM outbox WHERE seq = ? AND task = ?", rows
            )


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Row)}


def _columns(row: Row) -> tuple[Any, ...]:
    # Without default values: in 100,000 rows they would be most of the file.
    values = {name: getattr(row, name) for name in _DEFAULTS}
    content = {
        name: value for name, value in values.items() if value != _DEFAULTS[name] and value != {}
    }
    return (
        row.key,
        row.position,
        json.dumps(content),
        row.region,
        _shape(row),
        row.priority,
        row.expected_s or 0.0,
    )


def _shape(row: Row) -> str:
    """Return all that a row's place depends on, as text."""
    return json.dumps([row.region, row.instance_types, row.count, row.spot, row.image])


def _record(values: Any) -> RowRecord:
    names = ("retries_left", "attempts", "reason")
    return RowRecord(
        row=_row(values["content"]),
        state=RowState(values["state"]),
        retries_reset_at=values["forgiven"],
        **{name: values[name] for name in names},
    )


# Cached, since every step reads the first waiting rows.
@functools.lru_cache(maxsize=1024)
def _row(text: str) -> Row:
    content = json.loads(text)
    content["instance_types"] = tuple(content.get("instance_types", ()))
    return Row(**content)
