"""What a grid has spent, and may still have to: attempts that end flow in, dollars flow out.

Spent is what the service bills: seconds of each instance at the on-demand price, of spot capacity fewer of them. What
is not known is counted as unknown, never as nothing.
"""

from dataclasses import dataclass

from raysm.grid.attempt import Attempt
from raysm.grid.endings import ending
from raysm.grid.store import Store

__all__ = ["Money", "money", "settle", "settle_stray"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Money:
    """Dollars of one region, or of all."""

    spent_usd: float = 0.0
    """Billed, of all that has ended."""
    wasted_usd: float = 0.0
    """Of it, for attempts that brought nothing, and for jobs that nobody wanted."""
    again_usd: float = 0.0
    """Of what is no waste, at most, for work that was done again after an interruption of spot capacity."""
    saved_usd: float = 0.0
    """What spot capacity saved: seconds that were trained and not billed."""
    at_stake_usd: float = 0.0
    """What open attempts can cost at most, and those that may still land."""
    unpriced: int = 0
    """Jobs of which price or billed time is not known: they have cost something, too."""

    @property
    def worst_usd(self) -> float:
        """What all will have cost at most, if nothing more is sent."""
        return self.spent_usd + self.at_stake_usd


def money(store: Store, now: float, region: str | None = None) -> Money:
    """Return what a region has cost, or all of them."""
    execute = store.database.connection.execute
    spent = execute(
        "SELECT coalesce(sum(usd), 0), coalesce(sum(wasted_usd), 0), coalesce(sum(saved_usd), 0), "
        "coalesce(sum(again_usd), 0), coalesce(sum(unpriced), 0) FROM spent WHERE ?1 IS NULL OR region = ?1",
        (region,),
    ).fetchone()
    worst = "coalesce(usd_per_hour, 0) * count * max_runtime_s"
    staked = 0.0
    for part in (
        "usd_per_hour * instance_s / 3600) FROM in_use WHERE true",
        # Refused, but a Create whose answer was lost may still land. Where it has, its stray is counted instead.
        f"{worst} / 3600) FROM attempt WHERE watch_s > 0 AND watch_s > :now AND name NOT IN (SELECT name FROM stray)",
        f"{worst} / 3600) FROM stray WHERE ended_s IS NULL",
    ):
        query = f"SELECT sum({part} AND (:region IS NULL OR region = :region)"
        staked += execute(query, {"region": region, "now": now}).fetchone()[0] or 0.0
    names = ("spent_usd", "wasted_usd", "saved_usd", "again_usd", "unpriced")
    return Money(**dict(zip(names, spent, strict=True)), at_stake_usd=staked)


def settle(store: Store, attempt: Attempt) -> None:
    """Count what an attempt has cost, once, in the transaction in which it ends."""
    # What the service never took costs nothing, and nobody bills it.
    if attempt.sent_s is None:
        return
    price = (attempt.usd_per_hour or 0.0) * attempt.count / 3600
    saved = price * max(0.0, (attempt.training_s or 0.0) - (attempt.billable_s or 0.0)) if attempt.spot else 0.0
    _count(store, attempt, saved, is_waste=ending(attempt.ending).is_waste)


def settle_stray(store: Store, attempt: Attempt) -> None:
    """Count what a job has cost that nobody wanted."""
    _count(store, attempt, 0.0, is_waste=True)


def _count(store: Store, attempt: Attempt, saved: float, *, is_waste: bool) -> None:
    usd = attempt.usd or 0.0
    wasted, again = (usd, 0.0) if is_waste else (0.0, attempt.again_usd)
    store.database.connection.execute(
        "INSERT INTO spent VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (region) DO UPDATE SET usd = usd + ?2, "
        "wasted_usd = wasted_usd + ?3, saved_usd = saved_usd + ?4, again_usd = again_usd + ?5, "
        "unpriced = unpriced + ?6",
        (attempt.region, usd, wasted, saved, again, int(attempt.usd is None)),
    )
