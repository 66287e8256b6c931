"""Axes: which values are marked, how they are written, and where they lie. Pure: ranges flow in, ticks flow out."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Scale", "elapsed", "linear", "logarithmic", "text_width"]

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Distances between marks that people can add up, times a power of ten."""

SUFFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
"""From 10,000 on: so that a label is never longer than six characters."""

CLOCK = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
"""Units of a duration, in seconds."""

CHARACTER = 0.58
"""Width of a character of a sans-serif font by its size, on average: what draws the text is not asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """One axis."""

    low: float
    """The value at its begin."""
    high: float
    """The value at its end."""
    ticks: tuple[tuple[float, str], ...]
    """The marked values, each with its label."""
    place: Callable[[float], float]
    """Where a value lies: 0 at the begin, 1 at the end."""


def text_width(text: str, size: float) -> float:
    """Return about how wide a text of a font of ``size`` is, in the unit of the size."""
    # Characters of East Asian scripts are about as wide as high.
    return sum(1.0 if ord(character) > 0x2E80 else CHARACTER for character in text) * size


def linear(values: Iterable[float], most: int) -> Scale:
    """Return an axis for ``values``, from mark to mark.

    Args:
        values: Finite; none at all is 0 to 1.
        most: At most so many marks.
    """
    low, high = _range(values)
    # Steps that people count in: 1, 2, 2.5, 5 times a power of ten.
    step = _step(high - low, most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [(index * step, _label(index * step, step)) for index in range(first, last + 1)]
    return _scale(first * step, last * step, ticks)


def elapsed(values: Iterable[float], most: int) -> Scale:
    """Return an axis for seconds, in the largest unit of which they have two or more."""
    every = list(values)
    low, high = _range(every)
    if every and min(every) == max(every):
        # A single moment: of a second before and behind it nobody knows anything.
        return _scale(low, high, [(every[0], f"{every[0]:.3g} s")])
    size, unit = next(((size, unit) for size, unit in CLOCK if high - low >= 2 * size), CLOCK[-1])
    inner = linear([low / size, high / size], most)
    ticks = [(value * size, f"{text} {unit}") for value, text in inner.ticks]
    return _scale(low, high, [(value, text) for value, text in ticks if low <= value <= high])


def logarithmic(values: Iterable[float], most: int) -> Scale:
    """Return an axis on which powers of ten lie side by side; values of 0 and below have no place on it.

    Args:
        values: Finite; those above 0 count.
        most: At most so many marks.
    """
    positive = [value for value in values if value > 0]
    low = math.floor(math.log10(min(positive))) if positive else 0
    # At least one power: all values may be equal, and just a power of ten.
    high = max(math.ceil(math.log10(max(positive))) if positive else 1, low + 1)
    every = math.ceil((high - low + 1) / max(2, most))
    ticks = tuple((10.0**power, f"{10.0**power:g}") for power in range(low, high + 1, every))
    return Scale(
        low=10.0**low,
        high=10.0**high,
        ticks=ticks,
        place=lambda value: (math.log10(value) - low) / (high - low) if value > 0 else math.nan,
    )


def _scale(low: float, high: float, ticks: Sequence[tuple[float, str]]) -> Scale:
    return Scale(low=low, high=high, ticks=tuple(ticks), place=lambda value: (value - low) / (high - low))


def _range(values: Iterable[float]) -> tuple[float, float]:
    every = list(values) or [0.0, 1.0]
    low, high = min(every), max(every)
    # As good as one value, which lies in the middle; in proportion to it, since beside 1e17 a 1 is nothing.
    is_one = high - low <= max(abs(low), abs(high)) * 1e-9 + 1e-290
    around = abs(low) * 0.1 if abs(low) > 1e-280 else 0.5
    half = around if is_one else 0.0
    return low - half, high + half


def _step(span: float, most: int) -> float:
    rough = span / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * step for step in STEPS if power * step >= rough * (1 - 1e-9))


def _label(value: float, step: float) -> str:
    """Return a marked value with as many digits as tell it from its neighbours."""
    size, suffix = next(((size, suffix) for size, suffix in SUFFIXES if abs(value) >= max(size, 1e4)), (1.0, ""))
    if 0 < step < 1e-4:
        return f"{value:.3g}" if abs(value) >= step / 2 else "0"
    decimals = max(0, -math.floor(math.log10(step / size) + 1e-9))
    # 2.5 needs a digit more than its power of ten.
    decimals += round(step / size * 10**decimals, 6) % 1 != 0
    return f"{value / size:.{decimals}f}{suffix}"
