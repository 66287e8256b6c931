"""The tables of a grid's file.

Tables are STRICT: SQLite refuses a value of another type than its column, instead of keeping it as
text. A row of the grid is a ``task`` here, and an orphaned job a ``stray``: files of earlier
versions have these names.
"""

from raysm.core.client.costs.cap import STOP_GRACE_S

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
-- heard_s is unused: earlier versions that open this file write it.
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
"""By version, the statement that makes its tables those of the next version."""

_ADD = f"""
    INSERT INTO in_use
        (region, instance_type, spot, usd_per_hour, attempts, instances, instance_s)
    VALUES (NEW.region, NEW.instance_type, NEW.spot, coalesce(NEW.usd_per_hour, 0), 1, NEW.count,
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
