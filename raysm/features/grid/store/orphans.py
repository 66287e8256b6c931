"""Jobs that no open attempt counts: those that may still appear, and orphaned ones.

A refused attempt is watched if an earlier call for it may still be carried out. A job that appears
although no attempt of it is open is orphaned: it is recorded here, stopped, and paid for.
"""

from typing import Any

from raysm.features.grid.store.attempts import UNANSWERED
from raysm.features.grid.store.database import GridDatabase
from raysm.features.grid.store.events import EventLog


class Orphans:
    def __init__(self, database: GridDatabase, events: EventLog) -> None:
        self._database = database
        self._events = events

    # -- jobs that may appear

    def may_exist(self, now: float) -> bool:
        """Whether an orphaned job runs or may appear."""
        return self._database.exists(
            "SELECT 1 FROM attempt WHERE watch_s > 0 AND watch_s > ? "
            "UNION ALL SELECT 1 FROM stray WHERE ended_s IS NULL LIMIT 1",
            now,
        )

    def may_exist_in(self, region: str, now: float) -> bool:
        """Whether a region may have a job that the controller does not count as sent."""
        return self._database.exists(
            f"SELECT 1 FROM attempt WHERE {UNANSWERED} AND region = ?1 "
            "UNION ALL SELECT 1 FROM attempt WHERE watch_s > 0 AND watch_s > ?2 AND region = ?1 "
            "UNION ALL SELECT 1 FROM stray WHERE ended_s IS NULL AND region = ?1 LIMIT 1",
            region,
            now,
        )

    def oldest_s(self, region: str, now: float) -> float | None:
        """Return the time of the oldest job that List of a region must show, or None."""
        at_s = self._database.value(
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
        found = self._database.execute(
            "SELECT region FROM attempt WHERE state <> 'ended' "
            "UNION SELECT region FROM attempt WHERE watch_s > 0 AND watch_s > ? "
            "UNION SELECT region FROM stray WHERE ended_s IS NULL ORDER BY 1",
            (now,),
        )
        return [region for (region,) in found]

    # -- orphaned jobs

    def find(self, name: str) -> Any:
        return self._database.execute("SELECT * FROM stray WHERE name = ?", (name,)).fetchone()

    def add(
        self,
        name: str,
        region: str,
        now: float,
        *,
        row_key: str | None,
        count: int = 1,
        usd_per_hour: float | None = None,
        max_runtime_s: int = 0,
    ) -> None:
        """Record an orphaned job within a transaction."""
        columns = "name, task, region, count, usd_per_hour, max_runtime_s, seen_s"
        values = (name, row_key, region, count, usd_per_hour, max_runtime_s, now)
        self._database.execute(
            f"INSERT INTO stray ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", values
        )
        self._events.add(
            now, "", "stray", "an orphaned job is stopped", row_key=row_key, attempt=name
        )

    def open(self, region: str) -> dict[str, float]:
        """Return a region's orphaned jobs that have not ended, with the time each was seen."""
        query = "SELECT name, seen_s FROM stray WHERE ended_s IS NULL AND region = ?"
        return dict(self._database.execute(query, (region,)).fetchall())

    def to_stop(self, asked_before_s: float) -> list[tuple[str, str]]:
        """Return region and name of orphaned jobs last asked to stop before a time, or never."""
        found = self._database.execute(
            "SELECT region, name FROM stray WHERE ended_s IS NULL "
            "AND coalesce(asked_s, -1e18) <= ? ORDER BY seen_s",
            (asked_before_s,),
        )
        return [(region, name) for region, name in found]

    def change(self, name: str, **changes: float | None) -> None:
        for field, value in changes.items():
            self._database.execute(f"UPDATE stray SET {field} = ? WHERE name = ?", (value, name))
