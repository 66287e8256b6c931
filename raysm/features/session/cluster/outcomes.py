"""Build the ``Outcome`` of a call from its value or its exception.

The process that does the work encodes the outcome; the processes that forward it never unpickle it.
"""

from collections.abc import Callable
from typing import Any

from raysm.core.protocol.parcels import Pickled, Piece
from raysm.errors import RaysmError
from raysm.features.session.protocol import Outcome, RemoteError
from raysm.instance.work.failure import (
    failure_of,
    how_process_ended,
    is_only_described,
    pickled_exception,
    pickled_value,
)
from raysm.instance.work.forks import ending_forks


def capture_outcome(
    work: Callable[[], Any], *, name: str, host: str = "", item: int | None = None
) -> Outcome:
    """Call ``work``; return its value or failure. ``item`` is the index of a batch's item."""
    try:
        with ending_forks():
            value = work()
        return Outcome(pickled=pack_value(value, name))
    except BaseException as error:  # SystemExit too: it ends the call, not the process
        return outcome_from_error(error, host=host, item=item)


def pack_value(value: Any, name: str) -> list[Piece]:
    pickled = Pickled()
    pickled_value(value, name, pickled)
    return pickled.parcel()


def outcome_from_error(error: BaseException, *, host: str = "", item: int | None = None) -> Outcome:
    if isinstance(error, KeyboardInterrupt):
        return interrupted_outcome(host)
    # The same description as for the failure of a job, without raysm's own frames.
    failure = failure_of(error)
    if failure is None:  # sys.exit(0) is a success
        return Outcome(pickled=pickled_value(None, ""))
    # SystemExit and the like would end the client's program, and Ray's exceptions would hide the
    # user's message.
    is_whole = isinstance(error, Exception) and not is_only_described(error)
    pickled = pickled_exception(error.with_traceback(None)) if is_whole else None
    described = RemoteError(
        type=failure.error_type,
        message=failure.message,
        traceback=failure.remote_traceback,
        host=host,
        item=item,
    )
    return Outcome(error=described, pickled=pickled or b"")


def interrupted_outcome(host: str = "") -> Outcome:
    return Outcome(
        error=RemoteError(
            type="KeyboardInterrupt", message="it was interrupted", host=host, cancelled=True
        )
    )


def failed_outcome(kind: str, message: str, host: str = "", item: int | None = None) -> Outcome:
    """Return a failure without an exception; ``kind`` stands for its class: ``WorkerDied``."""
    return Outcome(error=RemoteError(type=kind, message=message, host=host, item=item))


def refused_outcome(error: RaysmError) -> Outcome:
    return Outcome(
        error=RemoteError(type=type(error).__name__, message=str(error)),
        pickled=pickled_exception(error) or b"",
    )


def describe_death(name: str, error: Exception) -> str:
    return f"the process of {name} {how_process_ended(error)}"
