"""Durations and rates for people, timeouts, and the version of Python."""

import math
import sys
import time

from raysm.errors import InvalidRequest

__all__ = [
    "check_python",
    "deadline",
    "duration",
    "python_version",
    "rate",
]


SPANS = ((1, "s"), (60, "min"), (3600, "h"))
"""What a rate is told by, the shortest first."""


def duration(seconds: float) -> str:
    """Return a time: ``45 s``, ``5 min 3 s``, ``2 h 10 min``."""
    # Rounded first: 59.6 s is 1 min 0 s, and never 0 min 60 s.
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def rate(per_s: float, unit: str) -> str:
    """Return a rate by the shortest span in which there is one: ``500 rows/s``, ``1.5 trials/min``, ``0.5 trials/h``.

    Args:
        per_s: In a second.
        unit: Of what.
    """
    # A trial takes minutes: by the second, all sweeps had 0 of them.
    seconds, name = next((span for span in SPANS if per_s * span[0] >= 1), SPANS[-1])
    count = per_s * seconds
    return f"{f'{count:,.0f}' if count >= 10 else f'{count:.2g}'} {unit}/{name}"


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


def python_version() -> str:
    """Return this Python's version as a PickledFunction says it, ``3.11``."""
    # Without the third number: releases that only mend share their bytecode. Not by platform, which is 2 ms to import.
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def check_python(expected: str, what: str) -> None:
    """Refuse to unpickle what another Python pickled.

    Raises:
        InvalidRequest: This Python is not ``expected``.
    """
    # cloudpickle's bytes hold bytecode, of which each minor version has its own.
    if expected != python_version():
        raise InvalidRequest(
            f"{what} was pickled by Python {expected}, and this is Python {python_version()}, which may read it "
            f"wrongly; ask for the result under Python {expected}"
        )
