"""A grid at one moment, as people look at it: a store flows in, counts, dollars and reasons flow out.

Only sums leave the database: a screen of 100,000 rows has to be there as fast as one of ten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raysm.contract.instance_types import gpu_count
from raysm.grid.attempt import TaskState
from raysm.grid.gauge import unit
from raysm.grid.ledger import Money, money
from raysm.grid.place import Place
from raysm.grid.store import Store

__all__ = ["RegionView", "Snapshot", "snapshot"]

HOUR_S = 3600.0

POINTS = 200
"""Of the curve of done rows: one in two or three pixels."""

MOST_REASONS = 12
"""Of failed rows that are told; the rows themselves have all."""

MOST_BLOCKS = 20

STALE_S = 600.0
"""Seconds after which what a job said that it does in a second counts no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionView:
    """One region."""

    region: str
    """``us-east-1``."""
    open: Mapping[str, int]
    """Attempts that have not ended, by their state."""
    ended: Mapping[str, int]
    """Attempts that have, by their class."""
    instances: int
    """Of the open ones."""
    interruptions: int = 0
    """How often it has taken spot capacity back."""
    gpus: int = 0
    """Of these, as far as it is known how many a type has."""
    money: Money
    """What it has cost."""
    rate: float | None = None
    """What its jobs that run do in a second together; None where none of them has said so lately."""
    closed_until_s: float | None = None
    """Until when nothing is sent there; None where it takes jobs."""
    reason: str = ""
    """Why not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A place that is left alone for a while."""

    place: str
    """Type, region and market, for people."""
    until_s: float
    """On the controller's clock."""
    reason: str
    """What it said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The grid."""

    name: str
    """As the user named it."""
    state: str
    """open, paused, stopping or closed."""
    why: str
    """Why it is paused."""
    at_s: float
    """When this was so."""
    created_s: float
    """When the grid was made."""
    states: Mapping[str, int]
    """Tasks by their state."""
    regions: tuple[RegionView, ...]
    """By name."""
    money: Money
    """Of all regions."""
    budget_usd: float | None
    """What it may cost; None is no limit."""
    prices: tuple[str, ...]
    """Versions of the lists that its dollars are from."""
    blocks: tuple[Block, ...]
    """Places that are left alone just now."""
    reasons: tuple[tuple[str, int], ...]
    """Why rows have failed or cannot run, the most frequent first."""
    done: tuple[tuple[float, int], ...]
    """The curve of done rows: moments, and how many there were by then."""
    planned_usd: tuple[float, float] | None
    """What all rows together were planned to cost, at best and at worst; None is unknown."""
    rate_unit: str
    """Of what the rows do in a second, ``images/s``; empty where it is not measured."""
    rate: float | None
    """What all jobs that run now do in a second together; None where none of them has said so lately."""
    rates: tuple[tuple[float, float], ...]
    """The curve of it: moments, and what all did then."""
    highest_rate: float
    """The most that all are known to have done at once; 0 where no job has said anything."""
    done_per_hour: float | None
    """Of the last hour, or since the first one was sent; None before any is done."""

    @property
    def total(self) -> int:
        """Rows in all."""
        return sum(self.states.values())

    @property
    def interruptions(self) -> int:
        """How often spot capacity was taken back, everywhere."""
        return sum(each.interruptions for each in self.regions)

    @property
    def left(self) -> int:
        """Rows that wait or run."""
        return sum(count for state, count in self.states.items() if not TaskState(state).final)

    @property
    def left_s(self) -> float | None:
        """About how long it still takes, at the pace of the last hour; None where there is none."""
        # By what was done, not by what rows were believed to take: they wait for capacity, too.
        return self.left / self.done_per_hour * HOUR_S if self.done_per_hour else None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values; what is not known is null."""
        sums = {"total": self.total, "left": self.left, "left_s": self.left_s, "interruptions": self.interruptions}
        return {**asdict(self), **sums}


def snapshot(store: Store, now: float) -> Snapshot:
    """Return a grid as it is.

    Args:
        store: The grid's; it is only read.
        now: Seconds since the epoch, on the controller's clock.
    """
    grid, states = store.grid(), store.states()
    execute = store.database.connection.execute
    # Where something was sent: a region that only might take rows has nothing to say.
    names = [row[0] for row in execute("SELECT DISTINCT region FROM attempt ORDER BY region")]
    versions = execute("SELECT DISTINCT price_version FROM attempt WHERE price_version <> '' ORDER BY 1").fetchall()
    return Snapshot(
        name=grid.name,
        state=grid.state,
        why=grid.why,
        at_s=now,
        created_s=grid.created_s,
        states=states,
        regions=tuple(_region(store, name, now) for name in names),
        money=money(store, now),
        budget_usd=grid.rules.budget_usd,
        prices=tuple(row[0] for row in versions),
        blocks=_blocks(store, now),
        reasons=_reasons(store),
        done=_curve(store, states.get(TaskState.DONE, 0), grid.created_s),
        planned_usd=_planned(store),
        rate_unit="" if grid.rules.rate is None else unit(grid.rules.rate),
        rate=_rate(store, now),
        rates=tuple(tuple(row) for row in execute("SELECT at_s, value FROM rate_history ORDER BY at_s")),
        highest_rate=_highest_rate(store),
        done_per_hour=_pace(store, now),
    )


def _region(store: Store, region: str, now: float) -> RegionView:
    execute = store.database.connection.execute
    still, ended = (
        execute(
            f"SELECT {name}, count(*), sum(interruptions) FROM attempt WHERE region = ? AND {which} GROUP BY 1",
            (region,),
        ).fetchall()
        for name, which in (("state", "state <> 'ended'"), ("ending", "state = 'ended'"))
    )
    instances = dict(
        execute(
            "SELECT instance_type, sum(count) FROM attempt WHERE region = ? AND state <> 'ended' GROUP BY 1", (region,)
        ).fetchall()
    )
    closed = execute("SELECT closed_s, reason FROM region WHERE name = ? AND closed_s > ?", (region, now)).fetchone()
    return RegionView(
        region=region,
        open={str(state): count for state, count, _ in still},
        ended={str(name): count for name, count, _ in ended},
        instances=sum(instances.values()),
        interruptions=sum(times for *_, times in (*still, *ended)),
        gpus=sum(gpu_count(name) * count for name, count in instances.items()),
        money=money(store, now, region),
        rate=_rate(store, now, region),
        closed_until_s=None if closed is None else closed[0],
        reason="" if closed is None else closed[1],
    )


def _rate(store: Store, now: float, region: str | None = None) -> float | None:
    # What a job said long ago it may not do any more.
    row = store.database.connection.execute(
        "SELECT sum(rate.value) FROM rate JOIN attempt ON attempt.name = rate.attempt WHERE attempt.state = 'running' "
        "AND rate.at_s > ?1 AND (?2 IS NULL OR attempt.region = ?2)",
        (now - STALE_S, region),
    ).fetchone()
    return None if row[0] is None else float(row[0])


def _highest_rate(store: Store) -> float:
    # A job may have begun and ended between two looks at all of them: together they did no less than it did alone.
    return float(
        store.database.connection.execute(
            "SELECT coalesce(max(value), 0.0) FROM (SELECT value FROM rate UNION ALL SELECT value FROM rate_history)"
        ).fetchone()[0]
    )


def _planned(store: Store) -> tuple[float, float] | None:
    low, high = store.database.connection.execute("SELECT planned_low_usd, planned_high_usd FROM grid").fetchone()
    return None if low is None else (low, high)


def _blocks(store: Store, now: float) -> tuple[Block, ...]:
    rows = store.database.connection.execute(
        "SELECT region, instance_type, spot, until_s, reason FROM block WHERE until_s > ? ORDER BY until_s LIMIT ?",
        (now, MOST_BLOCKS),
    )
    return tuple(
        Block(
            place=str(Place(region=row["region"], instance_type=row["instance_type"], spot=bool(row["spot"]))),
            until_s=row["until_s"],
            reason=row["reason"],
        )
        for row in rows
    )


def _reasons(store: Store) -> tuple[tuple[str, int], ...]:
    ended = [state.value for state in TaskState if state.final and state not in (TaskState.DONE, TaskState.SKIPPED)]
    marks = ", ".join("?" * len(ended))
    rows = store.database.connection.execute(
        f"SELECT reason, count(*) FROM task WHERE state IN ({marks}) GROUP BY reason ORDER BY 2 DESC, 1 LIMIT ?",
        (*ended, MOST_REASONS),
    )
    return tuple((row[0], row[1]) for row in rows)


def _curve(store: Store, done: int, created_s: float) -> tuple[tuple[float, int], ...]:
    """Return moments and how many rows were done by then, none at first, as many as a chart can show."""
    every = max(1, done // POINTS)
    rows: Sequence[Any] = store.database.connection.execute(
        "SELECT at_s, number FROM (SELECT at_s, row_number() OVER (ORDER BY seq) AS number, count(*) OVER () AS most "
        "FROM event WHERE now = 'done' AND task IS NOT NULL) WHERE number % ? = 0 OR number IN (1, most)",
        (every,),
    ).fetchall()
    return ((created_s, 0), *((row[0], row[1]) for row in rows)) if rows else ()


def _pace(store: Store, now: float) -> float | None:
    execute = store.database.connection.execute
    done, first_s = execute(
        "SELECT (SELECT count(*) FROM event WHERE now = 'done' AND task IS NOT NULL AND at_s > ?), "
        "(SELECT min(intended_s) FROM attempt)",
        (now - HOUR_S,),
    ).fetchone()
    if not done or first_s is None:
        return None
    # A grid of ten minutes has no hour behind it.
    return float(done / min(HOUR_S, max(1.0, now - first_s)) * HOUR_S)
