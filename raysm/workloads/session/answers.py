"""How a question about a call is answered, whichever way it came: what flows in is a call, or why there is none.

What flows out is how the call is, its outcome as bytes that nobody here reads, or the status of a refusal.
"""

import asyncio
import contextlib

from raysm.contract.session import CallStatus
from raysm.errors import InvalidConfig, InvalidRequest, SessionEnded
from raysm.workloads.session.calls import Call

__all__ = ["NO_SUCH_CALL", "answer", "seconds_of", "status_of"]

MOST_WAIT_S = 25.0
"""For which a client may wait for an outcome before it asks again: less than any proxy's patience."""

NO_SUCH_CALL = 404
"""Its own status: a client whose question was lost on the way asks once more, with all of it."""


def seconds_of(wait: object) -> float:
    """Return for how long a client waits for an outcome, seconds, as it came by either way.

    Raises:
        InvalidRequest: It is no number.
    """
    try:
        return float(str(wait))
    except ValueError as error:
        raise InvalidRequest(f"wait is a number of seconds, got {wait!r}") from error


async def answer(call: Call, wait_s: float, *, most_bytes: int | None = None) -> tuple[CallStatus, bytes | None]:
    """Wait for a call's end, but not for long; return how it is then, and its outcome.

    Args:
        call: Whose.
        wait_s: For so long; then it is answered all the same, and the client asks again.
        most_bytes: Of an outcome; None is any number.

    Returns:
        Its status, and its outcome: empty while it runs, None where it is larger than ``most_bytes``.
    """
    # Most short calls are done by now: a wait costs a timer and a switch of tasks.
    if not call.done.is_set():
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(call.done.wait(), min(wait_s, MOST_WAIT_S))
    status = call.status
    if most_bytes is not None and status.bytes > most_bytes:
        return status, None
    # Read only where it is wanted: it may be a file of gigabytes.
    return status, call.outcome if call.done.is_set() else b""


def status_of(error: Exception) -> int:
    """Return HTTP's status for what a client asked that cannot be."""
    # SessionEnded first: to a client it is no refusal of what it asked, but the end of all asking.
    match error:
        case SessionEnded():
            return 410
        case InvalidRequest() | InvalidConfig():
            return 400
        case _:
            return 500
