"""Check the arguments of a session's methods, so that an error names the argument before anything is sent."""

import math
from typing import Any

from raysm.errors import InvalidRequest


def check_number(what: str, value: Any, *, least: float = 0.0, example: str) -> None:
    # bool is a number in Python, but never meant as one here.
    is_number = not isinstance(value, (bool, str, bytes)) and hasattr(value, "__float__")
    if not is_number or not (least <= float(value) < math.inf):
        raise InvalidRequest(
            f"{what} must be a number of at least {least:g}, got {value!r}; {example}, say"
        )


def check_whole(what: str, value: Any, *, least: int = 0, most: int | None = None) -> None:
    is_whole = not isinstance(value, bool) and hasattr(value, "__index__")
    if not is_whole or value < least or (most is not None and value > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InvalidRequest(f"{what} must be a whole number {span}, got {value!r}")


def check_text(what: str, value: Any, example: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{what} must be a text, got {value!r}; {example}, say")


def check_instance(function: str, on: Any) -> None:
    """Check that a value can be the name of an instance. The head checks later that this instance exists."""
    if on is not None:
        check_text(f"{function}: on", on, "on='algo-2'")
