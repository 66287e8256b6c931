"""Check the arguments of a session's methods, so that an error names the argument before anything is sent."""

import math
from typing import Any

from raysm.errors import InvalidRequest

__all__ = ["check_instance", "check_number", "check_text", "check_whole"]


def check_number(what: str, value: Any, *, least: float = 0.0, example: str) -> None:
    """Check that a value is a finite number of at least ``least``.

    Args:
        what: Name of the argument for the message: ``map: num_cpus``.
        value: The user's value.
        least: The minimum.
        example: A valid argument, for the message.

    Raises:
        InvalidRequest: The value is not such a number.
    """
    # bool is a number in Python, but never meant as one here.
    is_number = not isinstance(value, (bool, str, bytes)) and hasattr(value, "__float__")
    if not is_number or not (least <= float(value) < math.inf):
        raise InvalidRequest(f"{what} must be a number of at least {least:g}, got {value!r}; {example}, say")


def check_whole(what: str, value: Any, *, least: int = 0, most: int | None = None) -> None:
    """Check that a value is a whole number from ``least`` to ``most``.

    Args:
        what: Name of the argument for the message.
        value: The user's value; numpy's integers are allowed.
        least: The minimum.
        most: The maximum; None is no limit.

    Raises:
        InvalidRequest: The value is not such a number.
    """
    is_whole = not isinstance(value, bool) and hasattr(value, "__index__")
    if not is_whole or value < least or (most is not None and value > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InvalidRequest(f"{what} must be a whole number {span}, got {value!r}")


def check_text(what: str, value: Any, example: str) -> None:
    """Check that a value is a string that is not blank.

    Args:
        what: Name of the argument for the message: ``exec: source``.
        value: The user's value.
        example: A valid argument, for the message.

    Raises:
        InvalidRequest: The value is not such a string.
    """
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{what} must be a text, got {value!r}; {example}, say")


def check_instance(function: str, on: Any) -> None:
    """Check that a value can be the name of an instance. The head checks later that this instance exists.

    Args:
        function: The session's method, for the message.
        on: The user's value; None is the head.

    Raises:
        InvalidRequest: The value is neither None nor such a name.
    """
    if on is not None:
        check_text(f"{function}: on", on, "on='algo-2'")
