"""How places and regions stand: what refused, until when it is left alone, what is learned of quotas.

What flows in are refusals and ends; what flows out is the ``Market`` that the placement is asked with.
"""

from collections import Counter

from raysm.grid.attempt import Attempt, AttemptState
from raysm.grid.classify import Verdict, quota_in
from raysm.grid.limiter import Limiter
from raysm.grid.place import Market, Place, Quota, place_of
from raysm.grid.store import Store

__all__ = ["close", "failed", "heard", "last_words", "learn_quota", "market", "set_quota", "succeeded"]

FIRST_PAUSE_S = 60.0
LONGEST_PAUSE_S = 3_600.0
"""A place that refuses is left alone for 1, 2, 4 … 60 minutes: waits of 28 to 58 were measured for GPUs."""

REGION_PAUSE_S = 15.0
LONGEST_REGION_PAUSE_S = 600.0

OTHERS_S = 600.0
"""Seconds for which it is believed what a refusal said of others' use of a quota: nothing but a further Create tells
that they have ended, and a row that waited for it to be told would wait for ever."""


def failed(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    """Leave a place alone that has refused, the longer the oftener it did so in a row."""
    place, execute = place_of(attempt), store.database.connection.execute
    key = _key(place)
    if verdict.ending.is_lack:
        _lacked(store, attempt)
    else:
        # A service that fails does so for those that would take the place of one that has ended, too.
        execute("DELETE FROM room WHERE region = ? AND instance_type = ? AND spot = ?", key)
    row = execute(
        "SELECT failures, since_s, until_s FROM block WHERE region = ? AND instance_type = ? AND spot = ?", key
    ).fetchone()
    # Jobs that were sent together are refused together: each of them would double the pause.
    if row is not None and row["until_s"] > now:
        return
    failures = 1 + (row["failures"] if row else 0)
    over = failures - verdict.ending.blocks_from
    pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(over, 6)) if over >= 0 else 0.0
    # Of a place that nobody asked for long nobody knows that it would have refused: a laptop slept, or no row waited.
    goes_on = row is not None and now - row["until_s"] <= LONGEST_PAUSE_S
    since_s = row["since_s"] if goes_on else now
    values = (*key, since_s, now + pause_s, failures, verdict.reason)
    execute("INSERT OR REPLACE INTO block VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    if pause_s:
        store.log(now, "", "blocked", f"{place} for {pause_s / 60:.0f} min: {verdict.reason}", attempt=attempt.name)


def succeeded(store: Store, attempt: Attempt) -> None:
    """Take note that a place gave its instances: what it refused before counts no more, and it has as many."""
    place, execute = place_of(attempt), store.database.connection.execute
    key = _key(place)
    execute("DELETE FROM block WHERE region = ? AND instance_type = ? AND spot = ?", key)
    # Of a place that never lacked any nobody asks how many it has: to count its jobs for each that begins or ends took
    # half of the time of a grid of 100,000 rows.
    if not execute("SELECT 1 FROM room WHERE region = ? AND instance_type = ? AND spot = ?", key).fetchone():
        return
    # One that has ended has just given its instances back.
    instances = 0 if attempt.state is AttemptState.RUNNING else attempt.count
    execute(
        "UPDATE room SET held = max(held, ?) WHERE region = ? AND instance_type = ? AND spot = ?",
        (_running(store, place) + instances, *key),
    )


def _lacked(store: Store, attempt: Attempt) -> None:
    """Keep how many instances a place has for this grid, which has just refused one job."""
    place, execute = place_of(attempt), store.database.connection.execute
    key = _key(place)
    row = execute("SELECT held FROM room WHERE region = ? AND instance_type = ? AND spot = ?", key).fetchone()
    most, running = (row[0] if row else 0), _running(store, place)
    # One more than it had was asked for: that says nothing of those, of which one may just have ended.
    was_probe = market_in_use(store)[place] + attempt.count > most
    execute("INSERT OR REPLACE INTO room VALUES (?, ?, ?, ?)", (*key, max(most, running) if was_probe else running))


def _running(store: Store, place: Place) -> int:
    """Return how many instances of this grid's jobs work in a place."""
    row = store.database.connection.execute(
        # "state <> 'ended'": only with this term SQLite uses the partial index of open attempts.
        "SELECT coalesce(sum(count), 0) FROM attempt WHERE state <> 'ended' AND state = 'running' AND region = ? "
        "AND instance_type = ? AND spot = ?",
        _key(place),
    ).fetchone()
    return int(row[0])


def learn_quota(store: Store, attempt: Attempt, reason: str, now: float) -> None:
    """Take from a refusal's words how many instances there may be, and how many of them others have."""
    learned = quota_in(reason)
    if learned is None:
        return
    place = place_of(attempt)
    ours = market_in_use(store)[place]
    # The refused attempt stands among ours by now, and is none of those that the service counts.
    others = max(0, learned.used - max(0, ours - attempt.count))
    set_quota(store, place, Quota(limit=learned.limit, used_by_others=others, source="error"), now)


def set_quota(store: Store, place: Place, quota: Quota, now: float) -> None:
    """Keep what is known of a quota, within a transaction."""
    store.database.connection.execute(
        "INSERT OR REPLACE INTO quota VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*_key(place), quota.limit, quota.used_by_others, quota.source, now),
    )


def close(store: Store, region: str, reason: str, now: float) -> None:
    """Send nothing to a region for a while: it does not answer, or does not let us in."""
    execute = store.database.connection.execute
    row = execute("SELECT failures, since_s, closed_s FROM region WHERE name = ?", (region,)).fetchone()
    if row is not None and row["closed_s"] > now:
        return
    failures = 1 + (row["failures"] if row else 0)
    pause_s = min(LONGEST_REGION_PAUSE_S, REGION_PAUSE_S * 2 ** min(failures - 1, 6))
    goes_on = row is not None and row["since_s"] is not None and now - row["closed_s"] <= LONGEST_REGION_PAUSE_S
    execute(
        "INSERT INTO region VALUES (?1, ?2, ?3, ?4, ?5, NULL) ON CONFLICT (name) DO UPDATE SET since_s = ?2, "
        "closed_s = ?3, failures = ?4, reason = ?5",
        (region, row["since_s"] if goes_on else now, now + pause_s, failures, reason),
    )
    store.log(now, "", "closed", f"{region} for {pause_s:.0f} s: {reason}")


def heard(store: Store, region: str, now: float, *, opens: bool = False) -> None:
    """Take note that a region has answered; ``opens``: and took a job, so that it is open again."""
    store.database.connection.execute(
        "INSERT INTO region VALUES (?1, NULL, 0, 0, '', ?2) ON CONFLICT (name) DO UPDATE SET heard_s = ?2, "
        "since_s = NULL" + (", closed_s = 0, failures = 0, reason = ''" if opens else ""),
        (region, now),
    )


def market_in_use(store: Store) -> Counter[Place]:
    """Return how many instances this grid's open attempts have, or are to have, by place."""
    rows = store.database.connection.execute(
        "SELECT region, instance_type, spot, sum(instances) FROM in_use GROUP BY 1, 2, 3 HAVING sum(instances) > 0"
    )
    return Counter({_place(row): int(row[3]) for row in rows})


def market(store: Store, limiter: Limiter, regions: list[str], now: float) -> Market:
    """Return what is known of all places at this moment."""
    execute = store.database.connection.execute
    closed = {row[0]: row[1] for row in execute("SELECT name, closed_s FROM region WHERE closed_s > ?", (now,))}
    for region in regions:
        wait_s = limiter.wait_s(region, "create", now)
        if wait_s > 0:
            closed[region] = max(closed.get(region, 0.0), now + wait_s)
    blocks = execute("SELECT region, instance_type, spot, until_s FROM block WHERE until_s > ?", (now,))
    rooms = execute("SELECT region, instance_type, spot, held FROM room")
    # Not where something of the grid runs: when that ends there is room again, however long it takes.
    refusing = execute(
        "SELECT region, instance_type, spot, since_s FROM block WHERE NOT EXISTS (SELECT 1 FROM attempt WHERE "
        "attempt.state <> 'ended' AND attempt.state = 'running' AND attempt.region = block.region "
        "AND attempt.instance_type = block.instance_type AND attempt.spot = block.spot)"
    )
    silent = execute("SELECT name, since_s FROM region WHERE since_s IS NOT NULL")
    quotas = execute(
        "SELECT region, instance_type, spot, instances, iif(learned_s > ?, used_by_others, 0), source FROM quota",
        (now - OTHERS_S,),
    )
    return Market(
        in_use=market_in_use(store),
        blocked={_place(row): row[3] for row in blocks},
        held={_place(row): row[3] for row in rooms},
        quotas={_place(row): Quota(limit=row[3], used_by_others=row[4], source=row[5]) for row in quotas},
        closed=closed,
        refusing={_place(row): row[3] for row in refusing},
        silent={row[0]: row[1] for row in silent},
    )


def last_words(store: Store, place: Place) -> str:
    """Return what a place said when it last refused, or why its region takes no job."""
    row = store.database.connection.execute(
        "SELECT reason FROM region WHERE name = ?1 AND since_s IS NOT NULL UNION ALL SELECT reason FROM block "
        "WHERE region = ?1 AND instance_type = ?2 AND spot = ?3 LIMIT 1",
        _key(place),
    ).fetchone()
    return str(row[0]) if row else ""


def _key(place: Place) -> tuple[str, str, bool]:
    """Return what a place's rows are found by, in the order of the tables' columns."""
    return place.region, place.instance_type, place.spot


def _place(row: "tuple[str, str, int, object]") -> Place:
    return Place(region=row[0], instance_type=row[1], spot=bool(row[2]))
