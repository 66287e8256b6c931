"""The tables of a grid's store, and the frozen values that their rows become.

Tables are STRICT: SQLite refuses a value of another type than its column, instead of keeping it as
text.
"""

import dataclasses
import functools
import json
from dataclasses import dataclass
from typing import Any

from raysm.core.client.costs.cap import STOP_GRACE_S
from raysm.core.protocol.home import Clock
from raysm.core.request.codec import from_json
from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.row import Row, RowState
from raysm.features.grid.rules import Rules

VERSION = 14

SCHEMA = """
CREATE TABLE grid (
    name TEXT NOT NULL, run TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
    rules TEXT NOT NULL, template TEXT NOT NULL, source TEXT NOT NULL, created_s REAL NOT NULL,
    goes_on INTEGER NOT NULL DEFAULT 0, planned_low_usd REAL, planned_high_usd REAL,
    clock_speed REAL NOT NULL DEFAULT 1, clock_begun_s REAL NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE task (
    key TEXT PRIMARY KEY, position INTEGER NOT NULL, content TEXT NOT NULL,
    region TEXT, shape TEXT NOT NULL, priority INTEGER NOT NULL, expected_s REAL NOT NULL,
    state TEXT NOT NULL, retries_left INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    after_s REAL NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '',
    forgiven INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
-- The order in which rows are placed: a step reads the first rows of each shape (what its place
-- depends on).
CREATE INDEX waiting ON task (shape, priority DESC, expected_s DESC, position)
    WHERE state = 'waiting';
CREATE INDEX by_state ON task (state);

CREATE TABLE attempt (
    name TEXT PRIMARY KEY, task TEXT NOT NULL, number INTEGER NOT NULL,
    region TEXT NOT NULL, instance_type TEXT NOT NULL, count INTEGER NOT NULL,
    spot INTEGER NOT NULL, state TEXT NOT NULL, ending TEXT NOT NULL, reason TEXT NOT NULL,
    intended_s REAL NOT NULL, sent_s REAL, started_s REAL, ended_s REAL,
    training_s REAL, billable_s REAL,
    max_runtime_s INTEGER NOT NULL, usd_per_hour REAL, price_version TEXT NOT NULL,
    calls INTEGER NOT NULL, retry_s REAL NOT NULL, is_doubtful INTEGER NOT NULL,
    watch_s REAL NOT NULL, wish TEXT NOT NULL, asked_s REAL,
    seen TEXT NOT NULL, choice TEXT NOT NULL,
    interruptions INTEGER NOT NULL, interrupted_s REAL NOT NULL, waited_s REAL,
    UNIQUE (task, number)
) STRICT, WITHOUT ROWID;
-- The database itself refuses a second open attempt.
CREATE UNIQUE INDEX one_open ON attempt (task) WHERE state <> 'ended';
CREATE INDEX by_region ON attempt (region, intended_s) WHERE state <> 'ended';
CREATE INDEX owed ON attempt (intended_s) WHERE state IN ('intended', 'maybe');
CREATE INDEX pending ON attempt (sent_s) WHERE state IN ('sent', 'pending');
CREATE INDEX unwanted ON attempt (intended_s) WHERE wish <> '';
CREATE INDEX watched ON attempt (watch_s) WHERE watch_s > 0;
CREATE INDEX ends ON attempt (ended_s) WHERE state = 'ended';

-- Sums over open attempts, kept by the triggers below, since each step needs them and there may be
-- 20,000 attempts. Integers, so that a million additions and subtractions stay exact, and dollars
-- are computed last.
CREATE TABLE in_use (region TEXT, instance_type TEXT, spot INTEGER, usd_per_hour REAL,
    attempts INTEGER NOT NULL, instances INTEGER NOT NULL, instance_s INTEGER NOT NULL,
    PRIMARY KEY (region, instance_type, spot, usd_per_hour)) STRICT, WITHOUT ROWID;

CREATE TABLE stray (
    name TEXT PRIMARY KEY, task TEXT, region TEXT NOT NULL, count INTEGER NOT NULL,
    usd_per_hour REAL, max_runtime_s INTEGER NOT NULL, seen_s REAL NOT NULL, asked_s REAL,
    ended_s REAL, billable_s REAL
) STRICT, WITHOUT ROWID;

-- The rate that a job's program reports: the last value of each attempt, and the curve of the sum.
CREATE TABLE rate (attempt TEXT PRIMARY KEY, value REAL NOT NULL, at_s REAL NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE rate_history (at_s REAL PRIMARY KEY, value REAL NOT NULL, jobs INTEGER NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE spent (region TEXT PRIMARY KEY, usd REAL NOT NULL, wasted_usd REAL NOT NULL,
    saved_usd REAL NOT NULL, again_usd REAL NOT NULL, unpriced INTEGER NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE block (region TEXT, instance_type TEXT, spot INTEGER, since_s REAL NOT NULL,
    until_s REAL NOT NULL, failures INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (region, instance_type, spot)) STRICT, WITHOUT ROWID;
CREATE TABLE room (region TEXT, instance_type TEXT, spot INTEGER, held INTEGER NOT NULL,
    PRIMARY KEY (region, instance_type, spot)) STRICT, WITHOUT ROWID;
CREATE TABLE quota (region TEXT, instance_type TEXT, spot INTEGER, instances INTEGER NOT NULL,
    used_by_others INTEGER NOT NULL, source TEXT NOT NULL, learned_s REAL NOT NULL,
    PRIMARY KEY (region, instance_type, spot)) STRICT, WITHOUT ROWID;
CREATE TABLE region (name TEXT PRIMARY KEY, since_s REAL, closed_s REAL NOT NULL,
    failures INTEGER NOT NULL, reason TEXT NOT NULL, heard_s REAL) STRICT, WITHOUT ROWID;
CREATE TABLE lease (one INTEGER PRIMARY KEY CHECK (one = 1), owner TEXT NOT NULL,
    fence INTEGER NOT NULL, until_s REAL NOT NULL) STRICT;
CREATE TABLE event (seq INTEGER PRIMARY KEY, at_s REAL NOT NULL, task TEXT, attempt TEXT,
    was TEXT NOT NULL, now TEXT NOT NULL, text TEXT NOT NULL) STRICT;
CREATE INDEX ended ON event (seq) WHERE now = 'ended';
CREATE TABLE outbox (task TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""

MIGRATIONS = {13: "ALTER TABLE attempt ADD COLUMN waited_s REAL"}
"""What makes the tables of an earlier version those of this one."""

_ADD = f"""
    INSERT INTO in_use VALUES (NEW.region, NEW.instance_type, NEW.spot,
        coalesce(NEW.usd_per_hour, 0), 1, NEW.count,
        NEW.count * (NEW.max_runtime_s + {STOP_GRACE_S}))
    ON CONFLICT DO UPDATE SET attempts = attempts + 1, instances = instances + excluded.instances,
        instance_s = instance_s + excluded.instance_s;
"""
_SUBTRACT = f"""
    UPDATE in_use SET attempts = attempts - 1, instances = instances - OLD.count,
        instance_s = instance_s - OLD.count * (OLD.max_runtime_s + {STOP_GRACE_S})
    WHERE region = OLD.region AND instance_type = OLD.instance_type AND spot = OLD.spot
        AND usd_per_hour = coalesce(OLD.usd_per_hour, 0);
"""
TRIGGERS = (
    f"CREATE TRIGGER opens AFTER INSERT ON attempt WHEN NEW.state <> 'ended' BEGIN {_ADD} END",
    "CREATE TRIGGER settles AFTER UPDATE OF instance_type ON attempt WHEN OLD.state <> 'ended' "
    f"AND NEW.state <> 'ended' BEGIN {_SUBTRACT} {_ADD} END",
    "CREATE TRIGGER ends AFTER UPDATE OF state ON attempt WHEN OLD.state <> 'ended' "
    f"AND NEW.state = 'ended' BEGIN {_SUBTRACT} END",
)

NAME_CHARACTERS = 24
"""Characters of the grid's name in the names of its jobs, which have at most 63."""


def prefix_of(grid: str) -> str:
    """Return the beginning of the names of a grid's jobs; other grids may share it."""
    # Names of jobs have ASCII letters, digits and hyphens; names of grids have any letters.
    letters = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in grid)
    return f"{letters[:NAME_CHARACTERS].strip('-') or 'grid'}-"


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRecord:
    name: str
    run: str
    """Six characters that tell it from a later grid of the same name."""
    state: str
    why: str
    rules: Rules
    template: str
    source: str
    created_s: float
    goes_on: bool
    """True if the user continues the grid although its first rows failed (``--go-on``)."""
    clock: Clock
    """The clock of the service that its jobs were sent to; all its times are on this clock."""

    @property
    def prefix(self) -> str:
        """The beginning of the names of its jobs, unique to this grid."""
        return f"{prefix_of(self.name)}{self.run}-"

    def job_name(self, row: Row, number: int) -> str:
        """Return the name of a row's job.

        It is a function of key and number, so that the same attempt is the same job.
        """
        return f"{self.prefix}{row.key_hash}-a{number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRecord:
    row: Row
    state: RowState
    retries_left: int
    attempts: int
    reason: str
    forgiven: int = 0
    """Number of its last attempt when the user last queued it again; attempts up to this one no
    longer count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    seq: int
    at_s: float
    row_key: str | None
    attempt: str | None
    was: str
    now: str
    text: str


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Row)}


def shape_of(row: Row) -> str:
    """Return all that a row's place depends on, as text."""
    return json.dumps([row.region, row.instance_types, row.count, row.spot, row.image])


def row_columns(row: Row) -> tuple[Any, ...]:
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
        shape_of(row),
        row.priority,
        row.expected_s or 0.0,
    )


def grid_record(row: Any) -> GridRecord:
    values = {
        field.name: row[field.name]
        for field in dataclasses.fields(GridRecord)
        if field.name != "clock"
    }
    clock = Clock(speed=row["clock_speed"], begun_s=row["clock_begun_s"])
    return GridRecord(
        **values | {"rules": _rules(row["rules"]), "clock": clock, "goes_on": bool(row["goes_on"])}
    )


# Cached, since every step reads the grid several times.
@functools.lru_cache(maxsize=16)
def _rules(text: str) -> Rules:
    return from_json(Rules, json.loads(text), "rules")


# Cached, since every step reads the first waiting rows.
@functools.lru_cache(maxsize=1024)
def _row(text: str) -> Row:
    content = json.loads(text)
    content["instance_types"] = tuple(content.get("instance_types", ()))
    return Row(**content)


def row_record(values: Any) -> RowRecord:
    names = ("retries_left", "attempts", "reason", "forgiven")
    return RowRecord(
        row=_row(values["content"]),
        state=RowState(values["state"]),
        **{name: values[name] for name in names},
    )


_ATTEMPT = {
    field.name: "task" if field.name == "row_key" else field.name
    for field in dataclasses.fields(Attempt)
}
"""The column of each field of an attempt."""


def attempt_columns(attempt: Attempt) -> dict[str, Any]:
    # Not asdict, whose deep copies took longer than the statement.
    return {column: getattr(attempt, name) for name, column in _ATTEMPT.items()}


def attempt_record(values: Any) -> Attempt:
    fields = {name: values[column] for name, column in _ATTEMPT.items()}
    fields["state"] = AttemptState(values["state"])
    fields["spot"] = bool(values["spot"])
    fields["is_doubtful"] = bool(values["is_doubtful"])
    return Attempt(**fields)


def event_record(values: Any) -> Event:
    names = ("seq", "at_s", "attempt", "was", "now", "text")
    return Event(row_key=values["task"], **{name: values[name] for name in names})
