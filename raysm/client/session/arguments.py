"""What a session's user gives, checked where it is given: values flow in, a refusal with value and remedy flows out.

Unchecked they fail far away: as a TypeError of asyncio's, or on the head, where a text of arguments had become its
letters.
"""

import math
from typing import Any

from raysm.errors import InvalidRequest

__all__ = ["check_instance", "check_number", "check_text", "check_whole"]


def check_number(what: str, value: Any, *, least: float = 0.0, example: str) -> None:
    """Refuse what is no number of at least ``least``, or is without end.

    Args:
        what: Whose, for the message: ``map: num_cpus``.
        value: As the user gave it.
        least: The smallest one that will do.
        example: What would do, as the user would write it.

    Raises:
        InvalidRequest: The message has the value.
    """
    # bool is a number to Python, and never one that somebody meant.
    is_number = not isinstance(value, (bool, str, bytes)) and hasattr(value, "__float__")
    if not is_number or not (least <= float(value) < math.inf):
        raise InvalidRequest(f"{what} must be a number of at least {least:g}, got {value!r}; {example}, say")


def check_whole(what: str, value: Any, *, least: int = 0, most: int | None = None) -> None:
    """Refuse what is no whole number from ``least`` to ``most``.

    Args:
        what: Whose, for the message.
        value: As the user gave it; numpy's whole numbers are such, too.
        least: The smallest one that will do.
        most: The largest one; None is without end.

    Raises:
        InvalidRequest: The message has the value.
    """
    is_whole = not isinstance(value, bool) and hasattr(value, "__index__")
    if not is_whole or value < least or (most is not None and value > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InvalidRequest(f"{what} must be a whole number {span}, got {value!r}")


def check_text(what: str, value: Any, example: str) -> None:
    """Refuse what is no text, or an empty one.

    Args:
        what: Whose, for the message: ``exec: source``.
        value: As the user gave it.
        example: What would do, as the user would write it.

    Raises:
        InvalidRequest: The message has the value.
    """
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{what} must be a text, got {value!r}; {example}, say")


def check_instance(function: str, on: Any) -> None:
    """Refuse what cannot be the name of an instance; which there are the head knows alone.

    Args:
        function: Of the session, for the message.
        on: As the user gave it; None is the head.

    Raises:
        InvalidRequest: The message has the value.
    """
    if on is not None:
        check_text(f"{function}: on", on, "on='algo-2'")
