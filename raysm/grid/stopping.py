"""Attempts that are to end before their time: the user's wish, a job that waits too long, a job that nobody wants.

A wish is kept before the service is asked, so that a controller that is killed goes on with it.
"""

import contextlib
import functools
from collections.abc import Iterable
from operator import attrgetter, itemgetter

from raysm.errors import JobNotFound, ServiceError
from raysm.grid.attempt import Attempt, TaskState
from raysm.grid.classify import Verdict
from raysm.grid.concluding import LANDING_S, refuse
from raysm.grid.endings import ENDINGS
from raysm.grid.outside import Outside, Silence
from raysm.grid.region import Region
from raysm.grid.store import Store
from raysm.grid.strays import live_strays, stray_asked
from raysm.grid.sweep import Sweep

__all__ = ["ask_to_stop", "wish_all", "wish_impatient"]

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
