"""The tables of a grid's store, and the frozen values that their rows become.

Tables are STRICT: SQLite refuses a value of another type than its column, instead of keeping it as text.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raysm.contract.home import Clock
from raysm.grid.attempt import Attempt, AttemptState, TaskState
from raysm.grid.rules import Rules
from raysm.grid.task import Task
from raysm.request.codec import from_json

__all__ = [
    "Event",
    "GridRecord",
    "SCHEMA",
    "TRIGGERS",
    "TaskRecord",
    "VERSION",
    "attempt_record",
    "grid_record",
    "task_record",
    "task_row",
]

VERSION = 12
"""Of the tables; a store of another version is not touched."""

SCHEMA = """
CREATE TABLE grid (
    name TEXT NOT NULL, run TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL, rules TEXT NOT NULL,
    template TEXT NOT NULL, template_digest TEXT NOT NULL, source TEXT NOT NULL, created_s REAL NOT NULL,
    goes_on INTEGER NOT NULL DEFAULT 0, planned_low_usd REAL, planned_high_usd REAL,
    clock_speed REAL NOT NULL DEFAULT 1, clock_begun_s REAL NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE task (
    key TEXT PRIMARY KEY, position INTEGER NOT NULL, content TEXT NOT NULL, digest TEXT NOT NULL,
    region TEXT, shape TEXT NOT NULL, priority INTEGER NOT NULL, expected_s REAL NOT NULL,
    state TEXT NOT NULL, retries_left INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    after_s REAL NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '', forgiven INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
-- The order in which tasks are placed: of each shape (what its place depends on) the head is asked alone.
CREATE INDEX waiting ON task (shape, priority DESC, expected_s DESC, position) WHERE state = 'waiting';
CREATE INDEX by_state ON task (state);
CREATE INDEX by_digest ON task (digest) WHERE state = 'done';

CREATE TABLE attempt (
    name TEXT PRIMARY KEY, task TEXT NOT NULL, number INTEGER NOT NULL,
    region TEXT NOT NULL, instance_type TEXT NOT NULL, count INTEGER NOT NULL, spot INTEGER NOT NULL,
    state TEXT NOT NULL, ending TEXT NOT NULL, reason TEXT NOT NULL,
    intended_s REAL NOT NULL, sent_s REAL, started_s REAL, ended_s REAL, training_s REAL, billable_s REAL,
    max_runtime_s INTEGER NOT NULL, usd_per_hour REAL, price_version TEXT NOT NULL,
    calls INTEGER NOT NULL, retry_s REAL NOT NULL, is_doubtful INTEGER NOT NULL, watch_s REAL NOT NULL,
    wish TEXT NOT NULL, asked_s REAL,
    seen TEXT NOT NULL, choice TEXT NOT NULL,
    interruptions INTEGER NOT NULL, interrupted_s REAL NOT NULL,
    UNIQUE (task, number)
) STRICT, WITHOUT ROWID;
-- Not a rule of the program alone: the database itself refuses a second open attempt.
CREATE UNIQUE INDEX one_open ON attempt (task) WHERE state <> 'ended';
CREATE INDEX by_region ON attempt (region, intended_s) WHERE state <> 'ended';
CREATE INDEX owed ON attempt (intended_s) WHERE state IN ('intended', 'maybe');
CREATE INDEX pending ON attempt (sent_s) WHERE state IN ('sent', 'pending');
CREATE INDEX unwanted ON attempt (intended_s) WHERE wish <> '';
CREATE INDEX watched ON attempt (watch_s) WHERE watch_s > 0;
CREATE INDEX ends ON attempt (ended_s) WHERE state = 'ended';

-- Of the open attempts alone, kept by the triggers below: each step asks for it, and there may be 20,000 of them.
-- Whole numbers, so that what is added and taken away a million times is exact: dollars are multiplied out last.
CREATE TABLE in_use (region TEXT, instance_type TEXT, spot INTEGER, usd_per_hour REAL, attempts INTEGER NOT NULL,
    instances INTEGER NOT NULL, instance_s INTEGER NOT NULL,
    PRIMARY KEY (region, instance_type, spot, usd_per_hour)) STRICT, WITHOUT ROWID;

CREATE TABLE stray (
    name TEXT PRIMARY KEY, task TEXT, region TEXT NOT NULL, count INTEGER NOT NULL, usd_per_hour REAL,
    max_runtime_s INTEGER NOT NULL, seen_s REAL NOT NULL, asked_s REAL, ended_s REAL, billable_s REAL
) STRICT, WITHOUT ROWID;

-- What a job's own program says that it does in a second: of each attempt the last value, of all together a curve.
CREATE TABLE rate (attempt TEXT PRIMARY KEY, value REAL NOT NULL, at_s REAL NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE rate_history (at_s REAL PRIMARY KEY, value REAL NOT NULL, jobs INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE spent (region TEXT PRIMARY KEY, usd REAL NOT NULL, wasted_usd REAL NOT NULL, saved_usd REAL NOT NULL,
    again_usd REAL NOT NULL, unpriced INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE block (region TEXT, instance_type TEXT, spot INTEGER, since_s REAL NOT NULL, until_s REAL NOT NULL,
    failures INTEGER NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (region, instance_type, spot)) STRICT, WITHOUT ROWID;
CREATE TABLE room (region TEXT, instance_type TEXT, spot INTEGER, held INTEGER NOT NULL,
    PRIMARY KEY (region, instance_type, spot)) STRICT, WITHOUT ROWID;
CREATE TABLE quota (region TEXT, instance_type TEXT, spot INTEGER, instances INTEGER NOT NULL,
    used_by_others INTEGER NOT NULL, source TEXT NOT NULL, learned_s REAL NOT NULL,
    PRIMARY KEY (region, instance_type, spot)) STRICT, WITHOUT ROWID;
CREATE TABLE region (name TEXT PRIMARY KEY, since_s REAL, closed_s REAL NOT NULL, failures INTEGER NOT NULL,
    reason TEXT NOT NULL, heard_s REAL) STRICT, WITHOUT ROWID;
CREATE TABLE lease (one INTEGER PRIMARY KEY CHECK (one = 1), owner TEXT NOT NULL, fence INTEGER NOT NULL,
    until_s REAL NOT NULL) STRICT;
CREATE TABLE event (seq INTEGER PRIMARY KEY, at_s REAL NOT NULL, task TEXT, attempt TEXT, was TEXT NOT NULL,
    now TEXT NOT NULL, text TEXT NOT NULL) STRICT;
CREATE INDEX ended ON event (seq) WHERE now = 'ended';
CREATE TABLE outbox (task TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""

TRIGGERS = (
    """
    CREATE TRIGGER opens AFTER INSERT ON attempt WHEN NEW.state <> 'ended' BEGIN
        INSERT INTO in_use VALUES (NEW.region, NEW.instance_type, NEW.spot, coalesce(NEW.usd_per_hour, 0), 1, NEW.count,
            NEW.count * NEW.max_runtime_s)
        ON CONFLICT DO UPDATE SET attempts = attempts + 1, instances = instances + excluded.instances,
            instance_s = instance_s + excluded.instance_s;
    END
    """,
    """
    CREATE TRIGGER settles AFTER UPDATE OF instance_type ON attempt
    WHEN OLD.state <> 'ended' AND NEW.state <> 'ended' BEGIN
        UPDATE in_use SET attempts = attempts - 1, instances = instances - OLD.count,
            instance_s = instance_s - OLD.count * OLD.max_runtime_s
        WHERE region = OLD.region AND instance_type = OLD.instance_type AND spot = OLD.spot
            AND usd_per_hour = coalesce(OLD.usd_per_hour, 0);
        INSERT INTO in_use VALUES (NEW.region, NEW.instance_type, NEW.spot, coalesce(NEW.usd_per_hour, 0), 1, NEW.count,
            NEW.count * NEW.max_runtime_s)
        ON CONFLICT DO UPDATE SET attempts = attempts + 1, instances = instances + excluded.instances,
            instance_s = instance_s + excluded.instance_s;
    END
    """,
    """
    CREATE TRIGGER ends AFTER UPDATE OF state ON attempt WHEN OLD.state <> 'ended' AND NEW.state = 'ended' BEGIN
        UPDATE in_use SET attempts = attempts - 1, instances = instances - OLD.count,
            instance_s = instance_s - OLD.count * OLD.max_runtime_s
        WHERE region = OLD.region AND instance_type = OLD.instance_type AND spot = OLD.spot
            AND usd_per_hour = coalesce(OLD.usd_per_hour, 0);
    END
    """,
)
"""What keeps ``in_use`` true: the database itself, whichever statement changes an attempt."""


NAME_CHARACTERS = 24
"""Of the grid's name in the names of its jobs, which have 63."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRecord:
    """The grid as a whole."""

    name: str
    """As the user named it."""
    run: str
    """Six characters that tell it from a later grid of the same name."""
    state: str
    """``open``, ``paused``, ``stopping`` or ``closed``."""
    why: str
    """Why it is paused; empty otherwise."""
    rules: Rules
    """What holds for all of it."""
    template: str
    """The request of which each task's is made, as JSON."""
    source: str
    """Where the rows come from, as JSON."""
    created_s: float
    """When it was made."""
    goes_on: bool
    """Whether the user has said that it goes on although its first tasks failed."""
    clock: Clock
    """By which all of its moments are told, whoever looks at it: that of the service that its jobs were sent to."""

    @property
    def prefix(self) -> str:
        """With what the names of all its jobs begin, and no other grid's."""
        # Names of jobs have ASCII letters, digits and hyphens, 63 in all; users' names of grids have anything.
        letters = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in self.name)
        return f"{letters[:NAME_CHARACTERS].strip('-') or 'grid'}-{self.run}-"

    def job_name(self, task: Task, number: int) -> str:
        """Return the name of a task's job: of its key and number alone, so that the same try is the same job."""
        return f"{self.prefix}{task.key_hash}-a{number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRecord:
    """A task, and what became of it."""

    task: Task
    """The row."""
    state: TaskState
    """Where it stands."""
    retries_left: int
    """Tries that it has left where its own program fails."""
    attempts: int
    """Number of its last attempt."""
    reason: str
    """Why it failed, waits or is impossible."""
    forgiven: int = 0
    """Number of its last attempt when its user asked for it again: up to that one none counts any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """A line of the log that a person reads."""

    seq: int
    at_s: float
    task: str | None
    attempt: str | None
    was: str
    now: str
    text: str


def task_row(task: Task, template_digest: str, done: Callable[[str], bool] | None, retries: int) -> tuple[Any, ...]:
    """Return a task as its first row; see ``Store.add``."""
    defaults = {field.name: field.default for field in dataclasses.fields(Task)}
    content = {
        field.name: value
        for field in dataclasses.fields(Task)
        # Only what the row says: of 100,000 rows all else would be most of the file.
        if (value := getattr(task, field.name)) != defaults[field.name] and value != {}
    }
    digest = f"{template_digest}{task.digest}"
    state = TaskState.SKIPPED if done is not None and done(digest) else TaskState.WAITING
    shape = json.dumps([task.region, task.instance_types, task.count, task.spot, task.image])
    return (
        task.key, task.position, json.dumps(content), digest, task.region, shape, task.priority,
        task.expected_s or 0.0, state.value, retries,
    )  # fmt: skip


def grid_record(row: Any) -> GridRecord:
    """Return the row of the grid as a value."""
    values = {field.name: row[field.name] for field in dataclasses.fields(GridRecord) if field.name != "clock"}
    rules, clock = _rules(row["rules"]), Clock(speed=row["clock_speed"], begun_s=row["clock_begun_s"])
    # SQLite knows no truth values: what a STRICT table gives back is 0 or 1.
    return GridRecord(**values | {"rules": rules, "clock": clock, "goes_on": bool(row["goes_on"])})


@functools.lru_cache(maxsize=16)
def _rules(text: str) -> Rules:
    # Every step asks for the grid several times, and its rules change when a user says so.
    return from_json(Rules, json.loads(text), "rules")


@functools.lru_cache(maxsize=1024)
def _task(text: str) -> Task:
    # Those that wait are read whenever a place is looked for, and of most of them nothing becomes that time.
    content = json.loads(text)
    content["instance_types"] = tuple(content.get("instance_types", ()))
    return Task(**content)


def task_record(row: Any) -> TaskRecord:
    """Return a row of the table of tasks as a value."""
    return TaskRecord(
        task=_task(row["content"]),
        state=TaskState(row["state"]),
        retries_left=row["retries_left"],
        attempts=row["attempts"],
        reason=row["reason"],
        forgiven=row["forgiven"],
    )


_ATTEMPT = tuple(field.name for field in dataclasses.fields(Attempt))


def attempt_record(row: Any) -> Attempt:
    """Return a row of the table of attempts as a value."""
    values = {name: row[name] for name in _ATTEMPT}
    values["state"] = AttemptState(row["state"])
    values["spot"], values["is_doubtful"] = bool(row["spot"]), bool(row["is_doubtful"])
    return Attempt(**values)
