"""Send intended attempts by Create, store the answers, and end attempts early.

The intent is stored before the call, and the job's name is derived from the store. So after a kill
the next controller repeats the same call, which does not create a second job, and the answers of a
few calls may be stored together. The reason to stop a job is stored before the service is asked,
too.
"""

import contextlib
import operator
from collections.abc import Collection, Iterable, Sequence

from raysm.errors import InvalidRequest, JobNotFound, ServiceError
from raysm.features.grid.capacity import back_off_region, record_answer
from raysm.features.grid.conclusion import LANDING_S, refuse
from raysm.features.grid.endings import ENDINGS, Verdict, classify_refusal
from raysm.features.grid.region import RegionApi, RegionUnavailable
from raysm.features.grid.store import Store
from raysm.features.grid.sweep import Sweep
from raysm.features.grid.task import Attempt, AttemptState, Task, TaskState

SENDS = 20
"""Calls whose answers are stored together: after a crash the next controller repeats at most this
many."""

REPEAT_CREATE_S = 5.0
MAX_REPEAT_CREATE_S = 120.0
"""Backoff of a Create whose answer was lost: 5, 10, 20 … s."""


def send_owed(store: Store, api: RegionApi, left: Collection[str], now: float) -> None:
    """Send the attempts without an answer as far as the token buckets allow, except to removed regions."""
    allowed: list[Attempt] = []
    for attempt in store.unanswered_attempts():
        # "<= now + …" is for a clock that was set back.
        if now < attempt.retry_s <= now + MAX_REPEAT_CREATE_S or attempt.region in left:
            continue
        # Do not send an attempt that is marked to be stopped: an earlier call may still be carried
        # out.
        if not attempt.wish and api.limiter.take(attempt.region, "create", now):
            allowed.append(attempt)
    send(store, api, ((store.task(attempt.task).task, attempt) for attempt in allowed), now)


def send(store: Store, api: RegionApi, intents: Iterable[tuple[Task, Attempt]], now: float) -> None:
    def send_all(region: str, pairs: Sequence[tuple[Task, Attempt]]) -> None:
        for begin in range(0, len(pairs), SENDS):
            end = begin + SENDS
            if not _send_to(
                store, api, region, pairs[begin:end], [attempt for _, attempt in pairs[end:]], now
            ):
                return

    api.for_each_region(intents, lambda intent: intent[1].region, send_all)


def _send_to(
    store: Store,
    api: RegionApi,
    region: str,
    intents: Sequence[tuple[Task, Attempt]],
    behind: Sequence[Attempt],
    now: float,
) -> bool:
    answers: list[tuple[Attempt, Verdict | None]] = []
    held_up: list[Attempt] = []
    takes_more = False
    try:
        for number, (task, attempt) in enumerate(intents, 1):
            verdict = _create(api, task, attempt)
            answers.append((attempt, verdict))
            if verdict is None or verdict.ending.is_end:
                continue
            # The others stay intended. After a throttled call each would be throttled, too, and
            # halve the rate again. A region that does not answer would delay the step by minutes.
            unmade = [*(each for _, each in intents[number:]), *behind]
            api.limiter.give_back(region, "create", len(unmade), now)
            if verdict.ending.is_throttle:
                api.limiter.throttled(region, "create", now)
            else:
                held_up = unmade
            break
        else:
            takes_more = True
    except Exception:
        # The lease was lost, or another region's thread failed: store the answers if possible.
        _store_answers(store, region, answers, held_up, now)
        raise
    _store_answers(store, region, answers, held_up, now)
    return takes_more


def _create(api: RegionApi, task: Task, attempt: Attempt) -> Verdict | None:
    """Call Create; return the class of its refusal, or None if the service took the attempt."""
    try:
        api.create(task, attempt)
    except (ServiceError, InvalidRequest) as error:
        return classify_refusal(error)
    return None


def _store_answers(
    store: Store,
    region: str,
    answers: Sequence[tuple[Attempt, Verdict | None]],
    held_up: Sequence[Attempt],
    now: float,
) -> None:
    accepted = [attempt for attempt, verdict in answers if verdict is None]
    if accepted:
        with store.database.transaction("sent"):
            record_answer(store, region, now, opens=True)
            for attempt in accepted:
                store.move(
                    attempt, now, state=AttemptState.SENT, sent_s=now, calls=attempt.calls + 1
                )
    refused = [(attempt, verdict) for attempt, verdict in answers if verdict is not None]
    if refused:
        with store.database.transaction("refused"):
            for attempt, verdict in refused:
                _refused(store, attempt, verdict, now)
            if refused[-1][1].ending.closes_region:
                # What was never sent takes another place at once. What a killed controller may have
                # sent stays, because its job may appear.
                store.remove_intents((each for each in held_up if not each.is_doubtful), now)
                held_up = [each for each in held_up if each.is_doubtful]
            for attempt in held_up:
                store.move(attempt, now, retry_s=now + _pause_s(*refused[-1]))


def _pause_s(attempt: Attempt, verdict: Verdict) -> float:
    return (
        min(MAX_REPEAT_CREATE_S, REPEAT_CREATE_S * 2 ** min(attempt.calls, 5))
        if verdict.ending.is_doubtful
        else 0.0
    )


def _refused(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    kind = verdict.ending
    if kind.is_end:
        refuse(store, attempt, verdict, now)
        return
    doubtful, retry_s = attempt.is_doubtful or kind.is_doubtful, now + _pause_s(attempt, verdict)
    changes = {
        "calls": attempt.calls + 1,
        "retry_s": retry_s,
        "is_doubtful": doubtful,
        "reason": verdict.reason,
    }
    store.move(
        attempt, now, state=AttemptState.MAYBE if doubtful else AttemptState.INTENDED, **changes
    )
    if kind.closes_region:
        back_off_region(store, attempt.region, verdict.reason, now)


REPEAT_STOP_S = 120.0
"""Seconds after which a job that still runs is asked to stop again; SageMaker gives it as long to
save its work."""


def mark_all_to_stop(store: Store, now: float) -> None:
    with store.database.transaction("wishes"):
        store.mark_all_to_stop()
        for record in list(store.tasks(TaskState.WAITING)):
            store.move_task(
                record.task.key,
                TaskState.WAITING,
                TaskState.STOPPED,
                now,
                reason="the grid was stopped",
            )


def mark_overdue_to_stop(store: Store, sweeps: Iterable[Sweep], now: float) -> None:
    """Mark jobs to be stopped that wait too long for their instances: other places may have some."""
    patience_s = store.grid().rules.patience_s
    late = [attempt for sweep in sweeps for attempt in sweep.waiting(patience_s, now)]
    if late:
        text = f"no instances for {patience_s:.0f} s"
        with store.database.transaction("impatient"):
            for attempt in late:
                store.move(attempt, now, wish="patience")
                store.log(now, "", "stopping", text, task=attempt.task, attempt=attempt.name)


def ask_to_stop(store: Store, api: RegionApi, now: float) -> float | None:
    """Ask the service to stop the marked attempts and the orphaned jobs, as fast as the token buckets allow."""
    waits: list[float] = []

    def ask_all(region: str, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            try:
                _ask(store, api, attempt, now)
            except RegionUnavailable as error:
                # A region that does not answer is asked again in the next sweep: each call may
                # wait for a minute, and the other regions with it.
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
            with store.database.transaction("stray asked"):
                store.change_orphan(name, asked_s=now)

    due = (
        each
        for each in store.unwanted()
        if each.asked_s is None or not 0 <= now - each.asked_s < REPEAT_STOP_S
    )
    api.for_each_region(due, operator.attrgetter("region"), ask_all)
    # Ask again after a while: a Stop may be lost, or arrive before the service knows the job.
    api.for_each_region(
        store.orphans_to_stop(now - REPEAT_STOP_S), operator.itemgetter(0), ask_orphans
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
                Verdict(ending=ENDINGS["STOPPED"], reason="stopped before it was sent"),
                now,
            )
        return
    except ServiceError:
        # The service refuses to stop a job that has ended; the sweep finds its end.
        pass
    with store.database.transaction("asked"):
        store.move(attempt, now, asked_s=now)


def _landed_s(attempt: Attempt) -> float:
    """Return until when a Create of this process, or of a killed one, may be carried out."""
    return max(attempt.intended_s, attempt.retry_s) + LANDING_S


def _end_unsent(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    with store.database.transaction("never sent"):
        refuse(store, attempt, verdict, now)


def removed_regions_in_use(store: Store, regions: Iterable[str], now: float) -> list[str]:
    chosen = set(regions)
    return [region for region in store.used_regions(now) if region not in chosen]


def take_back(store: Store, api: RegionApi, left: Collection[str], now: float) -> float | None:
    """Release rows whose jobs were intended in a removed region and do not exist there."""
    moments: list[float] = []
    # Attempts that are marked to be stopped end when they are stopped.
    for attempt in (
        each for each in store.unanswered_attempts() if each.region in left and not each.wish
    ):
        landed_s = _landed_s(attempt)
        if now <= landed_s:
            moments.append(landed_s)
        elif _is_unknown(api, attempt, now):
            reason = f"{attempt.region} was removed from the grid before the job was sent"
            _end_unsent(store, attempt, Verdict(ending=ENDINGS["LEFT"], reason=reason), now)
    return min(moments, default=None)


def _is_unknown(api: RegionApi, attempt: Attempt, now: float) -> bool:
    """Whether a region says that it has no such job; the sweep finds existing jobs."""
    with contextlib.suppress(RegionUnavailable, ServiceError):
        try:
            api.call(attempt.region, "describe", now, lambda region: region.describe(attempt.name))
        except JobNotFound:
            return True
    return False


def unanswered_note(store: Store, region: str, reason: str) -> str:
    """Return why it matters that a removed region does not answer, and what the user can do."""
    number = store.open_count(region)
    jobs = "1 job" if number == 1 else f"{number:,} jobs"
    return (
        f"{reason}; the region was removed from the grid, which stays open until the region says how {jobs} there "
        "ended: restore access to it (credentials, permissions, network)"
    )
