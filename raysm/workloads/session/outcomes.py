"""Build the ``Outcome`` of a call from its value or its exception.

The process that does the work encodes the outcome; the processes that forward it never unpickle it.
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
"""Ray's message says after these words how a process ended."""

ADVICE = "Some common causes"
"""Ray's message lists possible causes after these words."""


def outcome_of(work: Callable[[], Any], *, name: str, host: str = "", item: int | None = None) -> Outcome:
    """Call ``work`` and return its value or its failure as an outcome.

    Args:
        work: The function to call.
        name: Name of the call, for messages.
        host: Name of this instance.
        item: For a batch: the index of the item.
    """
    try:
        return Outcome(pickled=parcel_of(work(), name))
    except BaseException as error:  # SystemExit too: it ends the call, not the process
        return outcome_of_error(error, host=host, item=item)


def parcel_of(value: Any, name: str) -> list[Piece]:
    """Pickle a value into pieces.

    Raises:
        InvalidRequest: The value cannot be pickled.
    """
    pickled = Pickled()
    pickled_value(value, name, pickled)
    return pickled.parcel()


def outcome_of_error(error: BaseException, *, host: str = "", item: int | None = None) -> Outcome:
    """Return the outcome of work that raised ``error``."""
    if isinstance(error, KeyboardInterrupt):
        return interrupted(host)
    # The same description as for the failure of a job, without raysm's own frames.
    failure = failure_of(error)
    if failure is None:  # sys.exit(0) is a success
        return Outcome(pickled=pickled_value(None, ""))
    # SystemExit and the like would end the client's program, and Ray's exceptions would hide the user's message.
    is_whole = isinstance(error, Exception) and not is_only_described(error)
    pickled = pickled_exception(error.with_traceback(None)) if is_whole else None
    described = RemoteError(
        type=failure.error_type, message=failure.message, traceback=failure.remote_traceback, host=host, item=item
    )
    return Outcome(error=described, pickled=pickled or b"")


def interrupted(host: str = "") -> Outcome:
    """Return the outcome of an interrupted call."""
    return Outcome(error=RemoteError(type=INTERRUPTED, message="it was interrupted", host=host, cancelled=True))


def failed(kind: str, message: str, host: str = "") -> Outcome:
    """Return the outcome of a call that failed without an exception to send.

    Args:
        kind: The failure, instead of a class name: ``WorkerDied``.
        message: The message.
        host: Name of the instance.
    """
    return Outcome(error=RemoteError(type=kind, message=message, host=host))


def death_of(name: str, error: Exception) -> str:
    """Describe the death of a process in one line.

    Args:
        name: Name of its call.
        error: Ray's error.
    """
    # Ray's message about an actor has the reason near its end, after a long description of the actor.
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    reason = next((line for line in lines if DETAIL in line), lines[0])
    return f"the process of {name} died: {reason.rpartition(DETAIL)[2].partition(ADVICE)[0].strip()}"


def refused(error: RaysmError) -> Outcome:
    """Return the outcome of a call that raysm itself refuses, without a traceback."""
    return Outcome(
        error=RemoteError(type=type(error).__name__, message=str(error)), pickled=pickled_exception(error) or b""
    )
