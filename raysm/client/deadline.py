"""Until when somebody waits: seconds that a user gives flow in, a moment or a refusal flows out."""

import math
import time

from raysm.errors import InvalidRequest

__all__ = ["deadline"]


def deadline(timeout: float | None, remedy: str = "") -> float:
    """Return the moment of ``time.monotonic`` at which ``timeout`` seconds are over; infinite for None.

    Args:
        timeout: Seconds from now.
        remedy: What else the user may have meant, behind the sentence that says what is wrong.

    Raises:
        InvalidRequest: It is no number of seconds.
    """
    try:
        return math.inf if timeout is None else time.monotonic() + timeout
    # Of a text Python would say what cannot be added, far from the call that has it.
    except TypeError:
        raise InvalidRequest(f"timeout is a number of seconds, got {timeout!r}{remedy}") from None
