"""The ranges of a tuning job: what flows in is ``ParameterRanges``, what flows out are values as texts, and points.

A point of a range is a number from 0 to 1, by the range's scale: strategies know nothing else of a parameter. A value
is the text that a training job finds among its hyperparameters.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from raysm.local.server.api_error import validation

__all__ = ["Categorical", "Continuous", "Integer", "Range", "combinations", "read_ranges"]

AUTO_LOGARITHMIC = 1000.0
"""How many times the lower bound the upper one is where ``Auto`` means logarithmic: AWS says only that it chooses."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How the points of a range lie on its values."""

    forth: Callable[[float], float]
    """From a value to where it lies."""
    back: Callable[[float], float]
    """And back."""
    takes: Callable[[float, float], bool] = lambda low, high: True
    """Whether there is such a scale from ``low`` to ``high``."""
    needs: str = ""
    """What it takes, for people."""


LINEAR = Scale(lambda value: value, lambda place: place)
LOGARITHMIC = Scale(math.log, math.exp, lambda low, high: low > 0, "values greater than 0")
SCALES: Mapping[str, Scale] = {
    "Linear": LINEAR,
    "Logarithmic": LOGARITHMIC,
    # Fine near 1: momentum, 0.9 to 0.999.
    "ReverseLogarithmic": Scale(
        lambda value: -math.log1p(-value),
        lambda place: -math.expm1(-place),
        lambda low, high: 0 <= low and high < 1,
        "values from 0 to less than 1",
    ),
}
"""By ScalingType; ``Auto`` chooses one of the first two.
https://docs.aws.amazon.com/sagemaker/latest/dg/automatic-model-tuning-define-ranges.html says what each is for."""


class Range(Protocol):
    """What may be tried of one hyperparameter."""

    @property
    def name(self) -> str:
        """Of the hyperparameter."""

    @property
    def count(self) -> float:
        """How many values there are; infinity where there is no end of them."""

    @property
    def values(self) -> Sequence[str]:
        """All of them, where they can be listed; only a range of choices can."""

    def at(self, point: float) -> str:
        """Return the value at a point."""

    def point(self, value: str) -> float | None:
        """Return the point of a value; None where it does not lie in the range."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Categorical:
    """One of some texts."""

    name: str
    values: Sequence[str]

    @property
    def count(self) -> float:
        """How many there are."""
        return len(self.values)

    def at(self, point: float) -> str:
        """Return the text whose share of 0 to 1 the point lies in."""
        return self.values[min(len(self.values) - 1, int(point * len(self.values)))]

    def point(self, value: str) -> float | None:
        """Return the middle of the text's share."""
        return (self.values.index(value) + 0.5) / len(self.values) if value in self.values else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Continuous:
    """Any number from ``low`` to ``high``."""

    name: str
    low: float
    high: float
    scale: Scale

    @property
    def count(self) -> float:
        """No end, but of a range of one value."""
        return math.inf if self.low < self.high else 1

    @property
    def values(self) -> Sequence[str]:
        """None can be listed."""
        return ()

    def at(self, point: float) -> str:
        """Return the number at a point."""
        number = self._spread(point)
        # What is computed by logarithms may lie beside a bound by the last digit.
        return repr(float(min(max(number, self.low), self.high)))

    def point(self, value: str) -> float | None:
        """Return the point of a number."""
        number = _number(value)
        if number is None or not self.low <= number <= self.high:
            return None
        first, last = self.scale.forth(self.low), self.scale.forth(self.high)
        return (self.scale.forth(number) - first) / (last - first) if last > first else 0.5

    def _spread(self, point: float) -> float:
        first, last = self.scale.forth(self.low), self.scale.forth(self.high)
        return self.scale.back(first + point * (last - first))


@dataclass(frozen=True, kw_only=True, slots=True)
class Integer:
    """Any whole number from ``low`` to ``high``, both of them too."""

    name: str
    low: int
    high: int
    scale: Scale

    @property
    def count(self) -> float:
        """How many there are."""
        return self.high - self.low + 1

    @property
    def values(self) -> Sequence[str]:
        """None are listed: AWS's grids are of choices alone."""
        return ()

    def at(self, point: float) -> str:
        """Return the whole number at a point; each has the same share of a linear range."""
        first, last = self._bounds()
        number = round(self.scale.back(first + point * (last - first)))
        return str(min(max(number, self.low), self.high))

    def point(self, value: str) -> float | None:
        """Return the point of a whole number."""
        number = _number(value)
        if number is None or number != int(number) or not self.low <= number <= self.high:
            return None
        first, last = self._bounds()
        return (self.scale.forth(number) - first) / (last - first)

    def _bounds(self) -> tuple[float, float]:
        # Half a number more at either end: rounded, the first and the last would else have half the share of others.
        return self.scale.forth(self.low - 0.5), self.scale.forth(self.high + 0.5)


def read_ranges(ranges: Mapping[str, Any]) -> tuple[Range, ...]:
    """Return the ranges of a request, in the order in which they stand there.

    Raises:
        ApiError: One of them is none.
    """
    if ranges.get("AutoParameters"):
        raise validation("AutoParameters are not available here: give each hyperparameter a range of its own")
    read: list[Range] = [
        *(_categorical(item) for item in ranges.get("CategoricalParameterRanges") or []),
        *(_integer(item) for item in ranges.get("IntegerParameterRanges") or []),
        *(_continuous(item) for item in ranges.get("ContinuousParameterRanges") or []),
    ]
    names = [item.name for item in read]
    for name in names:
        if names.count(name) > 1:
            raise validation(f"The hyperparameter {name!r} has more than one range")
    return tuple(read)


def combinations(ranges: Sequence[Range]) -> float:
    """Return how many combinations there are; infinity where there is no end of them."""
    return math.prod(item.count for item in ranges)


def _categorical(item: Mapping[str, Any]) -> Categorical:
    values = list(item["Values"])
    if len(set(values)) != len(values):
        raise validation(f"The categorical hyperparameter {item['Name']!r} has a value twice: {', '.join(values)}")
    return Categorical(name=item["Name"], values=values)


def _continuous(item: Mapping[str, Any]) -> Continuous:
    low, high = _limits(item)
    return Continuous(name=item["Name"], low=low, high=high, scale=_scale(item, low, high))


def _integer(item: Mapping[str, Any]) -> Integer:
    low, high = _limits(item)
    if low != int(low) or high != int(high):
        raise validation(
            f"The integer hyperparameter {item['Name']!r} has the bounds {item['MinValue']} and {item['MaxValue']}: "
            "give whole numbers"
        )
    if item.get("ScalingType") == "ReverseLogarithmic":
        raise validation(f"ReverseLogarithmic is not supported for the integer hyperparameter {item['Name']!r}")
    return Integer(name=item["Name"], low=int(low), high=int(high), scale=_scale(item, low, high))


def _limits(item: Mapping[str, Any]) -> tuple[float, float]:
    low, high = _number(item["MinValue"]), _number(item["MaxValue"])
    if low is None or high is None or low > high:
        raise validation(
            f"The hyperparameter {item['Name']!r} goes from {item['MinValue']!r} to {item['MaxValue']!r}: give two "
            "numbers, the smaller one first"
        )
    return low, high


def _scale(item: Mapping[str, Any], low: float, high: float) -> Scale:
    kind = item.get("ScalingType") or "Auto"
    if kind == "Auto":
        return LOGARITHMIC if low > 0 and high / low >= AUTO_LOGARITHMIC else LINEAR
    scale = SCALES[kind]
    if not scale.takes(low, high):
        raise validation(
            f"The hyperparameter {item['Name']!r} goes from {item['MinValue']} to {item['MaxValue']}, and a "
            f"{kind} scale takes {scale.needs}"
        )
    return scale


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
