"""A grid at one moment: counts, costs, rates and reasons.

The database computes the sums, so that 100,000 rows are shown as fast as ten.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from raysm.core.protocol.instance_types import gpu_count
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.features.grid.market import Place
from raysm.features.grid.row import RETRYABLE_STATES, RowState
from raysm.features.grid.store.costs import Money
from raysm.features.grid.store.store import GridState, Store

HOUR_S = 3600.0
POINTS = 200
"""Points of the curve of done rows, one per two or three pixels."""

MAX_REASONS = 12
MAX_BLOCKS = 20

STALE_S = 600.0
"""Seconds after which the rate that a job reported no longer counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionView:
    region: str
    open: Mapping[str, int]
    ended: Mapping[str, int]
    instances: int
    interruptions: int = 0
    gpus: int = 0
    money: Money
    rate: float | None = None
    """The rate of all running jobs together; None if none has reported one lately."""
    closed_until_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    place: str
    until_s: float
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The grid. Times are seconds since the epoch on the grid's clock."""

    name: str
    state: GridState
    why: str
    at_s: float
    created_s: float
    states: Mapping[str, int]
    regions: tuple[RegionView, ...]
    money: Money
    budget_usd: float | None
    prices: tuple[str, ...]
    blocks: tuple[Block, ...]
    reasons: tuple[tuple[str, int], ...]
    """Why rows have failed or cannot run, the most frequent first."""
    done: tuple[tuple[float, int], ...]
    planned_usd: tuple[float, float] | None
    rate_unit: str
    rate: float | None
    """The rate of all running jobs together; None if none has reported one lately."""
    rates: tuple[tuple[float, float], ...]
    highest_rate: float
    done_per_hour: float | None
    """Done rows per hour, in the last hour or since the first was sent; None before any is done."""
    is_free: bool = False
    """True if every job runs on this machine."""

    @property
    def total(self) -> int:
        return sum(self.states.values())

    @property
    def interruptions(self) -> int:
        return sum(each.interruptions for each in self.regions)

    @property
    def left(self) -> int:
        """Rows that wait or run."""
        return sum(count for state, count in self.states.items() if not RowState(state).is_final)

    @property
    def left_s(self) -> float | None:
        """Estimated seconds that are left at the pace of the last hour; None if no row was done."""
        return self.left / self.done_per_hour * HOUR_S if self.done_per_hour else None

    def as_dict(self) -> dict[str, Any]:
        sums = {
            "total": self.total,
            "left": self.left,
            "left_s": self.left_s,
            "interruptions": self.interruptions,
        }
        return {**asdict(self), **sums}


def rate_unit(metric: str) -> str:
    """Return a metric's unit as people write it: ``images/s`` for ``images_per_s``."""
    name, per, second = metric.rpartition("_per_")
    return f"{name}/{second}" if per else metric


def snapshot(store: Store, now: float) -> Snapshot:
    grid = store.grid()
    states = store.rows.states()
    execute = store.database.execute
    # Only regions where something was sent.
    names = [row[0] for row in execute("SELECT DISTINCT region FROM attempt ORDER BY region")]
    versions = execute(
        "SELECT DISTINCT price_version FROM attempt WHERE price_version <> '' ORDER BY 1"
    ).fetchall()
    low, high = execute("SELECT planned_low_usd, planned_high_usd FROM grid").fetchone()
    billed = execute(
        "SELECT count(*) FROM attempt WHERE instance_type <> ?", (LOCAL_TYPE,)
    ).fetchone()[0]
    # Also the fastest job: it may have started and ended between two reads of all rates.
    rates = execute(
        "SELECT at_s, value FROM rate_history UNION SELECT at_s, value FROM (SELECT at_s, value "
        "FROM rate ORDER BY 2 DESC LIMIT 1) WHERE value > (SELECT coalesce(max(value), 0.0) "
        "FROM rate_history) ORDER BY 1"
    ).fetchall()
    return Snapshot(
        name=grid.name,
        state=grid.state,
        why=grid.why,
        at_s=now,
        created_s=grid.created_s,
        states=states,
        regions=tuple(_region(store, name, now) for name in names),
        money=store.costs.money(now),
        budget_usd=grid.rules.max_cost,
        prices=tuple(row[0] for row in versions),
        blocks=_blocks(store, now),
        reasons=_reasons(store),
        done=_curve(store, states.get(RowState.DONE, 0), grid.created_s),
        planned_usd=None if low is None else (low, high),
        rate_unit="" if grid.rules.rate is None else rate_unit(grid.rules.rate),
        rate=_rate(store, now),
        rates=tuple(tuple(row) for row in rates),
        highest_rate=float(max((value for _, value in rates), default=0.0)),
        done_per_hour=_pace(store, now, is_over=all(RowState(state).is_final for state in states)),
        is_free=not billed,
    )


def _region(store: Store, region: str, now: float) -> RegionView:
    execute = store.database.execute
    still, ended = (
        execute(
            f"SELECT {name}, count(*), sum(interruptions) FROM attempt WHERE region = ? "
            f"AND {which} GROUP BY 1",
            (region,),
        ).fetchall()
        for name, which in (("state", "state <> 'ended'"), ("ending", "state = 'ended'"))
    )
    types = (
        "SELECT instance_type, sum(count) FROM attempt WHERE region = ? "
        "AND state <> 'ended' GROUP BY 1"
    )
    instances = dict(execute(types, (region,)).fetchall())
    closed = execute(
        "SELECT closed_s, reason FROM region WHERE name = ? AND closed_s > ?", (region, now)
    ).fetchone()
    return RegionView(
        region=region,
        open={str(state): count for state, count, _ in still},
        ended={str(name): count for name, count, _ in ended},
        instances=sum(instances.values()),
        interruptions=sum(times for *_, times in (*still, *ended)),
        gpus=sum(gpu_count(name) * count for name, count in instances.items()),
        money=store.costs.money(now, region),
        rate=_rate(store, now, region),
        closed_until_s=None if closed is None else closed[0],
        reason="" if closed is None else closed[1],
    )


def _rate(store: Store, now: float, region: str | None = None) -> float | None:
    row = store.database.execute(
        "SELECT sum(rate.value) FROM rate JOIN attempt ON attempt.name = rate.attempt WHERE "
        "attempt.state = 'running' AND rate.at_s > ?1 AND (?2 IS NULL OR attempt.region = ?2)",
        (now - STALE_S, region),
    ).fetchone()
    return None if row[0] is None else float(row[0])


def _blocks(store: Store, now: float) -> tuple[Block, ...]:
    rows = store.database.execute(
        "SELECT region, instance_type, spot, until_s, reason FROM block WHERE until_s > ? "
        "ORDER BY until_s LIMIT ?",
        (now, MAX_BLOCKS),
    )
    places = (
        (Place(region=row[0], instance_type=row[1], spot=bool(row[2])), row[3], row[4])
        for row in rows
    )
    return tuple(
        Block(place=str(place), until_s=until_s, reason=reason) for place, until_s, reason in places
    )


def _reasons(store: Store) -> tuple[tuple[str, int], ...]:
    marks = ", ".join("?" * len(RETRYABLE_STATES))
    rows = store.database.execute(
        # By the first line: the tracebacks below it have paths of their own jobs.
        f"SELECT min(reason), count(*) FROM task WHERE state IN ({marks}) GROUP BY substr(reason, "
        "1, instr(reason || char(10), char(10))) ORDER BY 2 DESC, 1 LIMIT ?",
        (*RETRYABLE_STATES, MAX_REASONS),
    )
    return tuple((row[0], row[1]) for row in rows)


def _curve(store: Store, done: int, created_s: float) -> tuple[tuple[float, int], ...]:
    """Return times and the number of rows done by then, thinned out to about ``POINTS``."""
    rows = store.database.execute(
        "SELECT at_s, number FROM (SELECT at_s, row_number() OVER (ORDER BY seq) AS number, "
        "count(*) OVER () AS most FROM event WHERE now = 'done' AND task IS NOT NULL) "
        "WHERE number % ? = 0 OR number IN (1, most)",
        (max(1, done // POINTS),),
    ).fetchall()
    return ((created_s, 0), *((row[0], row[1]) for row in rows)) if rows else ()


def _pace(store: Store, now: float, *, is_over: bool) -> float | None:
    execute = store.database.execute
    if is_over:  # its pace does not fall any more
        (last_s,) = execute(
            "SELECT max(at_s) FROM event WHERE now = 'done' AND task IS NOT NULL"
        ).fetchone()
        now = now if last_s is None else last_s
    done, first_s = execute(
        "SELECT (SELECT count(*) FROM event WHERE now = 'done' AND task IS NOT NULL AND at_s > ?), "
        "(SELECT min(intended_s) FROM attempt)",
        (now - HOUR_S,),
    ).fetchone()
    if not done or first_s is None:
        return None
    # The grid may be younger than an hour.
    return float(done / min(HOUR_S, max(1.0, now - first_s)) * HOUR_S)
