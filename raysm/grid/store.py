"""All that a grid knows: its rows, its attempts and what became of them. What flows in and out are frozen values.

Nothing here calls the service, and nothing decides: the modules beside it do, and keep here what they decided.
"""

import dataclasses
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from raysm.contract.home import Clock, home
from raysm.errors import InvalidRequest
from raysm.grid.attempt import Attempt, TaskState
from raysm.grid.database import Database, LeaseLost
from raysm.grid.records import Event, GridRecord, TaskRecord, attempt_record, grid_record, task_record, task_row
from raysm.grid.rules import Rules
from raysm.grid.task import DIFFERS, Difference, Task, differences
from raysm.request.codec import to_json

__all__ = ["ENDED", "NO_STRAY", "Store", "folder", "path_of"]

ENDED = "ended"
"""What is seen of a job that has ended, and is looked at no more."""

# A job of it that nobody wanted still runs: a second one at the same time would be one too many.
NO_STRAY = "NOT EXISTS (SELECT 1 FROM stray WHERE stray.ended_s IS NULL AND stray.task = task.key)"
"""Of a task that may be sent: in a query, a condition on ``task``."""

RUN_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""Without letters that are taken for others: people read names of jobs to each other."""


# It becomes the name of a file, part of jobs' names, and a word of commands that messages tell people to run.
NAME = re.compile(r"[^\W_][\w. -]{0,99}")


def folder(root: Path | None = None) -> Path:
    """Return where the grids of a home lie."""
    return home(root) / "grids"


def path_of(name: str, root: Path | None = None) -> Path:
    """Return the file of a grid."""
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            f"a grid's name has letters, digits, spaces and . _ -, begins with a letter or digit, and has at most 100 "
            f"characters; got {name!r}"
        )
    return folder(root) / f"{name}.db"


class Store:
    """The store of one grid."""

    def __init__(self, path: Path | str, *, between: Callable[[str], None] = lambda point: None) -> None:
        """Open the file of a grid, or make it; see ``Database``."""
        self.database = Database(path, between=between)
        self._execute = self.database.connection.execute

    def close(self) -> None:
        """Let go of the lease, and close the file."""
        self.database.release_lease()
        self.database.close()

    # -- the grid

    def make(self, name: str, *, rules: Rules, now: float, template: str = "{}", source: str = "{}") -> GridRecord:
        """Make the grid where there is none yet; return it."""
        with self.database.transaction("grid", durable=True, fenced=False):
            if self._execute("SELECT 1 FROM grid").fetchone() is None:
                # So that the jobs of a grid that was made anew under its name are not taken for the old one's.
                run = "".join(secrets.choice(RUN_ALPHABET) for _ in range(6))
                row = (name, run, "open", "", json.dumps(to_json(rules)), template, "", source, now, 0)
                self._execute("INSERT INTO grid VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, 1, 0)", row)
        return self.grid()

    def grid(self) -> GridRecord:
        """Return the grid.

        Raises:
            InvalidRequest: The file holds none.
        """
        row = self._execute("SELECT * FROM grid").fetchone()
        if row is None:
            raise InvalidRequest(f"{self.database.path} has no grid yet; raysm grid run creates one")
        return grid_record(row)

    def change_grid(self, state: str, now: float, *, why: str = "", fenced: bool = True) -> None:
        """Have the grid be open, paused, stopping or closed: what the next step finds."""
        with self.database.transaction(f"grid {state}", durable=True, fenced=fenced):
            was = self._execute("SELECT state FROM grid").fetchone()[0]
            # The user's wish to stop may come while the controller makes up its mind to pause, and counts.
            if (was, state) != ("stopping", "paused"):
                self._execute("UPDATE grid SET state = ?, why = ?", (state, why))
                self.log(now, was, state, why)

    def change_rules(self, rules: Rules) -> None:
        """Have other rules hold from the next step."""
        with self.database.transaction("rules", fenced=False):
            self._execute("UPDATE grid SET rules = ?", (json.dumps(to_json(rules)),))

    def change_clock(self, clock: Clock) -> None:
        """Have the grid's moments be told by another clock: a server that was started anew has one of its own."""
        with self.database.transaction("clock", fenced=False):
            self._execute("UPDATE grid SET clock_speed = ?, clock_begun_s = ?", (clock.speed, clock.begun_s))

    def note_plan(self, usd: tuple[float, float] | None) -> None:
        """Keep what all rows together are planned to cost, at best and at worst; None is unknown."""
        with self.database.transaction("plan", fenced=False):
            self._execute("UPDATE grid SET planned_low_usd = ?, planned_high_usd = ?", usd or (None, None))

    def go_on(self, now: float) -> None:
        """Open a grid that was paused, whatever its first tasks said."""
        with self.database.transaction("go on", fenced=False):
            self._execute("UPDATE grid SET state = 'open', why = '', goes_on = 1")
            self.log(now, "paused", "open", "the user goes on")

    # -- tasks

    def add(
        self, tasks: Iterable[Task], *, template_digest: str = "", done: Callable[[str], bool] | None = None
    ) -> int:
        """Add the tasks whose keys are new; return how many they are.

        Args:
            tasks: The rows; one whose key is there already changes nothing.
            template_digest: Of what is common to all tasks, so that another program's results are not taken for these.
            done: Whether a task of this digest was done before, by another grid.
        """
        retries = self.grid().rules.retries
        with self.database.transaction("tasks", fenced=False):
            before = self._count("task")
            self.database.connection.executemany(
                "INSERT OR IGNORE INTO task (key, position, content, digest, region, shape, priority, expected_s, "
                "state, retries_left) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (task_row(task, template_digest, done, retries) for task in tasks),
            )
            self._execute("UPDATE grid SET state = 'open' WHERE state = 'closed'")
            return self._count("task") - before

    def correct(self, tasks: Iterable[Task]) -> list[Difference]:
        """Compare tasks with the recorded ones of the same key, and return those that differ.

        Tasks that are waiting, failed, stopped or impossible take the new values, and their earlier attempts do not
        count any more. Tasks that are done or have an open job keep theirs, and their reason says so.
        """
        differing, retries = [], self.grid().rules.retries
        with self.database.transaction("corrected", fenced=False):
            for task in tasks:
                row = self._execute("SELECT * FROM task WHERE key = ?", (task.key,)).fetchone()
                record = task_record(row)
                changes = differences(record.task, task)
                reason = record.reason.partition(DIFFERS)[0].removesuffix("; ")
                if changes:
                    difference = Difference(key=task.key, state=record.state, changes=changes)
                    differing.append(difference)
                    if difference.is_taken:
                        self._take(task, retries)
                        continue
                    reason = f"{reason}; {difference.text}" if reason else difference.text
                if reason != record.reason:
                    self._execute("UPDATE task SET reason = ? WHERE key = ?", (reason, task.key))
        return differing

    def _take(self, task: Task, retries: int) -> None:
        _, _, content, digest, region, shape, priority, expected_s, _, _ = task_row(task, "", None, retries)
        self._execute(
            "UPDATE task SET content = ?, digest = ?, region = ?, shape = ?, priority = ?, expected_s = ?, "
            "retries_left = ?, forgiven = attempts WHERE key = ?",
            (content, digest, region, shape, priority, expected_s, retries, task.key),
        )

    def _count(self, table: str) -> int:
        return int(self._execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def task(self, key: str) -> TaskRecord:
        """Return a task by its key.

        Raises:
            InvalidRequest: There is none.
        """
        row = self._execute("SELECT * FROM task WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise InvalidRequest(f"the grid has no row {key!r}")
        return task_record(row)

    def tasks(self, state: str | None = None) -> Iterator[TaskRecord]:
        """Yield all tasks, or those of a state, in the order of their source."""
        # Two queries: with "? IN (state, '')" SQLite would read all tasks to find those of one state.
        chosen, values = ("", ()) if state is None else (" WHERE state = ?", (state,))
        for row in self._execute(f"SELECT * FROM task{chosen} ORDER BY position, key", values):
            yield task_record(row)

    def states(self) -> dict[str, int]:
        """Return how many tasks are in each state."""
        return dict(self._execute("SELECT state, count(*) FROM task GROUP BY state").fetchall())

    def is_over(self) -> bool:
        """Whether no task waits or runs."""
        return self._execute("SELECT 1 FROM task WHERE state IN ('waiting', 'placed') LIMIT 1").fetchone() is None

    def shapes(self) -> list[str]:
        """Return the shapes of which a task waits: what the place of a task depends on, apart from its own worth."""
        shapes: list[str] = []
        # A step for each shape: DISTINCT would walk over every task that waits, and so would the index of states, which
        # the planner takes for the better one as long as nobody has counted the rows for it.
        query = "SELECT shape FROM task INDEXED BY waiting WHERE state = 'waiting' AND shape > ? ORDER BY shape LIMIT 1"
        while (row := self._execute(query, (shapes[-1] if shapes else "",)).fetchone()) is not None:
            shapes.append(row[0])
        return shapes

    def waiting(self, shape: str, now: float, limit: int) -> list[TaskRecord]:
        """Return the first tasks of a shape that may be placed now."""
        rows = self._execute(
            f"SELECT * FROM task WHERE state = 'waiting' AND shape = ? AND after_s <= ? AND {NO_STRAY} "
            "ORDER BY priority DESC, expected_s DESC, position LIMIT ?",
            (shape, now, limit),
        )
        return [task_record(row) for row in rows]

    def waiting_count(self, most: int) -> int:
        """Return how many tasks wait, counted up to ``most``: each step asks, and there may be 100,000."""
        query = "SELECT count(*) FROM (SELECT 1 FROM task WHERE state = 'waiting' LIMIT ?)"
        return int(self._execute(query, (most,)).fetchone()[0])

    def move_task(self, key: str, was: TaskState, state: TaskState, now: float, **changes: Any) -> None:
        """Change a task's state within a transaction, and note it for whoever writes it back.

        Raises:
            LeaseLost: It is in another state than ``was``.
        """
        self._change("task", "key", key, was, {"state": state.value, **changes})
        seq = self.log(now, was, state, str(changes.get("reason", "")), task=key)
        # In the same transaction: no end is ever known here and never written back.
        self._execute("INSERT OR REPLACE INTO outbox VALUES (?, ?)", (key, seq))

    def explain(self, key: str, reason: str, now: float) -> None:
        """Keep what is known of a task whose state does not change by it, within a transaction."""
        self._execute("UPDATE task SET reason = ? WHERE key = ?", (reason, key))
        self.log(now, TaskState.PLACED, TaskState.PLACED, reason, task=key)

    def hold(self, key: str, after_s: float) -> None:
        """Have a task not be placed before a moment."""
        self._execute("UPDATE task SET after_s = ? WHERE key = ?", (after_s, key))

    def again(self, states: Iterable[str], now: float) -> int:
        """Have the tasks that ended in one of these states wait again, with all their retries; return how many."""
        retries, chosen = self.grid().rules.retries, [state for state in states if TaskState(state).final]
        with self.database.transaction("again", fenced=False):
            ended = f"state IN ({', '.join('?' * len(chosen))})"
            number = int(self._execute(f"SELECT count(*) FROM task WHERE {ended}", chosen).fetchone()[0])
            seq = self.log(now, "", "waiting", f"{number} tasks are tried again")
            # Else a database to which they are written back would have their ends until they are sent.
            self._execute(f"INSERT OR REPLACE INTO outbox SELECT key, ? FROM task WHERE {ended}", (seq, *chosen))
            changes = "state = 'waiting', retries_left = ?, after_s = 0, reason = ''"
            self._execute(f"UPDATE task SET {changes} WHERE {ended}", (retries, *chosen))
            # Also of rows that have retries left, or whose jobs still run: what all of these were sent with is mended.
            self._execute("UPDATE task SET forgiven = attempts WHERE state IN ('waiting', 'placed')")
            # Who asks for it again means now: what refused for a day would give the same rows up at once.
            self._execute("DELETE FROM block")
            self._execute("UPDATE region SET closed_s = 0, failures = 0, since_s = NULL")
            self._execute("UPDATE grid SET state = 'open', why = ''")
        return number

    # -- attempts

    def insert(self, attempt: Attempt) -> None:
        """Keep a new attempt, within a transaction."""
        # Not asdict, which copies every value deeply: it took longer than the statement.
        values = {field.name: getattr(attempt, field.name) for field in dataclasses.fields(attempt)}
        marks = ", ".join(f":{name}" for name in values)
        self._execute(f"INSERT INTO attempt ({', '.join(values)}) VALUES ({marks})", values)
        self.log(attempt.intended_s, "", attempt.state, "", task=attempt.task, attempt=attempt.name)

    def move(self, attempt: Attempt, now: float, **changes: Any) -> Attempt:
        """Change an attempt within a transaction; return it as it is then.

        Raises:
            LeaseLost: It is in another state than ``attempt`` says.
        """
        changed = dataclasses.replace(attempt, **changes)
        self._change("attempt", "name", attempt.name, attempt.state, changes)
        if changed.state is not attempt.state:
            text = f"{changed.ending}: {changed.reason}" if changed.ending else ""
            self.log(now, attempt.state, changed.state, text, task=attempt.task, attempt=attempt.name)
        return changed

    def _change(self, table: str, key: str, value: str, was: str, changes: Mapping[str, Any]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in changes)
        done = self._execute(
            f"UPDATE {table} SET {assignments} WHERE {key} = ? AND state = ?", (*changes.values(), value, was)
        )
        # The state that it was in is part of the condition: of two that change it one is told that it was late.
        if done.rowcount != 1:
            raise LeaseLost(f"{value} is no longer {was}: another process has changed the grid")

    def attempt(self, name: str) -> Attempt | None:
        """Return an attempt by its job's name; None where there is none."""
        row = self._execute("SELECT * FROM attempt WHERE name = ?", (name,)).fetchone()
        return attempt_record(row) if row else None

    def attempts_of(self, names: list[str]) -> dict[str, Attempt]:
        """Return the attempts of a few jobs by their names; a name that no attempt has is left out."""
        rows = self._execute(f"SELECT * FROM attempt WHERE name IN ({', '.join('?' * len(names))})", names)
        return {row["name"]: attempt_record(row) for row in rows}

    def has_attempt(self, name: str) -> bool:
        """Return whether a job's name is taken."""
        return self._execute("SELECT 1 FROM attempt WHERE name = ?", (name,)).fetchone() is not None

    def attempts(self, task: str | None = None) -> list[Attempt]:
        """Return the attempts of a task, or all, the earliest first."""
        rows = self._execute(
            "SELECT * FROM attempt WHERE task = ? ORDER BY number"
            if task
            else "SELECT * FROM attempt ORDER BY task, number",
            (task,) if task else (),
        )
        return [attempt_record(row) for row in rows]

    def open_attempts(self) -> list[Attempt]:
        """Return the attempts that have not ended."""
        rows = self._execute("SELECT * FROM attempt WHERE state <> 'ended' ORDER BY intended_s, name")
        return [attempt_record(row) for row in rows]

    def owed(self) -> list[Attempt]:
        """Return the attempts that Create is owed to: none was answered yet."""
        rows = self._execute("SELECT * FROM attempt WHERE state IN ('intended', 'maybe') ORDER BY intended_s, name")
        return [attempt_record(row) for row in rows]

    def seen_of(self, names: list[str]) -> dict[str, str]:
        """Return what was last seen of the jobs of a page by their names; ``ENDED`` of what was sent, and is over."""
        marks = ", ".join("?" * len(names))
        rows = self._execute(
            "SELECT name, iif(state = 'ended' AND sent_s IS NOT NULL, ?, seen) FROM attempt "
            f"WHERE name IN ({marks}) AND (state <> 'ended' OR sent_s IS NOT NULL)",
            (ENDED, *names),
        )
        return dict(rows.fetchall())

    def pending_since(self, region: str, before_s: float) -> list[Attempt]:
        """Return a region's attempts that were sent before a moment, and wait for their instances, as they may."""
        rows = self._execute(
            "SELECT * FROM attempt WHERE state IN ('sent', 'pending') AND wish = '' AND sent_s < ? AND region = ?",
            (before_s, region),
        )
        return [attempt_record(row) for row in rows]

    def unwanted(self) -> list[Attempt]:
        """Return the open attempts that are to stop."""
        rows = self._execute("SELECT * FROM attempt WHERE state <> 'ended' AND wish <> '' ORDER BY intended_s, name")
        return [attempt_record(row) for row in rows]

    def sent(self, region: str) -> dict[str, tuple[str, float]]:
        """Return what was last seen of the open attempts that a region took, and when it took them, by their names."""
        rows = self._execute(
            "SELECT name, seen, sent_s FROM attempt WHERE state <> 'ended' AND region = ? AND sent_s IS NOT NULL",
            (region,),
        )
        return {row[0]: (row[1], row[2]) for row in rows}

    def open_count(self) -> int:
        """Return how many attempts have not ended."""
        return int(self._execute("SELECT coalesce(sum(attempts), 0) FROM in_use").fetchone()[0])

    def is_watching(self, now: float) -> bool:
        """Whether a job may still be there, or land, that no open attempt stands for."""
        query = (
            "SELECT 1 FROM attempt WHERE watch_s > 0 AND watch_s > ? "
            "UNION ALL SELECT 1 FROM stray WHERE ended_s IS NULL LIMIT 1"
        )
        return self._execute(query, (now,)).fetchone() is not None

    def is_doubtful(self, region: str, now: float) -> bool:
        """Whether a region may have a job that no attempt stands for that it is known to have taken."""
        query = (
            "SELECT 1 FROM attempt WHERE state IN ('intended', 'maybe') AND region = :region "
            "UNION ALL SELECT 1 FROM attempt WHERE watch_s > 0 AND watch_s > :now AND region = :region "
            "UNION ALL SELECT 1 FROM stray WHERE ended_s IS NULL AND region = :region LIMIT 1"
        )
        return self._execute(query, {"region": region, "now": now}).fetchone() is not None

    def running(self) -> list[tuple[str, str]]:
        """Return region and name of the jobs that have their instances."""
        # "state <> 'ended'", here and below: only with this term SQLite uses the partial index of open attempts.
        rows = self._execute(
            "SELECT region, name FROM attempt WHERE state <> 'ended' AND state = 'running' ORDER BY region, name"
        )
        return [(row[0], row[1]) for row in rows]

    def ends_after(self, number: int) -> list[tuple[Attempt, int]]:
        """Return the attempts that ended after the event of a number, each with the number of its own event."""
        rows = self._execute(
            "SELECT attempt.*, event.seq FROM event JOIN attempt ON attempt.name = event.attempt "
            "WHERE event.seq > ? AND event.now = 'ended' ORDER BY event.seq",
            (number,),
        )
        return [(attempt_record(row), row["seq"]) for row in rows]

    def first_ends(self, limit: int) -> list[Attempt]:
        """Return the attempts that ended first, without those before their user asked for their rows again."""
        counts = "number > (SELECT forgiven FROM task WHERE key = attempt.task)"
        query = f"SELECT * FROM attempt WHERE state = 'ended' AND {counts} ORDER BY ended_s, name LIMIT ?"
        return [attempt_record(row) for row in self._execute(query, (limit,))]

    # -- what happened

    def log(
        self, now: float, was: str, state: str, text: str, *, task: str | None = None, attempt: str | None = None
    ) -> int:
        """Keep a line of what happened, within a transaction; return its number."""
        row = (now, task, attempt, str(was), str(state), text)
        done = self._execute("INSERT INTO event (at_s, task, attempt, was, now, text) VALUES (?, ?, ?, ?, ?, ?)", row)
        return int(done.lastrowid or 0)

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return what happened after the event of a number."""
        rows = self._execute("SELECT * FROM event WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit))
        return [Event(**dict(row)) for row in rows]

    def unwritten(self, limit: int = 1000) -> list[tuple[int, TaskRecord]]:
        """Return the tasks whose state was not yet written back, each with the number of its last event."""
        rows = self._execute(
            "SELECT task.*, seq FROM outbox JOIN task ON task.key = outbox.task ORDER BY seq LIMIT ?", (limit,)
        )
        return [(row["seq"], task_record(row)) for row in rows]

    def written(self, tasks: Iterable[tuple[int, str]]) -> None:
        """Take note of numbers and keys that were written back; what has changed since is to be written again."""
        with self.database.transaction("written", fenced=False):
            self.database.connection.executemany("DELETE FROM outbox WHERE seq = ? AND task = ?", tasks)
