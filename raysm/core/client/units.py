"""Rates for people, timeouts, and the version of Python."""

import math
import sys
import time

from raysm.errors import InvalidRequest

PYTHON_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
"""This Python, ``3.11``: patch releases share their bytecode, which cloudpickle's pickles
contain."""

SPANS = ((1, "s"), (60, "min"), (3600, "h"))


def rate(per_s: float, unit: str) -> str:
    """Return a rate per second, minute or hour, the first that is at least 1.

    Examples are ``500 rows/s`` and ``1.5 trials/min``.
    """
    seconds, name = next((span for span in SPANS if per_s * span[0] >= 1), SPANS[-1])
    count = per_s * seconds
    return f"{f'{count:,.0f}' if count >= 10 else f'{count:.2g}'} {unit}/{name}"


def deadline(timeout: float | None, remedy: str = "") -> float:
    try:
        return math.inf if timeout is None else time.monotonic() + timeout
    except TypeError:
        raise InvalidRequest(f"timeout is a number of seconds, got {timeout!r}{remedy}") from None


def check_python(expected: str, what: str) -> None:
    if expected != PYTHON_VERSION:
        raise InvalidRequest(
            f"{what} was pickled by Python {expected}, and this is Python {PYTHON_VERSION}, "
            f"which may read it wrongly; ask for the result under Python {expected}"
        )
