"""How a piece of work ended, as an ``Outcome`` that travels back.

The process that does the work encodes it; the processes that pass it on never unpickle it.
"""

from collections.abc import Callable
from typing import Any

from raysm.contract.parcels import Pickled, Piece
from raysm.contract.session import Outcome, RemoteError
from raysm.errors import RaysmError
from raysm.workloads.failure import failure_of, is_only_described, pickled_exception, pickled_value

__all__ = ["death_of", "failed", "interrupted", "outcome_of", "outcome_of_error", "refused"]

INTERRUPTED = "KeyboardInterrupt"

DETAIL = "Worker exit detail:"
"""Behind it Ray says how a process ended."""

ADVICE = "Some common causes"
"""From there on Ray says at length what might have happened."""


def outcome_of(work: Callable[[], Any], *, name: str, host: str = "", item: int | None = None) -> Outcome:
    """Do the work; return its value, or why it has none.

    Args:
        work: What is done.
        name: For people.
        host: This instance.
        item: Which item of a batch it is about.
    """
    try:
        return Outcome(pickled=parcel_of(work(), name))
    except BaseException as error:  # SystemExit too: a function that leaves must not take its process along
        return outcome_of_error(error, host=host, item=item)


def parcel_of(value: Any, name: str) -> list[Piece]:
    """Return a value pickled, in pieces.

    Raises:
        InvalidRequest: It cannot be pickled.
    """
    pickled = Pickled()
    pickled_value(value, name, pickled)
    return pickled.parcel()


def outcome_of_error(error: BaseException, *, host: str = "", item: int | None = None) -> Outcome:
    """Return how work ended that raised ``error``."""
    if isinstance(error, KeyboardInterrupt):
        return interrupted(host)
    # As a job's own failure is told: the last line first, then the traceback without raysm's own frames.
    failure = failure_of(error)
    if failure is None:  # sys.exit(0) is an end like any other
        return Outcome(pickled=pickled_value(None, ""))
    # One that is no Exception would end the client's own program. Ray's text of one would hide the user's own words.
    is_whole = isinstance(error, Exception) and not is_only_described(error)
    pickled = pickled_exception(error.with_traceback(None)) if is_whole else None
    described = RemoteError(
        type=failure.error_type, message=failure.message, traceback=failure.remote_traceback, host=host, item=item
    )
    return Outcome(error=described, pickled=pickled or b"")


def interrupted(host: str = "") -> Outcome:
    """Return how work ends that somebody interrupted."""
    return Outcome(error=RemoteError(type=INTERRUPTED, message="it was interrupted", host=host, cancelled=True))


def failed(kind: str, message: str, host: str = "") -> Outcome:
    """Return how work ended of which no exception is left.

    Args:
        kind: What happened: ``WorkerDied``.
        message: For people.
        host: Where.
    """
    return Outcome(error=RemoteError(type=kind, message=message, host=host))


def death_of(name: str, error: Exception) -> str:
    """Return what is known of the death of a process, on one line.

    Args:
        name: Of what it did.
        error: What Ray says.
    """
    # Of an actor Ray says first that it died, then at length who it was, and at last why.
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    reason = next((line for line in lines if DETAIL in line), lines[0])
    return f"the process of {name} died: {reason.rpartition(DETAIL)[2].partition(ADVICE)[0].strip()}"


def refused(error: RaysmError) -> Outcome:
    """Return how a call ends that raysm itself does not carry out: frames of its own would tell nobody anything."""
    return Outcome(
        error=RemoteError(type=type(error).__name__, message=str(error)), pickled=pickled_exception(error) or b""
    )
