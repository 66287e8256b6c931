"""How a notebook shows what went wrong: a remote traceback as if the cell had run here, raysm's own errors in a line.

What flows in is an exception, what flows out is one that IPython shows so: it asks an exception for
``_render_traceback_()`` before it draws one of its own, whose frames would be raysm's.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

from raysm.client.session.calls import Call
from raysm.contract.session import RemoteError
from raysm.errors import CallFailed, RaysmError

__all__ = ["in_one_line", "interrupted", "remote"]

UNASKED = (SyntaxError, BaseExceptionGroup)
"""Exceptions that IPython draws by itself, without asking."""


def remote(call: Call[Any], error: Exception) -> Exception:
    """Return the exception of a call, to be shown with the frames of the session and none of this process."""
    failure = _told(call)
    if failure is None:
        return in_one_line(error)
    lines = (failure.traceback or failure.headline).rstrip().splitlines()
    if isinstance(error, UNASKED):
        error = CallFailed(failure.message, error_type=failure.type, remote_traceback=failure.traceback)
    return _shown_as(error, lines)


def in_one_line(error: Exception) -> Exception:
    """Return an exception that is shown without frames; one that is none of raysm's as it is."""
    return _shown_as(error, [f"{type(error).__name__}: {error}"]) if isinstance(error, RaysmError) else error


def interrupted(session: str) -> KeyboardInterrupt:
    """Return what a cell ends with that was interrupted."""
    error = KeyboardInterrupt()
    text = f"KeyboardInterrupt: the cell was interrupted; the session {session} and its namespace are still there"
    _show(error, [text])
    return error


def _told(call: Call[Any]) -> RemoteError | None:
    """Return what the session says of the failure; None where it was the connection that failed."""
    with contextlib.suppress(RaysmError):
        return call.outcome()[1].error
    return None


def _shown_as(error: Exception, lines: Sequence[str]) -> Exception:
    try:
        _show(error, lines)
    except AttributeError:  # a class of the user's with slots
        error = CallFailed("\n".join(lines), error_type=type(error).__name__)
        _show(error, lines)
    return error


def _show(error: BaseException, lines: Sequence[str]) -> None:
    error._render_traceback_ = lambda: list(lines)  # type: ignore[attr-defined]
