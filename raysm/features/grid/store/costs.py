"""What the jobs of a grid have cost and may still cost, and the rates that programs report."""

from collections.abc import Mapping
from dataclasses import dataclass

from raysm.core.client.costs.cap import STOP_GRACE_S
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.store.database import GridDatabase

MAX_RATES = 1_000
"""Most points of the curve of rates; a longer one loses every second point."""


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


class Costs:
    def __init__(self, database: GridDatabase) -> None:
        self._database = database

    def add(self, attempt: Attempt, saved_usd: float, *, is_waste: bool) -> None:
        usd = attempt.usd or 0.0
        wasted, again = (usd, 0.0) if is_waste else (0.0, attempt.again_usd)
        self._database.execute(
            "INSERT INTO spent (region, usd, wasted_usd, saved_usd, again_usd, unpriced) "
            "VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (region) DO UPDATE "
            "SET usd = usd + ?2, wasted_usd = wasted_usd + ?3, saved_usd = saved_usd + ?4, "
            "again_usd = again_usd + ?5, unpriced = unpriced + ?6",
            (attempt.region, usd, wasted, saved_usd, again, int(attempt.usd is None)),
        )

    def money(self, now: float, region: str | None = None) -> Money:
        spent = self._database.execute(
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
            staked += (
                self._database.execute(query, {"region": region, "now": now}).fetchone()[0] or 0.0
            )
        names = ("spent_usd", "wasted_usd", "saved_usd", "again_usd", "unpriced")
        return Money(**dict(zip(names, spent, strict=True)), at_stake_usd=staked)


class Rates:
    """The last rate of each attempt, and the curve of their sum."""

    def __init__(self, database: GridDatabase) -> None:
        self._database = database

    def keep(self, name: str, value: float, now: float) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO rate (attempt, value, at_s) VALUES (?, ?, ?)",
            (name, value, now),
        )

    def keep_all(self, values: Mapping[str, float], now: float) -> None:
        for name, value in values.items():
            self.keep(name, value, now)
        point = (now, sum(values.values()), len(values))
        self._database.execute(
            "INSERT OR REPLACE INTO rate_history (at_s, value, jobs) VALUES (?, ?, ?)", point
        )
        if self._database.value("SELECT count(*) FROM rate_history") > MAX_RATES:
            self._database.execute(
                "DELETE FROM rate_history WHERE at_s IN (SELECT at_s FROM (SELECT at_s, "
                "row_number() OVER (ORDER BY at_s) AS number FROM rate_history) WHERE number % 2 "
                "= 0) AND at_s <> (SELECT at_s FROM rate_history ORDER BY value DESC LIMIT 1)"
            )
