"""Regions that were taken out of a grid while something of it was there.

What runs there is followed to its end, and nothing begins there any more: what was intended, and has never been sent,
goes elsewhere once no call of it can land. Left alone such an attempt would keep its row, and the grid, open for ever.
"""

import contextlib
from collections.abc import Collection, Iterable

from raysm.errors import JobNotFound, ServiceError
from raysm.grid.attempt import Attempt
from raysm.grid.classify import Verdict
from raysm.grid.concluding import LANDING_S, refuse
from raysm.grid.endings import ENDINGS
from raysm.grid.outside import Outside, Silence
from raysm.grid.store import Store

__all__ = ["left_regions", "silent_there", "take_back"]


def left_regions(store: Store, regions: Iterable[str], now: float) -> list[str]:
    """Return the regions beside these in which a grid has a job, or may have one.

    Args:
        store: The grid's.
        regions: Those that it may send to.
        now: Seconds since the epoch.
    """
    rows = store.database.connection.execute(
        "SELECT region FROM attempt WHERE state <> 'ended' "
        "UNION SELECT region FROM attempt WHERE watch_s > 0 AND watch_s > ? "
        "UNION SELECT region FROM stray WHERE ended_s IS NULL ORDER BY 1",
        (now,),
    )
    chosen = set(regions)
    return [row[0] for row in rows if row[0] not in chosen]


def take_back(store: Store, outside: Outside, left: Collection[str], now: float) -> float | None:
    """Have rows go elsewhere whose jobs were intended in a region that was taken out, and are not there.

    Returns:
        When the next one can be asked about; None where there is none.
    """
    moments: list[float] = []
    # A wish to stop it does as much.
    for attempt in (each for each in store.owed() if each.region in left and not each.wish):
        # A Create may be on its way, of this process or of one that was killed: its row waits until it would have
        # landed.
        landed_s = max(attempt.intended_s, attempt.retry_s) + LANDING_S
        if now <= landed_s:
            moments.append(landed_s)
        elif _is_unknown(outside, attempt, now):
            with store.database.transaction("taken back"):
                # In doubt to the last: were it to land after all, the sweep finds it, and stops it.
                doubtful = store.move(attempt, now, is_doubtful=True)
                reason = f"{attempt.region} was removed from the grid before the job was sent"
                refuse(store, doubtful, Verdict(ending=ENDINGS["LEFT"], reason=reason), now)
    return min(moments, default=None)


def _is_unknown(outside: Outside, attempt: Attempt, now: float) -> bool:
    """Whether a region says that it has no such job; one that it has the sweep finds, and follows."""
    with contextlib.suppress(Silence, ServiceError):
        try:
            outside.ask(attempt.region, "describe", now, lambda region: region.describe(attempt.name))
        except JobNotFound:
            return True
    return False


def silent_there(store: Store, region: str, reason: str) -> str:
    """Return why a region that was taken out matters although it does not answer, and what a person can do."""
    number = store.database.connection.execute(
        "SELECT count(*) FROM attempt WHERE state <> 'ended' AND region = ?", (region,)
    ).fetchone()[0]
    jobs = "1 job" if number == 1 else f"{number:,} jobs"
    return (
        f"{reason}; the region was removed from the grid, which stays open until the region says how {jobs} there "
        "ended: restore access to it (credentials, permissions, network)"
    )
