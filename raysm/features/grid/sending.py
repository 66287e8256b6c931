"""Send intended attempts by Create, and store the answers.

The intent is stored before the call, and the job's name is derived from the store. So after a kill
the next controller repeats the same call, which does not create a second job, and the answers of a
few calls may be stored together.
"""

from collections.abc import Collection, Iterable, Sequence

from raysm.errors import InvalidRequest, ServiceError
from raysm.features.grid.attempt import Attempt, AttemptState
from raysm.features.grid.attempt_end import end_without_job
from raysm.features.grid.capacity import back_off_region, record_answer
from raysm.features.grid.endings import Verdict, classify_refusal
from raysm.features.grid.region import RegionApi
from raysm.features.grid.retry_policy import MAX_REPEAT_CREATE_S, create_backoff_s
from raysm.features.grid.row import Row
from raysm.features.grid.store.store import Store

SENDS = 20
"""Calls whose answers are stored together: after a crash the next controller repeats at most this
many."""


def send_owed(store: Store, api: RegionApi, removed: Collection[str], now: float) -> None:
    """Send the attempts without an answer as token buckets allow, except to removed regions."""
    allowed: list[Attempt] = []
    for attempt in store.attempts.unanswered():
        # "<= now + …" is for a clock that was set back.
        if now < attempt.retry_s <= now + MAX_REPEAT_CREATE_S or attempt.region in removed:
            continue
        # Do not send an attempt that is marked to be stopped: an earlier call may still be carried
        # out.
        if not attempt.stop_reason and api.limiter.take(attempt.region, "create", now):
            allowed.append(attempt)
    send(store, api, ((store.rows.get(attempt.row_key).row, attempt) for attempt in allowed), now)


def send(store: Store, api: RegionApi, intents: Iterable[tuple[Row, Attempt]], now: float) -> None:
    def send_all(region: str, pairs: Sequence[tuple[Row, Attempt]]) -> None:
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
    intents: Sequence[tuple[Row, Attempt]],
    behind: Sequence[Attempt],
    now: float,
) -> bool:
    answers: list[tuple[Attempt, Verdict | None]] = []
    held_up: list[Attempt] = []
    takes_more = False
    try:
        for number, (row, attempt) in enumerate(intents, 1):
            verdict = _create(api, row, attempt)
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


def _create(api: RegionApi, row: Row, attempt: Attempt) -> Verdict | None:
    """Call Create; return the class of its refusal, or None if the service took the attempt."""
    try:
        api.create(row, attempt)
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
            record_answer(store, region, opens=True)
            for attempt in accepted:
                store.attempts.move(
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
            last, verdict = refused[-1]
            retry_s = now + create_backoff_s(last, verdict.ending)
            for attempt in held_up:
                store.attempts.move(attempt, now, retry_s=retry_s)


def _refused(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    ending = verdict.ending
    if ending.is_end:
        end_without_job(store, attempt, verdict, now)
        return
    doubtful = attempt.is_doubtful or ending.is_doubtful
    retry_s = now + create_backoff_s(attempt, ending)
    changes = {
        "calls": attempt.calls + 1,
        "retry_s": retry_s,
        "is_doubtful": doubtful,
        "reason": verdict.reason,
    }
    store.attempts.move(
        attempt, now, state=AttemptState.MAYBE if doubtful else AttemptState.INTENDED, **changes
    )
    if ending.closes_region:
        back_off_region(store, attempt.region, verdict.reason, now)
