"""Durations as users write and read them: ``90s``, ``30m``, ``2h``, ``1d``, ``1w``."""

import re

from raysm.errors import InvalidRequest

UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
WRITTEN = re.compile(rf"([0-9]{{1,30}}(?:\.[0-9]+)?)\s*({'|'.join(UNITS_S)})?")


def parse_duration(text: str, *, bare: str | None = None) -> float:
    """Return a duration in seconds, an int if it is whole.

    Args:
        text: A number with a unit of ``UNITS_S``.
        bare: The unit of a number without one; None refuses such a number.

    Raises:
        InvalidRequest: The text is no duration, or has no unit where one is needed.
    """
    found = WRITTEN.fullmatch(text.strip())
    if found is None:
        number = "" if bare is None else f", or a number without a unit, {bare!r} then"
        raise InvalidRequest(
            f"{text[:40]!r} is not a duration; write 90s, 30m, 2h, 1d or 1w{number}"
        )
    unit = found[2] or bare
    if unit is None:
        raise InvalidRequest(f"{text!r} has no unit; write {text}s, {text}m or {text}h")
    seconds = float(found[1]) * UNITS_S[unit]
    return int(seconds) if seconds.is_integer() else seconds


def duration(seconds: float) -> str:
    """Return a duration to the second, or above an hour to the minute.

    Examples are ``1 min 30 s`` and ``2 h 5 min``.
    """
    # Rounded first, so that 59.6 s is 1 min 0 s and not 0 min 60 s.
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    if minutes:
        return f"{minutes} min {rest} s"
    return f"{rest} s"


def brief_duration(seconds: float) -> str:
    """Return a duration of which the size matters, not the seconds: a limit, or an estimate."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
