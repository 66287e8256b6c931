"""The ranges of a sweep's parameters, as frozen values that travel as JSON."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, get_args

from raysm.errors import InvalidRequest

Value: TypeAlias = str | int | float | bool | None
"""Types of a parameter: those of JSON without lists and objects."""

VARIED_BY = (0.8, 1.25)
"""Factors by which a population varies a number: those of the paper, https://arxiv.org/abs/1711.09846, appendix."""

N = TypeVar("N", int, float)


class Suggests(Protocol):
    """The methods of an Optuna trial that draw parameters."""

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None, log: bool) -> float:
        """Draw a float."""

    def suggest_int(self, name: str, low: int, high: int, *, step: int, log: bool) -> int:
        """Draw an integer."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Draw one of these."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Numbers from ``low`` to ``high``."""

    low: float
    """The lowest value."""
    high: float
    """The highest value, included."""

    def __post_init__(self) -> None:
        """Refuse an empty range."""
        for name, bound in (("lower", self.low), ("upper", self.high)):
            # type(), because True is an int.
            if type(bound) not in (int, float) or not math.isfinite(bound):
                raise InvalidRequest(f"{self}: the {name} bound must be a finite number, got {bound!r}")
        # Equal bounds too: Optuna's samplers divide by the length.
        if self.low >= self.high:
            raise InvalidRequest(f"{self}: the lower bound {self.low!r} must be below the upper one, {self.high!r}")

    def grid(self) -> tuple[Value, ...]:
        """Refuse a range of numbers.

        Raises:
            InvalidRequest: Always.
        """
        raise InvalidRequest(f"{self} has no finite set of values; for search='grid' list them: choice([…])")

    def listed(self) -> tuple[str, dict[str, Any]]:
        """Return its values as a categorical range of the service; raises InvalidRequest if they are infinite."""
        return Choice(self.grid()).tuned()

    def read(self, text: str) -> Value:
        """Parse a value of a tuning job of the service."""
        return float(text)

    def contains(self, value: object) -> bool:
        """Whether a value lies in the range."""
        return type(value) in (int, float) and self.low <= value <= self.high  # type: ignore[operator]  # a number

    def __str__(self) -> str:
        kind = getattr(self, "kind", "range")
        return f"{kind}({self.low!r}, {self.high!r})"


@dataclass(frozen=True, slots=True)
class Uniform(_Range):
    """A float, uniformly distributed."""

    kind: ClassVar[str] = "uniform"
    log: ClassVar[bool] = False

    def tuned(self) -> tuple[str, dict[str, Any]]:
        """Return it as a range of the service: the kind, and the fields without the name."""
        return "ContinuousParameterRanges", _bounds(self, self.log)

    def suggest(self, name: str, trial: Suggests) -> float:
        """Draw one."""
        return trial.suggest_float(name, self.low, self.high, step=None, log=self.log)

    def varied(self, value: Any, rng: random.Random) -> float:
        """Return a value near ``value``."""
        return _clipped(float(value) * rng.choice(VARIED_BY), self.low, self.high)


@dataclass(frozen=True, slots=True)
class LogUniform(Uniform):
    """A float, uniformly distributed on a logarithmic scale."""

    kind: ClassVar[str] = "loguniform"
    log: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _Range.__post_init__(self)  # super() would look for the class that slots=True has replaced
        _check_log(self)


@dataclass(frozen=True, slots=True)
class _Steps(_Range):
    step: float
    """Distance between two values, which begin at ``low``."""

    def tuned(self) -> tuple[str, dict[str, Any]]:
        """Return its values as a choice, since the service has no steps."""
        return self.listed()

    def __post_init__(self) -> None:
        _Range.__post_init__(self)
        if type(self.step) not in (int, float) or not 0 < self.step <= self.high - self.low:
            raise InvalidRequest(
                f"{self}: the step must be above 0 and at most {self.high - self.low:g}, the length of the range, "
                f"got {self.step!r}"
            )

    def _rounded(self, value: float) -> float:
        # 1e-9 of a step, since (0.3 - 0.0) / 0.1 is 2.9999999999999996.
        steps = min(round((value - self.low) / self.step), math.floor((self.high - self.low) / self.step + 1e-9))
        # 0.1 + 2 * 0.1 is 0.30000000000000004.
        return float(f"{self.low + max(0, steps) * self.step:.12g}")

    def __str__(self) -> str:
        kind = getattr(self, "kind", "steps")
        return f"{kind}({self.low!r}, {self.high!r}, {self.step!r})"


@dataclass(frozen=True, slots=True)
class QUniform(_Steps):
    """A float in whole steps."""

    kind: ClassVar[str] = "quniform"

    def suggest(self, name: str, trial: Suggests) -> float:
        """Draw one."""
        return trial.suggest_float(name, self.low, self.high, step=self.step, log=False)

    def varied(self, value: Any, rng: random.Random) -> float:
        """Return a value near ``value``: one step up or down."""
        return self._rounded(_clipped(float(value) + rng.choice((-1, 1)) * self.step, self.low, self.high))

    def grid(self) -> tuple[Value, ...]:
        """Return all values."""
        count = math.floor((self.high - self.low) / self.step + 1e-9) + 1
        return tuple(self._rounded(self.low + number * self.step) for number in range(count))


@dataclass(frozen=True, slots=True)
class QLogUniform(_Steps):
    """A float in whole steps, on a logarithmic scale."""

    kind: ClassVar[str] = "qloguniform"

    def __post_init__(self) -> None:
        _Steps.__post_init__(self)
        _check_log(self)

    def suggest(self, name: str, trial: Suggests) -> float:
        """Draw one. Optuna has no steps on a logarithmic scale, so the value is rounded."""
        return self._rounded(trial.suggest_float(name, self.low, self.high, step=None, log=True))

    def varied(self, value: Any, rng: random.Random) -> float:
        """Return a value near ``value``."""
        return self._rounded(_clipped(float(value) * rng.choice(VARIED_BY), self.low, self.high))


@dataclass(frozen=True, slots=True)
class RandInt(_Range):
    """An integer from ``low`` to ``high``, both included."""

    kind: ClassVar[str] = "randint"
    log: ClassVar[bool] = False

    low: int
    high: int

    def __post_init__(self) -> None:
        for bound in (self.low, self.high):
            if type(bound) is not int:
                raise InvalidRequest(f"{self}: the bounds must be integers, got {bound!r}; of floats take uniform")
        _Range.__post_init__(self)

    def tuned(self) -> tuple[str, dict[str, Any]]:
        """Return it as a range of the service's."""
        return "IntegerParameterRanges", _bounds(self, self.log)

    def read(self, text: str) -> Value:
        """Return the integer that a tuning job writes so."""
        return int(text)

    def suggest(self, name: str, trial: Suggests) -> int:
        """Draw one."""
        return trial.suggest_int(name, self.low, self.high, step=1, log=self.log)

    def varied(self, value: Any, rng: random.Random) -> int:
        """Return a value near ``value``, another one where there is one."""
        # Of small integers a fifth more or less rounds back to the same: then it is a step of one.
        near = round(value * rng.choice(VARIED_BY))
        return int(_clipped(near if near != value else value + rng.choice((-1, 1)), self.low, self.high))

    def grid(self) -> tuple[Value, ...]:
        """Return all values."""
        return tuple(range(self.low, self.high + 1))


@dataclass(frozen=True, slots=True)
class LogRandInt(RandInt):
    """An integer, each order of magnitude as likely as any other."""

    kind: ClassVar[str] = "lograndint"
    log: ClassVar[bool] = True

    def __post_init__(self) -> None:
        RandInt.__post_init__(self)
        _check_log(self)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values."""

    kind: ClassVar[str] = "choice"

    values: tuple[Any, ...]
    """Texts, numbers, true, false or null."""

    def __post_init__(self) -> None:
        """Refuse an empty choice, and what would not travel."""
        # A text is a sequence of its letters, which nobody means by it.
        if isinstance(self.values, str) or not isinstance(self.values, Sequence):
            raise InvalidRequest(f"choice takes a list of values, choice([32, 64]), got {self.values!r}")
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise InvalidRequest("choice([]) has nothing to choose from; name at least one value")
        for value in self.values:
            # type(), so that NumPy's numbers are refused: they do not travel as JSON.
            if type(value) not in get_args(Value):
                raise InvalidRequest(
                    f"{self}: a value is a text, a number, True, False or None, got {value!r}; choose among names, and "
                    "look up in the function what each stands for"
                )

    def suggest(self, name: str, trial: Suggests) -> Any:
        """Draw one."""
        return trial.suggest_categorical(name, self.values)

    def varied(self, value: Any, rng: random.Random) -> Any:
        """Return a value beside ``value``: the one before or after it."""
        # Beside it in the order in which they were written: lists of sizes stand in theirs.
        at = self.values.index(value) if value in self.values else 0
        return self.values[int(_clipped(at + rng.choice((-1, 1)), 0, len(self.values) - 1))]

    def grid(self) -> tuple[Value, ...]:
        """Return all values."""
        return self.values

    def tuned(self) -> tuple[str, dict[str, Any]]:
        """Return it as a range of the service's, whose values are texts: plain ones as they are, of all else its JSON.

        Raises:
            InvalidRequest: Two of its values would be one text.
        """
        texts = [_text(value) for value in self.values]
        if len(set(texts)) != len(texts):
            raise InvalidRequest(f"{self}: for the service all values are texts, and two of these would be the same")
        return "CategoricalParameterRanges", {"Values": texts}

    def listed(self) -> tuple[str, dict[str, Any]]:
        """Return the same: it is a list already."""
        return self.tuned()

    def read(self, text: str) -> Value:
        """Return the value that a tuning job writes so."""
        # Of those alone that were chosen among: another text was written by another process.
        values: dict[str, Value] = {_text(value): value for value in self.values}
        return values[text]

    def contains(self, value: object) -> bool:
        """Whether a value is one of them."""
        return value in self.values

    def __str__(self) -> str:
        return f"choice({list(self.values)!r})"


# A union, and not a registry: the codec reads from it which classes JSON may become.
Parameter: TypeAlias = Uniform | LogUniform | QUniform | QLogUniform | RandInt | LogRandInt | Choice
"""All ranges; add the class of a new one here."""


def uniform(low: float, high: float) -> Uniform:
    """Return a range of floats from ``low`` to ``high``."""
    return Uniform(low, high)


def loguniform(low: float, high: float) -> LogUniform:
    """Return a range of floats on a logarithmic scale, for example of learning rates."""
    return LogUniform(low, high)


def quniform(low: float, high: float, step: float) -> QUniform:
    """Return a range of floats from ``low`` to at most ``high`` in steps."""
    return QUniform(low, high, step)


def qloguniform(low: float, high: float, step: float) -> QLogUniform:
    """Return a range of floats in steps from ``low``, on a logarithmic scale."""
    return QLogUniform(low, high, step)


def randint(low: int, high: int) -> RandInt:
    """Return a range of integers from ``low`` to ``high``, both included."""
    return RandInt(low, high)


def lograndint(low: int, high: int) -> LogRandInt:
    """Return a range of integers on a logarithmic scale, both ends included."""
    return LogRandInt(low, high)


def choice(values: Sequence[Value]) -> Choice:
    """Return a choice among values."""
    return Choice(tuple(values) if isinstance(values, list) else values)  # type: ignore[arg-type]  # Choice refuses it


def _bounds(item: _Range, log: bool) -> dict[str, Any]:
    scale = "Logarithmic" if log else "Linear"
    return {"MinValue": str(item.low), "MaxValue": str(item.high), "ScalingType": scale}


def _text(value: Value) -> str:
    return value if isinstance(value, str) and not _is_json(value) else json.dumps(value)


def _is_json(text: str) -> bool:
    # It travels in quotation marks: who attaches to the tuning job without its sweep could not tell "1" from 1.
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _check_log(item: _Range) -> None:
    if item.low <= 0:
        raise InvalidRequest(f"{item}: a logarithm needs a lower bound above 0, got {item.low!r}")


def _clipped(value: N, low: N, high: N) -> N:
    return min(max(value, low), high)
