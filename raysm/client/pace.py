"""How long, and how fast, in the words of people. Pure: seconds flow in, text flows out."""

__all__ = ["duration", "rate"]

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
