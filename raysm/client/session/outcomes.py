"""What a call's outcome becomes here: a value, or an exception as near to the remote one as can be.

What flows in is an ``Outcome``, what flows out is what the user's code gets.
"""

import pickle
from collections.abc import Callable
from typing import Any

from raysm.contract.session import Outcome, RemoteError
from raysm.errors import CallCancelled, CallFailed

__all__ = ["Shown", "error_of", "value_of"]


class Shown:
    """What the last line of a cell shows: its text by ``str``, and in a notebook as the value would show itself.

    Attributes:
        data: By MIME type; ``text/plain`` always, pictures in base64.
    """

    def __init__(self, data: dict[str, str]) -> None:
        """Keep it."""
        self.data = data

    def __repr__(self) -> str:
        return self.data.get("text/plain", "")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return self.data


def value_of(outcome: Outcome, name: str, loads: Callable[[bytes], Any] = pickle.loads) -> Any:
    """Return the value of a call that did not fail.

    Args:
        outcome: How it ended.
        name: Of the call.
        loads: Reads a pickle of the session's.

    Raises:
        CallFailed: It cannot be read here.
    """
    if outcome.shown:
        return Shown(dict(outcome.shown))
    # None, which most calls return, is sent as nothing.
    if not outcome.pickled:
        return None
    try:
        return loads(outcome.pickled)
    except Exception as error:  # unpickling runs the value's own code
        raise CallFailed(
            f"the value of {name} cannot be read here: {type(error).__name__}: {error}; return plain data, or install "
            "here what its class needs",
            error_type=type(error).__name__,
        ) from error


def error_of(
    error: RemoteError, pickled: bytes, name: str, session: str, loads: Callable[[bytes], Any] = pickle.loads
) -> BaseException:
    """Return why a call failed: the exception itself where it can be made anew here, with the remote frames as a note.

    Args:
        error: What is known of it.
        pickled: The exception; empty where it did not survive.
        name: Of the call.
        session: Its name.
        loads: Reads a pickle of the session's.
    """
    if error.cancelled:
        return CallCancelled(f"{name} was interrupted")
    where = f"in the session {session}" + (f" on {error.host}" if error.host else "")
    note = f"{where}:\n{error.traceback.rstrip()}" if error.traceback else f"raised {where}"
    # The user's except clauses go by its class: CallFailed only where that cannot be had.
    raised = _made_anew(pickled, loads)
    if raised is None:
        text = f"{error.headline}\n\n{note}" if error.traceback else error.headline
        return CallFailed(text, error_type=error.type, remote_traceback=error.traceback)
    # What raysm itself refused has no frames of anybody's.
    if error.traceback:
        raised.add_note(note)
    return raised


def _made_anew(pickled: bytes, loads: Callable[[bytes], Any]) -> Exception | None:
    if not pickled:
        return None
    try:
        value = loads(pickled)
    except Exception:  # its class may not be here, or want other arguments
        return None
    # SystemExit or KeyboardInterrupt of there would end the program here.
    return value if isinstance(value, Exception) else None
