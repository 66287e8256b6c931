"""The known state of places and regions, from which a ``Market`` is made.

It holds backoffs after refusals, held instances and quotas. ``retry_policy`` says how long a
backoff lasts.

Functions that write expect to run inside the caller's transaction.
"""

import sqlite3
from collections import Counter

from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.endings import Verdict, parse_quota
from raysm.features.grid.limiter import Limiter
from raysm.features.grid.market import Market, Place, Quota, place_of
from raysm.features.grid.retry_policy import (
    MAX_PLACE_BACKOFF_S,
    MAX_REGION_BACKOFF_S,
    PLACE_BACKOFF_S,
    REGION_BACKOFF_S,
    Backoff,
    next_backoff,
)
from raysm.features.grid.store.store import Store

OTHERS_S = 600.0
"""Seconds for which the use of a quota by other jobs, as a refusal states it, is believed: only
another Create would show that it has ended."""

KEY = "region, instance_type, spot"
WHERE = "WHERE region = ? AND instance_type = ? AND spot = ?"


def back_off_place(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    """Send nothing to a place for a while, since it gave no instances or its jobs fail."""
    place = place_of(attempt)
    execute = store.database.execute
    key = _key(place)
    if verdict.ending.is_capacity:
        # The number of instances that the place holds for this grid. A refused request for more
        # does not lower it.
        held = _held(store, place) or 0
        running = _running(store, place)
        was_probe = market_in_use(store)[place] + attempt.count > held
        held = max(held, running) if was_probe else running
        execute(f"INSERT OR REPLACE INTO room ({KEY}, held) VALUES (?, ?, ?, ?)", (*key, held))
    else:
        # After a service error, a full quota or an unknown refusal, the number says nothing: even a
        # job that would replace an ended one may be refused.
        execute(f"DELETE FROM room {WHERE}", key)
    found = execute(f"SELECT failures, since_s, until_s FROM block {WHERE}", key).fetchone()
    backoff = next_backoff(
        _backoff(found),
        now,
        first_s=PLACE_BACKOFF_S,
        max_s=MAX_PLACE_BACKOFF_S,
        threshold=verdict.ending.backoff_after,
    )
    if backoff is None:
        return
    execute(
        f"INSERT OR REPLACE INTO block ({KEY}, since_s, until_s, failures, reason) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*key, backoff.since_s, backoff.until_s, backoff.failures, verdict.reason),
    )
    if backoff.until_s > now:
        text = f"{place} for {(backoff.until_s - now) / 60:.0f} min: {verdict.reason}"
        store.events.add(now, "", "blocked", text, attempt=attempt.name)


def record_start(store: Store, attempt: Attempt) -> None:
    """Record that a place gave instances: end its backoff, and raise the number that it holds."""
    place = place_of(attempt)
    execute = store.database.execute
    key = _key(place)
    execute(f"DELETE FROM block {WHERE}", key)
    # Skip the count for places that never ran out of capacity: it took half the time of a grid of
    # 100,000 rows.
    if _held(store, place) is None:
        return
    # _running does not count an attempt that has ended.
    instances = 0 if attempt.state is AttemptState.RUNNING else attempt.count
    execute(
        f"UPDATE room SET held = max(held, ?) {WHERE}", (_running(store, place) + instances, *key)
    )


def _held(store: Store, place: Place) -> int | None:
    row = store.database.execute(f"SELECT held FROM room {WHERE}", _key(place)).fetchone()
    return None if row is None else int(row[0])


def _running(store: Store, place: Place) -> int:
    # Only with "state <> 'ended'" does SQLite use the partial index of open attempts.
    query = (
        f"SELECT coalesce(sum(count), 0) FROM attempt {WHERE} "
        "AND state <> 'ended' AND state = 'running'"
    )
    return int(store.database.execute(query, _key(place)).fetchone()[0])


def learn_quota(store: Store, attempt: Attempt, reason: str, now: float) -> None:
    learned = parse_quota(reason)
    if learned is not None:
        place = place_of(attempt)
        # market_in_use counts the refused attempt, but the service does not.
        limit, used = learned
        others = max(0, used - max(0, market_in_use(store)[place] - attempt.count))
        set_quota(store, place, Quota(limit=limit, used_by_others=others, source="error"), now)


def set_quota(store: Store, place: Place, quota: Quota, now: float) -> None:
    store.database.execute(
        f"INSERT OR REPLACE INTO quota ({KEY}, instances, used_by_others, source, learned_s) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*_key(place), quota.limit, quota.used_by_others, quota.source, now),
    )


def back_off_region(store: Store, region: str, reason: str, now: float) -> None:
    """Send nothing to a region for a while, since it does not answer or denies access."""
    execute = store.database.execute
    found = execute(
        "SELECT failures, since_s, closed_s AS until_s FROM region WHERE name = ?", (region,)
    ).fetchone()
    backoff = next_backoff(
        _backoff(found), now, first_s=REGION_BACKOFF_S, max_s=MAX_REGION_BACKOFF_S
    )
    if backoff is None:
        return
    execute(
        "INSERT INTO region (name, since_s, closed_s, failures, reason) "
        "VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (name) DO UPDATE "
        "SET since_s = ?2, closed_s = ?3, failures = ?4, reason = ?5",
        (region, backoff.since_s, backoff.until_s, backoff.failures, reason),
    )
    store.events.add(now, "", "closed", f"{region} for {backoff.until_s - now:.0f} s: {reason}")


def record_answer(store: Store, region: str, *, opens: bool = False) -> None:
    """Record that a region has answered; with ``opens`` it accepted a job and its backoff ends."""
    ended = ", closed_s = 0, failures = 0, reason = ''" if opens else ""
    store.database.execute(f"UPDATE region SET since_s = NULL{ended} WHERE name = ?", (region,))


def market_in_use(store: Store) -> Counter[Place]:
    rows = store.database.execute(
        "SELECT region, instance_type, spot, sum(instances) FROM in_use GROUP BY 1, 2, 3 "
        "HAVING sum(instances) > 0"
    )
    return Counter({_place(row): int(row[3]) for row in rows})


def read_market(store: Store, limiter: Limiter, regions: list[str], now: float) -> Market:
    execute = store.database.execute
    # What is closed for longer than any backoff lasts was closed by a clock that was set back
    # since.
    found = execute(
        "SELECT name, closed_s FROM region WHERE closed_s > ? AND closed_s <= ?",
        (now, now + MAX_REGION_BACKOFF_S),
    )
    closed = {row[0]: row[1] for row in found}
    for region in regions:
        wait_s = limiter.wait_s(region, "create", now)
        if wait_s > 0:
            closed[region] = max(closed.get(region, 0.0), now + wait_s)
    blocks = execute(
        "SELECT region, instance_type, spot, until_s FROM block WHERE until_s > ? AND until_s <= ?",
        (now, now + MAX_PLACE_BACKOFF_S),
    )
    rooms = execute("SELECT region, instance_type, spot, held FROM room")
    # Leave out places where a job of the grid runs: when it ends, there is room again.
    refusing = execute(
        "SELECT region, instance_type, spot, since_s FROM block WHERE NOT EXISTS (SELECT 1 "
        "FROM attempt WHERE attempt.state <> 'ended' AND attempt.state = 'running' "
        "AND attempt.region = block.region AND attempt.instance_type = block.instance_type "
        "AND attempt.spot = block.spot)"
    )
    silent = execute("SELECT name, since_s FROM region WHERE since_s IS NOT NULL")
    quotas = execute(
        "SELECT region, instance_type, spot, instances, iif(learned_s > ?, "
        "used_by_others, 0), source FROM quota",
        (now - OTHERS_S,),
    )
    return Market(
        in_use=market_in_use(store),
        blocked={_place(row): row[3] for row in blocks},
        held={_place(row): row[3] for row in rooms},
        quotas={
            _place(row): Quota(limit=row[3], used_by_others=row[4], source=row[5]) for row in quotas
        },
        closed=closed,
        refusing={_place(row): row[3] for row in refusing},
        silent={row[0]: row[1] for row in silent},
    )


def last_refusal(store: Store, place: Place) -> str:
    row = store.database.execute(
        "SELECT reason FROM region WHERE name = ?1 AND since_s IS NOT NULL UNION ALL "
        "SELECT reason FROM block WHERE region = ?1 AND instance_type = ?2 AND spot = ?3 LIMIT 1",
        _key(place),
    ).fetchone()
    return str(row[0]) if row else ""


def _backoff(found: sqlite3.Row | None) -> Backoff | None:
    return None if found is None else Backoff(**dict(found))


def _key(place: Place) -> tuple[str, str, bool]:
    return place.region, place.instance_type, place.spot


def _place(row: "tuple[str, str, int, object]") -> Place:
    return Place(region=row[0], instance_type=row[1], spot=bool(row[2]))
