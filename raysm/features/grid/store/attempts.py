"""The attempts of a grid's rows: jobs from the intent to their ends."""

import dataclasses
from typing import Any

from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.endings import EndingName
from raysm.features.grid.store.database import GridDatabase
from raysm.features.grid.store.events import EventLog

ENDED = "ended"
"""Value of ``Attempt.seen`` in ``seen_of`` for a job that has ended."""


UNANSWERED = "state IN ('intended', 'maybe')"


class Attempts:
    def __init__(self, database: GridDatabase, events: EventLog) -> None:
        self._database = database
        self._events = events

    # -- changing

    def insert(self, attempt: Attempt) -> None:
        values = _columns(attempt)
        marks = ", ".join(f":{name}" for name in values)
        self._database.execute(
            f"INSERT INTO attempt ({', '.join(values)}) VALUES ({marks})", values
        )
        self._events.add(
            attempt.intended_s, "", attempt.state, "", row_key=attempt.row_key, attempt=attempt.name
        )

    def move(self, attempt: Attempt, now: float, **changes: Any) -> Attempt:
        """Change an attempt within a transaction; return the changed one."""
        changed = dataclasses.replace(attempt, **changes)
        columns = {_COLUMNS[name]: value for name, value in changes.items()}
        self._database.change_state("attempt", "name", attempt.name, attempt.state, columns)
        if changed.state is not attempt.state:
            text = f"{changed.ending}: {changed.reason}" if changed.ending else ""
            self._events.add(
                now,
                attempt.state,
                changed.state,
                text,
                row_key=attempt.row_key,
                attempt=attempt.name,
            )
        return changed

    def mark_unanswered_doubtful(self) -> None:
        """Record that an earlier controller's calls may still be carried out, also after Ctrl-C."""
        self._database.execute(f"UPDATE attempt SET is_doubtful = 1 WHERE {UNANSWERED}")

    def mark_all_to_stop(self) -> None:
        self._database.execute(
            "UPDATE attempt SET wish = 'user' WHERE state <> 'ended' AND wish <> 'user'"
        )

    def remove(self, attempt: Attempt, now: float) -> None:
        """Remove an intent that was never sent, within a transaction."""
        # The sums of open attempts follow the change of the state.
        self.move(attempt, now, state=AttemptState.ENDED, ending=EndingName.LEFT)
        self._database.execute("DELETE FROM attempt WHERE name = ?", (attempt.name,))

    # -- reading

    def _where(self, rest: str, *values: Any) -> list[Attempt]:
        # Conditions below have "state <> 'ended'" even if it is implied: only then does SQLite use
        # the partial index of open attempts.
        return list(map(_record, self._database.execute(f"SELECT * FROM attempt {rest}", values)))

    def find(self, name: str) -> Attempt | None:
        return next(iter(self._where("WHERE name = ?", name)), None)

    def named(self, names: list[str]) -> dict[str, Attempt]:
        return {
            each.name: each
            for each in self._where(f"WHERE name IN ({', '.join('?' * len(names))})", *names)
        }

    def all(self) -> list[Attempt]:
        return self._where("ORDER BY task, number")

    def of_row(self, key: str) -> list[Attempt]:
        return self._where("WHERE task = ? ORDER BY number", key)

    # -- open attempts

    def open(self) -> list[Attempt]:
        return self._where("WHERE state <> 'ended' ORDER BY intended_s, name")

    def unanswered(self) -> list[Attempt]:
        return self._where(f"WHERE {UNANSWERED} ORDER BY intended_s, name")

    def to_stop(self) -> list[Attempt]:
        return self._where("WHERE state <> 'ended' AND wish <> '' ORDER BY intended_s, name")

    def pending_since(self, region: str, before_s: float) -> list[Attempt]:
        """Return a region's attempts that were sent before a time and still wait for instances."""
        condition = "state IN ('sent', 'pending') AND wish = '' AND sent_s < ? AND region = ?"
        return self._where(f"WHERE {condition}", before_s, region)

    def open_count(self, region: str | None = None) -> int:
        query = "SELECT coalesce(sum(attempts), 0) FROM in_use WHERE ?1 IS NULL OR region = ?1"
        return int(self._database.value(query, region))

    def open_work(self) -> list[Any]:
        return self._database.execute(
            "SELECT attempt.region, instance_type, spot, coalesce(sent_s, intended_s), "
            "task.expected_s FROM attempt JOIN task ON task.key = attempt.task "
            "WHERE attempt.state <> 'ended'"
        ).fetchall()

    def running_jobs(self) -> list[tuple[str, str]]:
        found = self._database.execute(
            "SELECT region, name FROM attempt WHERE state <> 'ended' "
            "AND state = 'running' ORDER BY region, name"
        )
        return [(region, name) for region, name in found]

    def seen_of(self, names: list[str]) -> dict[str, str]:
        """Return ``Attempt.seen`` of these jobs by name; ``ENDED`` for sent jobs that ended."""
        marks = ", ".join("?" * len(names))
        found = self._database.execute(
            "SELECT name, iif(state = 'ended' AND sent_s IS NOT NULL, ?, seen) FROM attempt "
            f"WHERE name IN ({marks}) AND (state <> 'ended' OR sent_s IS NOT NULL)",
            (ENDED, *names),
        )
        return dict(found.fetchall())

    def seen_and_sent_times(self, region: str) -> dict[str, tuple[str, float]]:
        found = self._database.execute(
            "SELECT name, seen, sent_s FROM attempt WHERE state <> 'ended' "
            "AND region = ? AND sent_s IS NOT NULL",
            (region,),
        )
        return {name: (seen, sent_s) for name, seen, sent_s in found}

    # -- ended attempts

    def first_ends(self, limit: int) -> list[Attempt]:
        """Return the attempts that ended first.

        Those from before the user queued their rows again are left out.
        """
        counts = "number > (SELECT forgiven FROM task WHERE key = attempt.task)"
        return self._where(
            f"WHERE state = 'ended' AND {counts} ORDER BY ended_s, name LIMIT ?", limit
        )

    def ends_after(self, number: int) -> list[tuple[Attempt, int]]:
        """Return the attempts whose end is an event after ``number``, with the event's number."""
        found = self._database.execute(
            "SELECT attempt.*, event.seq FROM event JOIN attempt ON attempt.name = event.attempt "
            "WHERE event.seq > ? AND event.now = 'ended' ORDER BY event.seq",
            (number,),
        )
        return [(_record(values), values["seq"]) for values in found]

    def has_run(self, endings: tuple[EndingName, EndingName], before_s: float) -> bool:
        """Return whether the grid has evidence that its jobs run.

        A row is done, a started attempt had one of two endings, or one has run since before a time.
        """
        return self._database.exists(
            "SELECT 1 FROM attempt WHERE started_s IS NOT NULL AND (state = 'ended' "
            "AND ending IN (?, ?) OR state <> 'ended' AND started_s <= ?) UNION ALL "
            "SELECT 1 FROM task WHERE state = 'done' LIMIT 1",
            *endings,
            before_s,
        )


_RENAMED = {"row_key": "task", "stop_reason": "wish"}
"""Columns that have another name than their field, since files of earlier versions have them."""

_COLUMNS = {
    field.name: _RENAMED.get(field.name, field.name) for field in dataclasses.fields(Attempt)
}
"""The column of each field of an attempt."""


def _columns(attempt: Attempt) -> dict[str, Any]:
    # Not asdict, whose deep copies took longer than the statement.
    return {column: getattr(attempt, name) for name, column in _COLUMNS.items()}


def _record(values: Any) -> Attempt:
    fields = {name: values[column] for name, column in _COLUMNS.items()}
    fields["state"] = AttemptState(values["state"])
    fields["spot"] = bool(values["spot"])
    fields["is_doubtful"] = bool(values["is_doubtful"])
    return Attempt(**fields)
