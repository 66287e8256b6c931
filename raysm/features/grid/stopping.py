"""Stop jobs that the user or the grid no longer wants, and take rows back from removed regions.

The reason to stop a job is stored before the service is asked, so that the next controller asks
again after a kill.
"""

import contextlib
import operator
from collections.abc import Collection, Iterable

from raysm.errors import JobNotFound, ServiceError
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.attempt_end import end_without_job
from raysm.features.grid.endings import ENDINGS, EndingName, Verdict
from raysm.features.grid.region import RegionApi, RegionUnavailable
from raysm.features.grid.region_poll import RegionPoll
from raysm.features.grid.retry_policy import LANDING_S, REPEAT_STOP_S
from raysm.features.grid.row import RowState
from raysm.features.grid.store.store import Store


def mark_all_to_stop(store: Store, now: float) -> None:
    with store.database.transaction("stop all"):
        store.attempts.mark_all_to_stop()
        for record in list(store.rows.all(RowState.WAITING)):
            store.rows.move(
                record.row.key,
                RowState.WAITING,
                RowState.STOPPED,
                now,
                reason="the grid was stopped",
            )


def mark_overdue_to_stop(
    store: Store, polls: Iterable[RegionPoll], patience_s: float, now: float
) -> None:
    """Mark jobs to be stopped that wait too long for instances: other places may have some."""
    late = [attempt for poll in polls for attempt in poll.waiting(patience_s, now)]
    if late:
        text = f"no instances for {patience_s:.0f} s"
        with store.database.transaction("impatient"):
            for attempt in late:
                store.attempts.move(attempt, now, stop_reason="patience")
                store.events.add(
                    now, "", "stopping", text, row_key=attempt.row_key, attempt=attempt.name
                )


def ask_to_stop(store: Store, api: RegionApi, now: float) -> float | None:
    """Ask the service to stop marked attempts and orphaned jobs, as fast as token buckets allow."""
    waits: list[float] = []

    def ask_all(region: str, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            try:
                _ask(store, api, attempt, now)
            except RegionUnavailable as error:
                # A region that does not answer is asked again in the next poll.
                if not error.reason:
                    waits.append(now + api.limiter.wait_s(region, "stop", now))
                return

    def ask_orphans(region: str, orphans: list[tuple[str, str]]) -> None:
        for _, name in orphans:
            try:
                api.call(region, "stop", now, operator.methodcaller("stop", name))
            except RegionUnavailable:
                return
            except ServiceError:
                continue
            with store.database.transaction("orphan asked"):
                store.orphans.change(name, asked_s=now)

    due = (
        each
        for each in store.attempts.to_stop()
        if each.asked_s is None or not 0 <= now - each.asked_s < REPEAT_STOP_S
    )
    api.for_each_region(due, operator.attrgetter("region"), ask_all)
    # Ask again after a while: a Stop may be lost, or arrive before the service knows the job.
    api.for_each_region(
        store.orphans.to_stop(now - REPEAT_STOP_S), operator.itemgetter(0), ask_orphans
    )
    return min(waits, default=None)


def _ask(store: Store, api: RegionApi, attempt: Attempt, now: float) -> None:
    try:
        api.call(attempt.region, "stop", now, lambda region: region.stop(attempt.name))
    except JobNotFound:
        if attempt.sent_s is None and now > _landed_s(attempt):
            _end_unsent(
                store,
                attempt,
                Verdict(ending=ENDINGS[EndingName.STOPPED], reason="stopped before it was sent"),
                now,
            )
        return
    except ServiceError:
        # The service refuses to stop a job that has ended; the poll finds its end.
        pass
    with store.database.transaction("asked"):
        store.attempts.move(attempt, now, asked_s=now)


def _landed_s(attempt: Attempt) -> float:
    """Return until when a Create of this process, or of a killed one, may be carried out."""
    return max(attempt.intended_s, attempt.retry_s) + LANDING_S


def _end_unsent(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    with store.database.transaction("never sent"):
        end_without_job(store, attempt, verdict, now)


def removed_regions_in_use(store: Store, regions: Iterable[str], now: float) -> list[str]:
    chosen = set(regions)
    return [region for region in store.orphans.used_regions(now) if region not in chosen]


def take_back(store: Store, api: RegionApi, removed: Collection[str], now: float) -> float | None:
    """Release rows whose jobs were intended in a removed region and do not exist there."""
    if not removed:
        return None
    moments: list[float] = []
    for attempt in store.attempts.unanswered():
        # Attempts that are marked to be stopped end when they are stopped.
        if attempt.region not in removed or attempt.stop_reason:
            continue
        landed_s = _landed_s(attempt)
        if now <= landed_s:
            moments.append(landed_s)
        elif _is_unknown(api, attempt, now):
            reason = f"{attempt.region} was removed from the grid before the job was sent"
            _end_unsent(
                store, attempt, Verdict(ending=ENDINGS[EndingName.LEFT], reason=reason), now
            )
    return min(moments, default=None)


def _is_unknown(api: RegionApi, attempt: Attempt, now: float) -> bool:
    """Whether a region says that it has no such job; the poll finds existing jobs."""
    with contextlib.suppress(RegionUnavailable, ServiceError):
        try:
            api.call(attempt.region, "describe", now, lambda region: region.describe(attempt.name))
        except JobNotFound:
            return True
    return False


def unanswered_note(store: Store, region: str, reason: str) -> str:
    """Return why it matters that a removed region does not answer, and what the user can do."""
    number = store.attempts.open_count(region)
    jobs = "1 job" if number == 1 else f"{number:,} jobs"
    return (
        f"{reason}; the region was removed from the grid, which stays open until the region says "
        f"how {jobs} there ended: restore access to it (credentials, permissions, network)"
    )
