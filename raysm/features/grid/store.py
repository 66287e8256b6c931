"""The store of a grid: rows, attempts, orphaned jobs, their costs, and a log of events.

It decides nothing and calls no service. Methods that write run inside the caller's transaction or
open their own.
"""

import dataclasses
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.core.client.costs.cap import STOP_GRACE_S
from raysm.core.protocol.home import Clock, home
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest
from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.database import GridDatabase, LeaseLost
from raysm.features.grid.endings import region_of_checkpoints
from raysm.features.grid.row import ALPHABET, DIFFERS, Difference, Row, RowState, differences
from raysm.features.grid.rules import Rules
from raysm.features.grid.schema import (
    Event,
    GridRecord,
    RowRecord,
    attempt_columns,
    attempt_record,
    event_record,
    grid_record,
    row_columns,
    row_record,
    shape_of,
)

ENDED = "ended"
"""Value of ``Attempt.seen`` in ``seen_of`` for a job that has ended."""

# While an orphaned job of a row runs, the row gets no second job.
NO_STRAY = "NOT EXISTS (SELECT 1 FROM stray WHERE stray.ended_s IS NULL AND stray.task = task.key)"

MAX_RATES = 1_000

# The name becomes a file's name, part of jobs' names, and a word of the commands in messages.
NAME = re.compile(r"[^\W_][\w. -]{0,99}")


def folder(root: Path | None = None) -> Path:
    return home(root) / "grids"


def path_of(name: str, root: Path | None = None) -> Path:
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            "a grid's name is 1-100 letters, digits, spaces and . _ -, "
            f"the first a letter or digit; got {name!r}"
        )
    return folder(root) / f"{name}.db"


@dataclass(frozen=True, kw_only=True, slots=True)
class Money:
    """The costs of one region, or of all regions."""

    spent_usd: float = 0.0
    wasted_usd: float = 0.0
    """The part of ``spent_usd`` for attempts without a result and for orphaned jobs."""
    again_usd: float = 0.0
    """The part of ``spent_usd``, at most, for work repeated after interruptions of spot
    capacity."""
    saved_usd: float = 0.0
    """Dollars saved by spot capacity, for seconds that were trained and not billed."""
    at_stake_usd: float = 0.0
    """The most that open attempts, and jobs that may still appear, can cost."""
    unpriced: int = 0
    """Jobs whose price or billed time is unknown; they have cost something too."""

    @property
    def worst_usd(self) -> float:
        """The most that the grid can cost if nothing more is sent."""
        return self.spent_usd + self.at_stake_usd


class Store:
    def __init__(
        self, path: Path | str, *, between: Callable[[str], None] = lambda point: None
    ) -> None:
        self.database = GridDatabase(path, between=between)
        self._execute = self.database.connection.execute

    def close(self) -> None:
        self.database.release_lease()
        self.database.close()

    # -- the grid

    def make(
        self, name: str, *, rules: Rules, now: float, template: str = "{}", source: str = "{}"
    ) -> GridRecord:
        with self.database.transaction("grid", durable=True, fenced=False):
            if self._execute("SELECT 1 FROM grid").fetchone() is None:
                # A later grid of the same name must not mistake this grid's jobs for its own.
                run = "".join(secrets.choice(ALPHABET) for _ in range(6))
                row = (name, run, "open", "", json.dumps(to_json(rules)), template, source, now, 0)
                self._execute(
                    "INSERT INTO grid VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, 1, 0)", row
                )
        return self.grid()

    def grid(self) -> GridRecord:
        row = self._execute("SELECT * FROM grid").fetchone()
        if row is None:
            raise InvalidRequest(
                f"{self.database.path} has no grid yet; raysm grid run creates one"
            )
        return grid_record(row)

    def change_grid(self, state: str, now: float, *, why: str = "", fenced: bool = True) -> None:
        with self.database.transaction(f"grid {state}", durable=True, fenced=fenced):
            was = self._execute("SELECT state FROM grid").fetchone()[0]
            # The user's stop wins over a pause that the controller decides at the same time.
            if (was, state) != ("stopping", "paused"):
                self._execute("UPDATE grid SET state = ?, why = ?", (state, why))
                self.log(now, was, state, why)

    def request_stop(self, now: float) -> bool:
        """Let the grid's controller stop its jobs; return False if the grid is closed.

        A closed grid has no controller: it would be "stopping" for ever.
        """
        if self.grid().state == "closed":
            return False
        self.change_grid("stopping", now, why="the user stops it", fenced=False)
        return True

    def close_if_over(self, now: float) -> bool:
        """Close the grid and release the lease if nothing is left to do; return whether it did.

        In one transaction: a row that another process adds comes before it, and the grid stays
        open, or after it, and that process gets the lease.
        """
        with self.database.transaction("grid closed", durable=True):
            if self.open_count() or self.is_watching(now):
                return False
            was = self._execute("SELECT state FROM grid").fetchone()[0]
            if was in ("open", "stopping"):
                if not self.is_over():
                    return False
                self._execute("UPDATE grid SET state = 'closed', why = ''")
                self.log(now, was, "closed", "")
            self.database.end_lease()
        return True

    def mark_unanswered_doubtful(self) -> None:
        """Record that an earlier controller's calls may still be carried out, also after Ctrl-C."""
        self._execute("UPDATE attempt SET is_doubtful = 1 WHERE state IN ('intended', 'maybe')")

    def remove_intents(self, attempts: Iterable[Attempt], now: float) -> None:
        """Remove intents that were never sent, within a transaction; their rows wait again."""
        for attempt in attempts:
            # The sums of open attempts follow the change of the state.
            self.move(attempt, now, state=AttemptState.ENDED, ending="LEFT")
            self._execute("DELETE FROM attempt WHERE name = ?", (attempt.name,))
            record = self.row(attempt.row_key)
            reason = f"{attempt.region} does not answer"
            self.move_row(attempt.row_key, RowState.PLACED, RowState.WAITING, now, reason=reason)
            if record.attempts == attempt.number:
                self._execute(
                    "UPDATE task SET attempts = ? WHERE key = ?",
                    (attempt.number - 1, attempt.row_key),
                )

    def change_rules(self, rules: Rules, *, template: str | None = None) -> None:
        with self.database.transaction("rules", fenced=False):
            self._execute("UPDATE grid SET rules = ?", (json.dumps(to_json(rules)),))
            if template is not None:
                self._execute("UPDATE grid SET template = ?", (template,))

    def change_clock(self, clock: Clock) -> None:
        with self.database.transaction("clock", fenced=False):
            self._execute(
                "UPDATE grid SET clock_speed = ?, clock_begun_s = ?", (clock.speed, clock.begun_s)
            )

    def note_plan(self, usd: tuple[float, float] | None) -> None:
        with self.database.transaction("plan", fenced=False):
            self._execute(
                "UPDATE grid SET planned_low_usd = ?, planned_high_usd = ?", usd or (None, None)
            )

    def go_on(self, now: float) -> None:
        with self.database.transaction("go on", fenced=False):
            self._execute("UPDATE grid SET state = 'open', why = '', goes_on = 1")
            self.log(now, "paused", "open", "the user goes on")

    # -- rows

    def add(self, rows: Iterable[Row]) -> int:
        retries = self.grid().rules.retries
        with self.database.transaction("rows", fenced=False):
            before = self._value("SELECT count(*) FROM task")
            self.database.connection.executemany(
                "INSERT OR IGNORE INTO task (key, position, content, region, shape, priority, "
                "expected_s, state, retries_left) VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?)",
                ((*row_columns(row), retries) for row in rows),
            )
            self._execute("UPDATE grid SET state = 'open' WHERE state = 'closed'")
            return int(self._value("SELECT count(*) FROM task") - before)

    def correct(self, rows: Iterable[Row]) -> list[Difference]:
        """Compare rows with the recorded ones of the same key, and return those that differ.

        Rows that are waiting, failed, stopped or impossible take the new values, and their earlier
        attempts no longer count. Rows that are done or have an open job keep theirs, and their
        reason says so.
        """
        differing = []
        grid = self.grid()
        with self.database.transaction("corrected", fenced=False):
            for row in rows:
                record = self.row(row.key)
                changes = differences(record.row, row)
                if record.state is RowState.DONE:
                    # Its job is over: another time limit changes nothing of it.
                    changes.pop("max_runtime_s", None)
                reason = record.reason.partition(DIFFERS)[0].removesuffix("; ")
                if changes:
                    difference = Difference(
                        grid=grid.name, key=row.key, state=record.state, changes=changes
                    )
                    differing.append(difference)
                    if difference.is_taken:
                        region = region_of_checkpoints(self.attempts(row.key))
                        placed = row if region is None else dataclasses.replace(row, region=region)
                        _, _, content, home, _, priority, expected_s = row_columns(row)
                        values = (content, home, shape_of(placed), priority, expected_s)
                        self._execute(
                            "UPDATE task SET content = ?, region = ?, shape = ?, priority = ?, "
                            "expected_s = ?, retries_left = ?, forgiven = attempts WHERE key = ?",
                            (*values, grid.rules.retries, row.key),
                        )
                        continue
                    reason = f"{reason}; {difference.text}" if reason else difference.text
                if reason != record.reason:
                    self._execute("UPDATE task SET reason = ? WHERE key = ?", (reason, row.key))
        return differing

    def row(self, key: str) -> RowRecord:
        row = self._execute("SELECT * FROM task WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise InvalidRequest(f"the grid has no row {key!r}; raysm grid rows lists its rows")
        return row_record(row)

    def rows(self, state: str | None = None) -> Iterator[RowRecord]:
        # Two queries: with "? IN (state, '')" SQLite would read all rows to find those of one
        # state.
        chosen, values = ("", ()) if state is None else (" WHERE state = ?", (state,))
        yield from map(
            row_record, self._execute(f"SELECT * FROM task{chosen} ORDER BY position, key", values)
        )

    def waiting_keys(self) -> list[str]:
        return [
            key
            for (key,) in self._execute(
                "SELECT key FROM task WHERE state = 'waiting' ORDER BY position, key"
            )
        ]

    def states(self) -> dict[str, int]:
        return dict(self._execute("SELECT state, count(*) FROM task GROUP BY state").fetchall())

    def is_over(self) -> bool:
        return not self._exists("SELECT 1 FROM task WHERE state IN ('waiting', 'placed') LIMIT 1")

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
        while (row := self._execute(query, (shapes[-1] if shapes else "",)).fetchone()) is not None:
            shapes.append(row[0])
        return shapes

    def waiting(self, shape: str, now: float, limit: int) -> list[RowRecord]:
        rows = self._execute(
            "SELECT * FROM task WHERE state = 'waiting' AND shape = ? AND after_s <= ? "
            f"AND {NO_STRAY} ORDER BY priority DESC, expected_s DESC, position LIMIT ?",
            (shape, now, limit),
        )
        return list(map(row_record, rows))

    def waiting_count(self, limit: int) -> int:
        """Return how many rows wait, at most ``limit``: counting 100,000 at each step is slow."""
        query = "SELECT count(*) FROM (SELECT 1 FROM task WHERE state = 'waiting' LIMIT ?)"
        return int(self._value(query, limit))

    def move_row(
        self, key: str, was: RowState, state: RowState, now: float, **changes: Any
    ) -> None:
        """Change a row's state within a transaction, and mark it for writing back."""
        self._change("task", "key", key, was, {"state": state.value, **changes})
        seq = self.log(now, was, state, str(changes.get("reason", "")), row_key=key)
        # In the same transaction, so that no state is missing in the user's database.
        self._execute("INSERT OR REPLACE INTO outbox VALUES (?, ?)", (key, seq))

    def bind(self, row: Row, region: str) -> None:
        """Let a row wait apart from those that may run elsewhere, which it must not hold up."""
        shape = shape_of(dataclasses.replace(row, region=region))
        self._execute("UPDATE task SET shape = ? WHERE key = ?", (shape, row.key))

    def explain(self, key: str, reason: str, now: float) -> None:
        self._execute("UPDATE task SET reason = ? WHERE key = ?", (reason, key))
        self.log(now, RowState.PLACED, RowState.PLACED, reason, row_key=key)

    def delay_row(self, key: str, after_s: float) -> None:
        self._execute("UPDATE task SET after_s = ? WHERE key = ?", (after_s, key))

    def requeue(self, states: Iterable[str], now: float) -> int:
        """Queue the rows in these final states again, with all their retries; return the count."""
        retries = self.grid().rules.retries
        chosen = [state for state in states if RowState(state).is_final]
        with self.database.transaction("again", fenced=False):
            ended = f"state IN ({', '.join('?' * len(chosen))})"
            number = int(self._value(f"SELECT count(*) FROM task WHERE {ended}", *chosen))
            seq = self.log(now, "", "waiting", f"{number} rows are tried again")
            # Otherwise the user's database would show their old states until they are sent.
            self._execute(
                f"INSERT OR REPLACE INTO outbox SELECT key, ? FROM task WHERE {ended}",
                (seq, *chosen),
            )
            changes = "state = 'waiting', retries_left = ?, after_s = 0, reason = ''"
            self._execute(f"UPDATE task SET {changes} WHERE {ended}", (retries, *chosen))
            # Also for rows that wait or run, since the user may have corrected the program of all
            # rows.
            self._execute(
                "UPDATE task SET forgiven = attempts WHERE state IN ('waiting', 'placed')"
            )
            # Places that have refused for a day would make the same rows fail again at once.
            self._execute("DELETE FROM block")
            self._execute("UPDATE region SET closed_s = 0, failures = 0, since_s = NULL")
            # A closed grid without such rows has nothing to do.
            self._execute(
                "UPDATE grid SET state = 'open', why = '' WHERE state <> 'closed' OR ?", (number,)
            )
        return number

    def row_views(self, state: str) -> Iterator[Any]:
        yield from self._execute(ROWS, (state,))

    # -- attempts

    def insert(self, attempt: Attempt) -> None:
        values = attempt_columns(attempt)
        marks = ", ".join(f":{name}" for name in values)
        self._execute(f"INSERT INTO attempt ({', '.join(values)}) VALUES ({marks})", values)
        self.log(
            attempt.intended_s, "", attempt.state, "", row_key=attempt.row_key, attempt=attempt.name
        )

    def move(self, attempt: Attempt, now: float, **changes: Any) -> Attempt:
        """Change an attempt within a transaction; return the changed one."""
        changed = dataclasses.replace(attempt, **changes)
        self._change("attempt", "name", attempt.name, attempt.state, changes)
        if changed.state is not attempt.state:
            text = f"{changed.ending}: {changed.reason}" if changed.ending else ""
            self.log(
                now,
                attempt.state,
                changed.state,
                text,
                row_key=attempt.row_key,
                attempt=attempt.name,
            )
        return changed

    def _change(
        self, table: str, key: str, value: str, was: str, changes: Mapping[str, Any]
    ) -> None:
        assignments = ", ".join(f"{name} = ?" for name in changes)
        done = self._execute(
            f"UPDATE {table} SET {assignments} WHERE {key} = ? AND state = ?",
            (*changes.values(), value, was),
        )
        # The old state is part of the condition, so that the second of two concurrent changes
        # fails.
        if done.rowcount != 1:
            raise LeaseLost(f"{value} is no longer {was}: another process has changed the grid")

    def _attempts(self, rest: str, *values: Any) -> list[Attempt]:
        # Conditions below have "state <> 'ended'" even if it is implied: only then does SQLite use
        # the partial index of open attempts.
        return list(map(attempt_record, self._execute(f"SELECT * FROM attempt {rest}", values)))

    def attempt(self, name: str) -> Attempt | None:
        return next(iter(self._attempts("WHERE name = ?", name)), None)

    def attempts_of(self, names: list[str]) -> dict[str, Attempt]:
        return {
            each.name: each
            for each in self._attempts(f"WHERE name IN ({', '.join('?' * len(names))})", *names)
        }

    def attempts(self, row_key: str | None = None) -> list[Attempt]:
        return (
            self._attempts("ORDER BY task, number")
            if row_key is None
            else self._attempts(BY_ROW, row_key)
        )

    def open_attempts(self) -> list[Attempt]:
        return self._attempts("WHERE state <> 'ended' ORDER BY intended_s, name")

    def unanswered_attempts(self) -> list[Attempt]:
        return self._attempts("WHERE state IN ('intended', 'maybe') ORDER BY intended_s, name")

    def unwanted(self) -> list[Attempt]:
        return self._attempts("WHERE state <> 'ended' AND wish <> '' ORDER BY intended_s, name")

    def pending_since(self, region: str, before_s: float) -> list[Attempt]:
        """Return a region's attempts that were sent before a time and still wait for instances."""
        condition = "state IN ('sent', 'pending') AND wish = '' AND sent_s < ? AND region = ?"
        return self._attempts(f"WHERE {condition}", before_s, region)

    def first_ends(self, limit: int) -> list[Attempt]:
        """Return the attempts that ended first.

        Those from before the user queued their rows again are left out.
        """
        counts = "number > (SELECT forgiven FROM task WHERE key = attempt.task)"
        return self._attempts(
            f"WHERE state = 'ended' AND {counts} ORDER BY ended_s, name LIMIT ?", limit
        )

    def ends_after(self, number: int) -> list[tuple[Attempt, int]]:
        """Return the attempts whose end is an event after ``number``, with the event's number."""
        rows = self._execute(
            "SELECT attempt.*, event.seq FROM event JOIN attempt ON attempt.name = event.attempt "
            "WHERE event.seq > ? AND event.now = 'ended' ORDER BY event.seq",
            (number,),
        )
        return [(attempt_record(row), row["seq"]) for row in rows]

    def open_work(self) -> list[Any]:
        return self._execute(
            "SELECT attempt.region, instance_type, spot, coalesce(sent_s, intended_s), "
            "task.expected_s FROM attempt JOIN task ON task.key = attempt.task "
            "WHERE attempt.state <> 'ended'"
        ).fetchall()

    def mark_all_to_stop(self) -> None:
        self._execute("UPDATE attempt SET wish = 'user' WHERE state <> 'ended' AND wish <> 'user'")

    def seen_of(self, names: list[str]) -> dict[str, str]:
        """Return ``Attempt.seen`` of these jobs by name; ``ENDED`` for sent jobs that ended."""
        marks = ", ".join("?" * len(names))
        rows = self._execute(
            "SELECT name, iif(state = 'ended' AND sent_s IS NOT NULL, ?, seen) FROM attempt "
            f"WHERE name IN ({marks}) AND (state <> 'ended' OR sent_s IS NOT NULL)",
            (ENDED, *names),
        )
        return dict(rows.fetchall())

    def seen_and_sent_times(self, region: str) -> dict[str, tuple[str, float]]:
        rows = self._execute(
            "SELECT name, seen, sent_s FROM attempt WHERE state <> 'ended' "
            "AND region = ? AND sent_s IS NOT NULL",
            (region,),
        )
        return {row[0]: (row[1], row[2]) for row in rows}

    def running_jobs(self) -> list[tuple[str, str]]:
        rows = self._execute(
            "SELECT region, name FROM attempt WHERE state <> 'ended' "
            "AND state = 'running' ORDER BY region, name"
        )
        return [(row[0], row[1]) for row in rows]

    def open_count(self, region: str | None = None) -> int:
        query = "SELECT coalesce(sum(attempts), 0) FROM in_use WHERE ?1 IS NULL OR region = ?1"
        return int(self._value(query, region))

    def has_run(self, endings: tuple[str, str], before_s: float) -> bool:
        """Return whether the grid has evidence that its jobs run.

        A row is done, a started attempt had one of two endings, or one has run since before a time.
        """
        return self._exists(
            "SELECT 1 FROM attempt WHERE started_s IS NOT NULL AND (state = 'ended' "
            "AND ending IN (?, ?) OR state <> 'ended' AND started_s <= ?) UNION ALL "
            "SELECT 1 FROM task WHERE state = 'done' LIMIT 1",
            *endings,
            before_s,
        )

    # -- jobs without an open attempt: refused ones that may still appear, and orphaned ones
    # ("orphans")

    def is_watching(self, now: float) -> bool:
        """Whether such a job may exist or appear."""
        return self._exists(
            "SELECT 1 FROM attempt WHERE watch_s > 0 AND watch_s > ? "
            "UNION ALL SELECT 1 FROM stray WHERE ended_s IS NULL LIMIT 1",
            now,
        )

    def is_doubtful(self, region: str, now: float) -> bool:
        """Whether a region may have a job that the controller does not count as sent."""
        return self._exists(
            "SELECT 1 FROM attempt WHERE state IN ('intended', 'maybe') AND region = ?1 "
            "UNION ALL SELECT 1 FROM attempt WHERE watch_s > 0 AND watch_s > ?2 AND region = ?1 "
            "UNION ALL SELECT 1 FROM stray WHERE ended_s IS NULL AND region = ?1 LIMIT 1",
            region,
            now,
        )

    def oldest_s(self, region: str, now: float) -> float | None:
        """Return the time of the oldest job that List of a region must show, or None."""
        at_s = self._value(
            "SELECT min(at_s) FROM ("
            "SELECT min(intended_s) AS at_s FROM attempt WHERE state <> 'ended' AND region = ?1 "
            "UNION ALL SELECT min(intended_s) FROM attempt WHERE watch_s > 0 "
            "AND watch_s > ?2 AND region = ?1 "
            "UNION ALL SELECT min(seen_s) FROM stray WHERE ended_s IS NULL AND region = ?1)",
            region,
            now,
        )
        return None if at_s is None else float(at_s)

    def used_regions(self, now: float) -> list[str]:
        rows = self._execute(
            "SELECT region FROM attempt WHERE state <> 'ended' "
            "UNION SELECT region FROM attempt WHERE watch_s > 0 AND watch_s > ? "
            "UNION SELECT region FROM stray WHERE ended_s IS NULL ORDER BY 1",
            (now,),
        )
        return [row[0] for row in rows]

    def orphan_row(self, name: str) -> Any:
        return self._execute("SELECT * FROM stray WHERE name = ?", (name,)).fetchone()

    def add_orphan(self, name: str, region: str, attempt: Attempt | None, now: float) -> None:
        row_key = attempt.row_key if attempt else self._key_of_job(name)
        known = (
            (attempt.count, attempt.usd_per_hour, attempt.max_runtime_s)
            if attempt
            else (1, None, 0)
        )
        columns = "name, task, region, count, usd_per_hour, max_runtime_s, seen_s"
        values = (name, row_key, region, *known, now)
        self._execute(f"INSERT INTO stray ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        self.log(now, "", "stray", "an orphaned job is stopped", row_key=row_key, attempt=name)

    def _key_of_job(self, name: str) -> str | None:
        """Return the key whose hash is in a job's name.

        This reads all rows, which is fine since orphaned jobs are rare.
        """
        digits = name.removeprefix(self.grid().prefix).partition("-")[0]
        return next(
            (record.row.key for record in self.rows() if record.row.key_hash == digits), None
        )

    def open_orphans(self, region: str) -> dict[str, float]:
        """Return a region's orphaned jobs that have not ended, with the time each was seen."""
        query = "SELECT name, seen_s FROM stray WHERE ended_s IS NULL AND region = ?"
        return {row[0]: row[1] for row in self._execute(query, (region,))}

    def orphans_to_stop(self, asked_before_s: float) -> list[tuple[str, str]]:
        """Return region and name of orphaned jobs last asked to stop before a time, or never."""
        rows = self._execute(
            "SELECT region, name FROM stray WHERE ended_s IS NULL "
            "AND coalesce(asked_s, -1e18) <= ? ORDER BY seen_s",
            (asked_before_s,),
        )
        return [(row[0], row[1]) for row in rows]

    def change_orphan(self, name: str, **changes: float | None) -> None:
        for field, value in changes.items():
            self._execute(f"UPDATE stray SET {field} = ? WHERE name = ?", (value, name))

    # -- costs and rates

    def add_cost(self, attempt: Attempt, saved_usd: float, *, is_waste: bool) -> None:
        usd = attempt.usd or 0.0
        wasted, again = (usd, 0.0) if is_waste else (0.0, attempt.again_usd)
        self._execute(
            "INSERT INTO spent VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (region) DO UPDATE "
            "SET usd = usd + ?2, wasted_usd = wasted_usd + ?3, saved_usd = saved_usd + ?4, "
            "again_usd = again_usd + ?5, unpriced = unpriced + ?6",
            (attempt.region, usd, wasted, saved_usd, again, int(attempt.usd is None)),
        )

    def money(self, now: float, region: str | None = None) -> Money:
        spent = self._execute(
            "SELECT coalesce(sum(usd), 0), coalesce(sum(wasted_usd), 0), coalesce(sum(saved_usd), "
            "0), coalesce(sum(again_usd), 0), coalesce(sum(unpriced), 0) FROM spent "
            "WHERE ?1 IS NULL OR region = ?1",
            (region,),
        ).fetchone()
        worst = f"coalesce(usd_per_hour, 0) * count * (max_runtime_s + {STOP_GRACE_S})"
        staked = 0.0
        for part in (
            "usd_per_hour * instance_s / 3600) FROM in_use WHERE true",
            # Refused attempts whose job may still appear; once it has appeared, the orphaned job is
            # counted instead.
            f"{worst} / 3600) FROM attempt WHERE watch_s > 0 AND watch_s > :now "
            "AND name NOT IN (SELECT name FROM stray)",
            f"{worst} / 3600) FROM stray WHERE ended_s IS NULL",
        ):
            query = f"SELECT sum({part} AND (:region IS NULL OR region = :region)"
            staked += self._execute(query, {"region": region, "now": now}).fetchone()[0] or 0.0
        names = ("spent_usd", "wasted_usd", "saved_usd", "again_usd", "unpriced")
        return Money(**dict(zip(names, spent, strict=True)), at_stake_usd=staked)

    def keep_rate(self, name: str, value: float, now: float) -> None:
        self._execute("INSERT OR REPLACE INTO rate VALUES (?, ?, ?)", (name, value, now))

    def keep_rates(self, values: Mapping[str, float], now: float) -> None:
        for name, value in values.items():
            self.keep_rate(name, value, now)
        row = (now, sum(values.values()), len(values))
        self._execute("INSERT OR REPLACE INTO rate_history VALUES (?, ?, ?)", row)
        if self._value("SELECT count(*) FROM rate_history") > MAX_RATES:
            self._execute(
                "DELETE FROM rate_history WHERE at_s IN (SELECT at_s FROM (SELECT at_s, "
                "row_number() OVER (ORDER BY at_s) AS number FROM rate_history) WHERE number % 2 "
                "= 0) AND at_s <> (SELECT at_s FROM rate_history ORDER BY value DESC LIMIT 1)"
            )

    # -- events

    def log(
        self,
        now: float,
        was: str,
        state: str,
        text: str,
        *,
        row_key: str | None = None,
        attempt: str | None = None,
    ) -> int:
        values = (now, row_key, attempt, str(was), str(state), text)
        done = self._execute(
            "INSERT INTO event (at_s, task, attempt, was, now, text) VALUES (?, ?, ?, ?, ?, ?)",
            values,
        )
        return int(done.lastrowid or 0)

    def has_logged(self, text: str) -> bool:
        return (
            self._execute("SELECT 1 FROM event WHERE text = ? LIMIT 1", (text,)).fetchone()
            is not None
        )

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        rows = self._execute(
            "SELECT * FROM event WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit)
        )
        return list(map(event_record, rows))

    def unwritten(self, limit: int = 1000) -> list[tuple[int, RowRecord]]:
        """Return the rows whose state is not yet written back, with their last event's number."""
        rows = self._execute(
            "SELECT task.*, seq FROM outbox "
            "JOIN task ON task.key = outbox.task ORDER BY seq LIMIT ?",
            (limit,),
        )
        return [(row["seq"], row_record(row)) for row in rows]

    def written(self, rows: Iterable[tuple[int, str]]) -> None:
        """Mark rows as written back, by number and key.

        Rows that have changed since stay marked as unwritten.
        """
        with self.database.transaction("written", fenced=False):
            self.database.connection.executemany(
                "DELETE FROM outbox WHERE seq = ? AND task = ?", rows
            )

    def _value(self, query: str, *values: Any) -> Any:
        return self._execute(query, values).fetchone()[0]

    def _exists(self, query: str, *values: Any) -> bool:
        return self._execute(query, values).fetchone() is not None


BY_ROW = "WHERE task = ? ORDER BY number"

ROWS = """
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
