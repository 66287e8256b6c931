-- A grid with two rows and a running job, which raysm wrote when its tables were of version 13.
BEGIN TRANSACTION;
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
INSERT INTO "attempt" VALUES('drives-5xzzmj-f7xx5czv-a1','stuttgart',1,'us-east-1','ml.m5.large',2,0,'running','','',1001.0,1002.0,1290.0,NULL,NULL,NULL,86400,0.115,'2026-11',1,0.0,0,0.0,'',NULL,'','',0,0.0);
CREATE TABLE block (region TEXT, instance_type TEXT, spot INTEGER, since_s REAL NOT NULL, until_s REAL NOT NULL,
    failures INTEGER NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (region, instance_type, spot)) STRICT, WITHOUT ROWID;
CREATE TABLE event (seq INTEGER PRIMARY KEY, at_s REAL NOT NULL, task TEXT, attempt TEXT, was TEXT NOT NULL,
    now TEXT NOT NULL, text TEXT NOT NULL) STRICT;
INSERT INTO "event" VALUES(1,1001.0,'stuttgart','drives-5xzzmj-f7xx5czv-a1','','intended','');
INSERT INTO "event" VALUES(2,1001.0,'stuttgart',NULL,'waiting','placed','');
INSERT INTO "event" VALUES(3,1002.0,'stuttgart','drives-5xzzmj-f7xx5czv-a1','intended','sent','');
INSERT INTO "event" VALUES(4,1300.0,'stuttgart','drives-5xzzmj-f7xx5czv-a1','sent','running','');
CREATE TABLE grid (
    name TEXT NOT NULL, run TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL, rules TEXT NOT NULL,
    template TEXT NOT NULL, source TEXT NOT NULL, created_s REAL NOT NULL,
    goes_on INTEGER NOT NULL DEFAULT 0, planned_low_usd REAL, planned_high_usd REAL,
    clock_speed REAL NOT NULL DEFAULT 1, clock_begun_s REAL NOT NULL DEFAULT 0
) STRICT;
INSERT INTO "grid" VALUES('drives','5xzzmj','open','','{"parallel": 200, "retries": 2, "budget_usd": 50.0, "move_data": false, "any_type": false, "write_back": false, "rate": null, "brake": 3, "give_up_s": 86400.0, "patience_s": 3600.0}','{}','{}',1000.0,0,NULL,NULL,1.0,0.0);
CREATE TABLE in_use (region TEXT, instance_type TEXT, spot INTEGER, usd_per_hour REAL, attempts INTEGER NOT NULL,
    instances INTEGER NOT NULL, instance_s INTEGER NOT NULL,
    PRIMARY KEY (region, instance_type, spot, usd_per_hour)) STRICT, WITHOUT ROWID;
INSERT INTO "in_use" VALUES('us-east-1','ml.m5.large',0,0.115,1,2,173040);
CREATE TABLE lease (one INTEGER PRIMARY KEY CHECK (one = 1), owner TEXT NOT NULL, fence INTEGER NOT NULL,
    until_s REAL NOT NULL) STRICT;
INSERT INTO "lease" VALUES(1,'["host", 1, ""]',1,0.0);
CREATE TABLE outbox (task TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "outbox" VALUES('stuttgart',2);
CREATE TABLE quota (region TEXT, instance_type TEXT, spot INTEGER, instances INTEGER NOT NULL,
    used_by_others INTEGER NOT NULL, source TEXT NOT NULL, learned_s REAL NOT NULL,
    PRIMARY KEY (region, instance_type, spot)) STRICT, WITHOUT ROWID;
CREATE TABLE rate (attempt TEXT PRIMARY KEY, value REAL NOT NULL, at_s REAL NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE rate_history (at_s REAL PRIMARY KEY, value REAL NOT NULL, jobs INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE region (name TEXT PRIMARY KEY, since_s REAL, closed_s REAL NOT NULL, failures INTEGER NOT NULL,
    reason TEXT NOT NULL, heard_s REAL) STRICT, WITHOUT ROWID;
CREATE TABLE room (region TEXT, instance_type TEXT, spot INTEGER, held INTEGER NOT NULL,
    PRIMARY KEY (region, instance_type, spot)) STRICT, WITHOUT ROWID;
CREATE TABLE spent (region TEXT PRIMARY KEY, usd REAL NOT NULL, wasted_usd REAL NOT NULL, saved_usd REAL NOT NULL,
    again_usd REAL NOT NULL, unpriced INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE stray (
    name TEXT PRIMARY KEY, task TEXT, region TEXT NOT NULL, count INTEGER NOT NULL, usd_per_hour REAL,
    max_runtime_s INTEGER NOT NULL, seen_s REAL NOT NULL, asked_s REAL, ended_s REAL, billable_s REAL
) STRICT, WITHOUT ROWID;
CREATE TABLE task (
    key TEXT PRIMARY KEY, position INTEGER NOT NULL, content TEXT NOT NULL,
    region TEXT, shape TEXT NOT NULL, priority INTEGER NOT NULL, expected_s REAL NOT NULL,
    state TEXT NOT NULL, retries_left INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    after_s REAL NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '', forgiven INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
INSERT INTO "task" VALUES('stuttgart',0,'{"key": "stuttgart", "parameters": {"lr": 0.1}, "instance_types": ["ml.m5.large"], "inputs": {"data": "s3://bucket/stuttgart"}}',NULL,'[null, ["ml.m5.large"], null, null, null]',0,0.0,'placed',2,1,0.0,'',0);
INSERT INTO "task" VALUES('ulm',1,'{"key": "ulm", "position": 1, "parameters": {"lr": 0.2}}',NULL,'[null, [], null, null, null]',0,0.0,'waiting',2,0,0.0,'',0);
CREATE INDEX waiting ON task (shape, priority DESC, expected_s DESC, position) WHERE state = 'waiting';
CREATE INDEX by_state ON task (state);
CREATE UNIQUE INDEX one_open ON attempt (task) WHERE state <> 'ended';
CREATE INDEX by_region ON attempt (region, intended_s) WHERE state <> 'ended';
CREATE INDEX owed ON attempt (intended_s) WHERE state IN ('intended', 'maybe');
CREATE INDEX pending ON attempt (sent_s) WHERE state IN ('sent', 'pending');
CREATE INDEX unwanted ON attempt (intended_s) WHERE wish <> '';
CREATE INDEX watched ON attempt (watch_s) WHERE watch_s > 0;
CREATE INDEX ends ON attempt (ended_s) WHERE state = 'ended';
CREATE INDEX ended ON event (seq) WHERE now = 'ended';
CREATE TRIGGER opens AFTER INSERT ON attempt WHEN NEW.state <> 'ended' BEGIN
    INSERT INTO in_use VALUES (NEW.region, NEW.instance_type, NEW.spot, coalesce(NEW.usd_per_hour, 0), 1, NEW.count,
        NEW.count * (NEW.max_runtime_s + 120))
    ON CONFLICT DO UPDATE SET attempts = attempts + 1, instances = instances + excluded.instances,
        instance_s = instance_s + excluded.instance_s;
 END;
CREATE TRIGGER settles AFTER UPDATE OF instance_type ON attempt WHEN OLD.state <> 'ended' AND NEW.state <> 'ended' BEGIN
    UPDATE in_use SET attempts = attempts - 1, instances = instances - OLD.count,
        instance_s = instance_s - OLD.count * (OLD.max_runtime_s + 120)
    WHERE region = OLD.region AND instance_type = OLD.instance_type AND spot = OLD.spot
        AND usd_per_hour = coalesce(OLD.usd_per_hour, 0);

    INSERT INTO in_use VALUES (NEW.region, NEW.instance_type, NEW.spot, coalesce(NEW.usd_per_hour, 0), 1, NEW.count,
        NEW.count * (NEW.max_runtime_s + 120))
    ON CONFLICT DO UPDATE SET attempts = attempts + 1, instances = instances + excluded.instances,
        instance_s = instance_s + excluded.instance_s;
 END;
CREATE TRIGGER ends AFTER UPDATE OF state ON attempt WHEN OLD.state <> 'ended' AND NEW.state = 'ended' BEGIN
    UPDATE in_use SET attempts = attempts - 1, instances = instances - OLD.count,
        instance_s = instance_s - OLD.count * (OLD.max_runtime_s + 120)
    WHERE region = OLD.region AND instance_type = OLD.instance_type AND spot = OLD.spot
        AND usd_per_hour = coalesce(OLD.usd_per_hour, 0);
 END;
COMMIT;
PRAGMA user_version = 13;
