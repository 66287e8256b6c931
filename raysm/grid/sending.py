"""Create, and what follows from its answer: an intent flows in, an attempt that is sent, refused or in doubt flows out.

The intent is in the store before the call is made, and the name is a function of the store: whatever ends the
controller in between, the next one makes the very same call, which makes one job. So the answers of a few calls may be
kept together.
"""

from collections.abc import Collection, Iterable, Sequence

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.attempt import Attempt, AttemptState
from raysm.grid.classify import Verdict, of_refusal
from raysm.grid.concluding import refuse
from raysm.grid.outside import Outside
from raysm.grid.packs import task_of
from raysm.grid.standing import close, heard
from raysm.grid.store import Store
from raysm.grid.task import Task

__all__ = ["send", "send_owed"]

SENDS = 20
"""Calls whose answers are kept as one effect: so many a crash has the next controller make once more."""

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 120.0
"""Before a Create whose answer was lost is sent again: 5, 10, 20 … s."""


def send_owed(store: Store, outside: Outside, left: Collection[str], now: float) -> None:
    """Send what was intended, or whose answer was lost, where its bucket allows it, and none to regions ``left``."""
    allowed: list[Attempt] = []
    for attempt in store.owed():
        # A call that was made, and then the clock set back: no pause is longer than the longest.
        if now < attempt.retry_s <= now + LONGEST_PAUSE_S or attempt.region in left:
            continue
        # Stopped before it was sent: the controller waits whether the call that may be on its way lands.
        if attempt.wish:
            continue
        if outside.limiter.take(attempt.region, "create", now):
            allowed.append(attempt)
    send(store, outside, ((task_of(store, attempt), attempt) for attempt in allowed), now)


def send(store: Store, outside: Outside, intents: Iterable[tuple[Task, Attempt]], now: float) -> None:
    """Send attempts, each with what it carries; their intents are kept, and their tokens are taken."""

    def send_all(region: str, own: Sequence[tuple[Task, Attempt]]) -> None:
        for begin in range(0, len(own), SENDS):
            _send_to(store, outside, region, own[begin : begin + SENDS], now)

    outside.side_by_side(intents, lambda intent: intent[1].region, send_all)


def _send_to(store: Store, outside: Outside, region: str, intents: Sequence[tuple[Task, Attempt]], now: float) -> None:
    answers: list[tuple[Attempt, Verdict | None]] = []
    try:
        for task, attempt in intents:
            answers.append((attempt, _refusal(outside, task, attempt, now)))
    except Exception:
        # What was answered before the lease was lost, or another region's work failed, is kept if it still can be.
        _keep(store, region, answers, now)
        raise
    _keep(store, region, answers, now)


def _refusal(outside: Outside, task: Task, attempt: Attempt, now: float) -> Verdict | None:
    """Call Create; return what its refusal means, None where the service took the attempt."""
    try:
        outside.create(attempt.region, lambda region: region.create(task, attempt))
    except (ServiceError, InvalidRequest) as error:
        verdict = of_refusal(error)
        if verdict.ending.is_throttle:
            outside.limiter.throttled(attempt.region, "create", now)
        return verdict
    return None


def _keep(store: Store, region: str, answers: Sequence[tuple[Attempt, Verdict | None]], now: float) -> None:
    sent = [attempt for attempt, verdict in answers if verdict is None]
    if sent:
        with store.database.transaction("sent"):
            heard(store, region, now, opens=True)
            for attempt in sent:
                calls = attempt.calls + 1
                store.move(attempt, now, state=AttemptState.SENT, sent_s=now, calls=calls, is_doubtful=False)
    refused = [(attempt, verdict) for attempt, verdict in answers if verdict is not None]
    if refused:
        with store.database.transaction("refused"):
            for attempt, verdict in refused:
                _refused(store, attempt, verdict, now)


def _refused(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    kind = verdict.ending
    if kind.is_end:
        refuse(store, attempt, verdict, now)
        return
    pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(attempt.calls, 5)) if kind.is_doubtful else 0.0
    doubtful = attempt.is_doubtful or kind.is_doubtful
    store.move(
        attempt,
        now,
        state=AttemptState.MAYBE if doubtful else AttemptState.INTENDED,
        calls=attempt.calls + 1,
        retry_s=now + pause_s,
        is_doubtful=doubtful,
        reason=verdict.reason,
    )
    if kind.closes_region:
        close(store, attempt.region, verdict.reason, now)
