"""Check arguments of a session's methods, so that errors name them before anything is sent."""

import math
from collections.abc import Callable
from typing import Any

from raysm.errors import InvalidRequest


def check_number(what: str, value: Any, *, minimum: float = 0.0, example: str) -> None:
    _check_number(
        what, value, example, f"of at least {minimum:g}", lambda number: number >= minimum
    )


def check_above_0(what: str, value: Any, *, example: str) -> None:
    _check_number(what, value, example, "above 0", lambda number: number > 0)


def _check_number(
    what: str, value: Any, example: str, span: str, is_in: Callable[[float], bool]
) -> None:
    # bool is a number in Python, but never meant as one here.
    is_number = not isinstance(value, (bool, str, bytes)) and hasattr(value, "__float__")
    if not is_number or not math.isfinite(float(value)) or not is_in(float(value)):
        raise InvalidRequest(f"{what} must be a number {span}, got {value!r}; {example}, say")


def check_integer(what: str, value: Any, *, minimum: int = 0, maximum: int | None = None) -> None:
    is_integer = not isinstance(value, bool) and hasattr(value, "__index__")
    if not is_integer or value < minimum or (maximum is not None and value > maximum):
        span = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise InvalidRequest(f"{what} must be a whole number {span}, got {value!r}")


def check_string(what: str, value: Any, example: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{what} must be a string, got {value!r}; {example}, say")


def check_instance(function: str, on: Any) -> None:
    """Check that a value can name an instance; the head checks later that this instance exists."""
    if on is not None:
        check_string(f"{function}: on", on, "on='algo-2'")
