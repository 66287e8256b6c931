"""Attempts that end early: the user stops the grid, a job waits too long, or its region was taken out of the grid.

The reason is stored before the service is asked, so that the next controller continues after a kill.
"""

import contextlib
import functools
from collections.abc import Collection, Iterable
from operator import attrgetter, itemgetter

from raysm.errors import JobNotFound, ServiceError
from raysm.grid.attempt import Attempt, TaskState
from raysm.grid.conclusion import LANDING_S, live_strays, refuse, stray_asked
from raysm.grid.endings import ENDINGS, Verdict
from raysm.grid.outside import Outside, Silence
from raysm.grid.region import Region
from raysm.grid.store import Store
from raysm.grid.sweep import Sweep

__all__ = ["ask_to_stop", "left_regions", "silent_there", "take_back", "wish_all", "wish_impatient"]

AGAIN_S = 120.0
"""Seconds after which a job that was asked to stop, and goes on, is asked again: SageMaker itself takes as long."""


def wish_all(store: Store, now: float) -> None:
    """Wish that all attempts stop, and stop the tasks that wait: what a grid does that is stopping."""
    with store.database.transaction("wishes"):
        store.database.connection.execute("UPDATE attempt SET wish = 'user' WHERE state <> 'ended' AND wish <> 'user'")
        for record in list(store.tasks(TaskState.WAITING)):
            store.move_task(record.task.key, TaskState.WAITING, TaskState.STOPPED, now, reason="the grid was stopped")


def wish_impatient(store: Store, sweeps: Iterable[Sweep], now: float) -> None:
    """Wish that jobs stop that wait for their instances for too long: elsewhere there may be some."""
    patience_s = store.grid().rules.patience_s
    late = [attempt for sweep in sweeps for attempt in sweep.waiting(patience_s, now)]
    if late:
        with store.database.transaction("impatient"):
            for attempt in late:
                store.move(attempt, now, wish="patience")
                store.log(
                    now, "", "stopping", f"no instances for {patience_s:.0f} s", task=attempt.task, attempt=attempt.name
                )


def ask_to_stop(store: Store, outside: Outside, now: float) -> float | None:
    """Ask the service to stop what is to stop, as fast as the buckets allow.

    Returns:
        When the next one can be asked about, on the same clock; None where all were asked that can be.
    """
    waits: list[float] = []
    due = (each for each in store.unwanted() if each.asked_s is None or not 0 <= now - each.asked_s < AGAIN_S)

    def ask_all(region: str, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            try:
                _ask(store, outside, attempt, now)
            except Silence:
                # Without it the next step is a sweep's, 10 s later, and a bucket that holds two calls is used by a
                # tenth.
                waits.append(now + outside.limiter.wait_s(region, "stop", now))

    def ask_strays(region: str, strays: list[tuple[str, str]]) -> None:
        for _, name in strays:
            with contextlib.suppress(Silence, ServiceError):
                outside.ask(region, "stop", now, functools.partial(_stop, name))
                with store.database.transaction("stray asked"):
                    stray_asked(store, name, now)

    outside.side_by_side(due, attrgetter("region"), ask_all)
    outside.side_by_side(live_strays(store, now, AGAIN_S), itemgetter(0), ask_strays)
    return min(waits, default=None)


def _stop(name: str, region: Region) -> None:
    region.stop(name)


def _ask(store: Store, outside: Outside, attempt: Attempt, now: float) -> None:
    try:
        outside.ask(attempt.region, "stop", now, lambda region: region.stop(attempt.name))
    except JobNotFound:
        _never_sent(store, attempt, now)
        return
    except ServiceError:
        # It refuses to stop what has ended: the sweep brings the end.
        pass
    with store.database.transaction("asked"):
        store.move(attempt, now, asked_s=now)


def _never_sent(store: Store, attempt: Attempt, now: float) -> None:
    """End an attempt that the service does not know, once a Create that may be on its way would have landed."""
    last_s = max(attempt.intended_s, attempt.retry_s)
    if attempt.sent_s is None and now - last_s > LANDING_S:
        with store.database.transaction("never sent"):
            # In doubt to the last: were it to land after all, the sweep finds it, and stops it.
            doubtful = store.move(attempt, now, is_doubtful=True)
            refuse(store, doubtful, Verdict(ending=ENDINGS["STOPPED"], reason="stopped before it was sent"), now)


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
