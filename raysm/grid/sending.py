"""Create, and what follows from its answer: an intent flows in, an attempt that is sent, refused or in doubt flows out.

The intent is in the store before the call is made, and the name is a function of the store: whatever ends the
controller in between, the next one makes the very same call, which makes one job.
"""

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.attempt import Attempt, AttemptState
from raysm.grid.classify import Verdict, of_refusal
from raysm.grid.concluding import refuse
from raysm.grid.outside import Outside
from raysm.grid.packs import task_of
from raysm.grid.standing import close, heard
from raysm.grid.store import Store

__all__ = ["send", "send_owed"]

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 120.0
"""Before a Create whose answer was lost is sent again: 5, 10, 20 … s."""


def send_owed(store: Store, outside: Outside, now: float) -> None:
    """Send what was intended, or whose answer was lost, where its bucket allows it."""
    for attempt in store.owed():
        # A call that was made, and then the clock set back: no pause is longer than the longest.
        if now < attempt.retry_s <= now + LONGEST_PAUSE_S or attempt.region not in outside.regions:
            continue
        # Stopped before it was sent: the controller waits whether the call that may be on its way lands.
        if attempt.wish:
            continue
        if outside.limiter.take(attempt.region, "create", now):
            send(store, outside, attempt, now)


def send(store: Store, outside: Outside, attempt: Attempt, now: float) -> bool:
    """Send an attempt whose intent is kept, and whose token is taken; return whether the service took it."""
    task = task_of(store, attempt)
    try:
        outside.create(attempt.region, lambda region: region.create(task, attempt))
    except (ServiceError, InvalidRequest) as error:
        verdict = of_refusal(error)
        if verdict.ending.is_throttle:
            outside.limiter.throttled(attempt.region, "create", now)
        with store.database.transaction("refused"):
            _refused(store, attempt, verdict, now)
        return False
    with store.database.transaction("sent"):
        heard(store, attempt.region, now, opens=True)
        store.move(attempt, now, state=AttemptState.SENT, sent_s=now, calls=attempt.calls + 1, is_doubtful=False)
    return True


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
