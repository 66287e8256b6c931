"""The ranges of a sweep's parameters, as JSON and as a command line has them.

An example of the latter is ``loguniform:1e-4:1e-1``.
"""

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, get_args

from raysm.core.request.codec import from_json
from raysm.errors import InvalidRequest

Value: TypeAlias = str | int | float | bool | None
VARIED_BY = (0.8, 1.25)
"""Factors by which population based training varies a number: https://arxiv.org/abs/1711.09846,
appendix."""


MAX_LISTED = 30
"""Values of a CategoricalParameterRange, by the service's model."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``, both included."""

    kind: ClassVar[str] = "range"

    low: float
    high: float
    step: float | None = None
    """Distance between two values, which begin at ``low``; None if there are no steps."""
    log: bool = False
    """Draw on a logarithmic scale: each order of magnitude is equally likely."""
    is_integer: bool = False

    def __post_init__(self) -> None:
        for name, bound in (("lower", self.low), ("upper", self.high)):
            # type(), because True is an int.
            if type(bound) not in (int, float) or not math.isfinite(bound):
                raise InvalidRequest(
                    f"{self}: the {name} bound must be a finite number, got {bound!r}"
                )
        if self.is_integer:
            for name in ("low", "high"):
                bound = getattr(self, name)
                if bound != int(bound):
                    raise InvalidRequest(
                        f"{self}: the bounds must be integers, got {bound!r}; of floats take "
                        "uniform"
                    )
                # The codec reads the bounds as floats.
                object.__setattr__(self, name, int(bound))
        # Equal bounds too: Optuna's samplers divide by the length.
        if self.low >= self.high:
            raise InvalidRequest(
                f"{self}: the lower bound {self.low!r} must be below the upper one, {self.high!r}"
            )
        if self.step is not None and (
            type(self.step) not in (int, float) or not 0 < self.step <= self.high - self.low
        ):
            raise InvalidRequest(
                f"{self}: the step must be above 0 and at most {self.high - self.low:g}, the "
                f"range, got {self.step!r}"
            )
        if self.log and self.low <= 0:
            raise InvalidRequest(
                f"{self}: a logarithm needs a lower bound above 0, got {self.low!r}"
            )

    def suggest(self, name: str, trial: Any) -> Any:
        if self.is_integer:
            return trial.suggest_int(name, int(self.low), int(self.high), step=1, log=self.log)
        # Optuna has no steps on a logarithmic scale, so the value is rounded here.
        value = trial.suggest_float(
            name, self.low, self.high, step=None if self.log else self.step, log=self.log
        )
        return self._round(value) if self.log else value

    def vary(self, value: Any, rng: random.Random) -> float:
        if self.is_integer:
            # The product with a small integer may round to the same integer, which then changes by
            # 1.
            near = round(value * rng.choice(VARIED_BY))
            return int(self._clip(near if near != value else value + rng.choice((-1, 1))))
        if self.step is not None and not self.log:
            return self._round(self._clip(float(value) + rng.choice((-1, 1)) * self.step))
        return self._round(self._clip(float(value) * rng.choice(VARIED_BY)))

    def count(self) -> int:
        """Return the number of values; InvalidRequest if there are infinitely many."""
        if self.is_integer:
            return int(self.high) - int(self.low) + 1
        if self.step is None or self.log:
            raise InvalidRequest(
                f"{self} has no finite set of values; for search='grid' list them: choice([…])"
            )
        return math.floor((self.high - self.low) / self.step + 1e-9) + 1

    def each(self) -> Iterator[Value]:
        """Yield all values; InvalidRequest if there are infinitely many."""
        for number in range(self.count()):
            yield (
                int(self.low) + number
                if self.is_integer
                else self._round(self.low + number * (self.step or 0))
            )

    def grid(self) -> tuple[Value, ...]:
        """Return all values; InvalidRequest if there are infinitely many."""
        return tuple(self.each())

    def to_tuning_range(self) -> tuple[str, dict[str, Any]]:
        """Return the range as the service's tuning jobs take it.

        The service takes the kind of range, and its fields without the name.
        """
        # The service has no steps.
        if self.step is not None:
            return self.to_tuning_list()
        bounds = {"MinValue": str(self.low), "MaxValue": str(self.high)}
        kind = "IntegerParameterRanges" if self.is_integer else "ContinuousParameterRanges"
        return kind, {**bounds, "ScalingType": "Logarithmic" if self.log else "Linear"}

    def to_tuning_list(self) -> tuple[str, dict[str, Any]]:
        if self.count() > MAX_LISTED:
            raise InvalidRequest(
                f"{self} has {self.count():,} values, and a tuning job of the service lists at "
                f"most {MAX_LISTED}; take larger steps, or another search than grid"
            )
        return Choice(self.grid()).to_tuning_range()

    def read(self, text: str) -> Value:
        return int(text) if self.is_integer else float(text)

    def contains(self, value: object) -> bool:
        is_number = type(value) in (int, float)
        return is_number and self.low <= value <= self.high  # type: ignore[operator]

    def _clip(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def _round(self, value: float) -> float:
        if self.step is None:
            return value
        # 1e-9 is added because (0.3 - 0.0) / 0.1 is 2.9999999999999996.
        steps = min(
            round((value - self.low) / self.step),
            math.floor((self.high - self.low) / self.step + 1e-9),
        )
        # 0.1 + 2 * 0.1 is 0.30000000000000004.
        return float(f"{self.low + max(0, steps) * self.step:.12g}")

    def __str__(self) -> str:
        scale = "log" if self.log else ""
        steps = "" if self.step is None else "q"
        name = f"{scale}randint" if self.is_integer else f"{steps}{scale}uniform"
        step = "" if self.step is None else f", {self.step!r}"
        return f"{name}({self.low!r}, {self.high!r}{step})"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values."""

    kind: ClassVar[str] = "choice"

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        # A text is a sequence of its letters.
        if isinstance(self.values, str) or not isinstance(self.values, Sequence):
            raise InvalidRequest(
                f"choice takes a list of values, choice([32, 64]), got {self.values!r}"
            )
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise InvalidRequest("choice([]) has nothing to choose from; name at least one value")
        for value in self.values:
            # type(), so that NumPy's numbers are refused: they do not travel as JSON.
            if type(value) not in get_args(Value):
                raise InvalidRequest(
                    f"{self}: a value is a text, a number, True, False or None, got {value!r}; "
                    "choose among names, and look up in the function what each stands for"
                )

    def suggest(self, name: str, trial: Any) -> Any:
        return trial.suggest_categorical(name, self.values)

    def vary(self, value: Any, rng: random.Random) -> Any:
        """Return the value before or after ``value``: numbers in a list are usually in order."""
        at = self.values.index(value) if value in self.values else 0
        return self.values[min(max(at + rng.choice((-1, 1)), 0), len(self.values) - 1)]

    def count(self) -> int:
        return len(self.values)

    def each(self) -> Iterator[Value]:
        return iter(self.values)

    def grid(self) -> tuple[Value, ...]:
        return self.values

    def to_tuning_range(self) -> tuple[str, dict[str, Any]]:
        texts = [_text(value) for value in self.values]
        if len(set(texts)) != len(texts):
            raise InvalidRequest(
                f"{self}: for the service all values are texts, and two of these would be the same"
            )
        return "CategoricalParameterRanges", {"Values": texts}

    def to_tuning_list(self) -> tuple[str, dict[str, Any]]:
        return self.to_tuning_range()

    def read(self, text: str) -> Value:
        values: dict[str, Value] = {_text(value): value for value in self.values}
        return values[text]

    def contains(self, value: object) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return f"choice({list(self.values)!r})"


# A union, because the codec reads from it which classes JSON may become.
Parameter: TypeAlias = Range | Choice


def _text(value: Value) -> str:
    # A text that is JSON is quoted, so that a user who attaches to the tuning job can tell "1" from
    # 1.
    return value if isinstance(value, str) and not _is_json(value) else json.dumps(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def uniform(low: float, high: float) -> Range:
    """Return a range of floats from ``low`` to ``high``."""
    return Range(low, high)


def loguniform(low: float, high: float) -> Range:
    """Return a range of floats on a logarithmic scale, for example of learning rates."""
    return Range(low, high, log=True)


def quniform(low: float, high: float, step: float) -> Range:
    """Return a range of floats from ``low`` to at most ``high`` in steps."""
    return Range(low, high, step)


def qloguniform(low: float, high: float, step: float) -> Range:
    """Return a range of floats in steps from ``low``, on a logarithmic scale."""
    return Range(low, high, step, log=True)


def randint(low: int, high: int) -> Range:
    """Return a range of integers from ``low`` to ``high``, both included."""
    return Range(low, high, is_integer=True)


def lograndint(low: int, high: int) -> Range:
    """Return a range of integers on a logarithmic scale, both ends included."""
    return Range(low, high, log=True, is_integer=True)


def choice(values: Sequence[Value]) -> Choice:
    """Return a choice among values."""
    # Choice refuses what is no sequence.
    return Choice(tuple(values) if isinstance(values, list) else values)  # type: ignore[arg-type]


RANGES: Mapping[str, Callable[..., Range]] = {
    make.__name__: make
    for make in (uniform, loguniform, quniform, qloguniform, randint, lograndint)
}


def parse_space(written: object) -> dict[str, Parameter]:
    """Return the ranges of a space whose values are ranges, texts of a command line, or JSON."""
    if not isinstance(written, Mapping) or not written:
        raise InvalidRequest(
            f"a sweep needs a space, {{'lr': raysm.loguniform(1e-4, 1e-1)}}, or a function of an "
            f"Optuna trial, got {written!r}"
        )
    for name in written:
        # Names become keyword arguments of a function, or options --NAME of a script.
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidRequest(
                "space: a parameter's name has letters, digits and underscores, such as "
                f"batch_size, got {name!r}; a script gets it as --batch-size"
            )
    return {name: _parameter(name, item) for name, item in written.items()}


def _parameter(name: str, item: object) -> Parameter:
    if isinstance(item, Range | Choice):
        return item
    try:
        if isinstance(item, str):
            return _from_text(item)
        if isinstance(item, Mapping):
            kinds: dict[Any, Any] = {kind.kind: kind for kind in get_args(Parameter)}
            kind: Any = item.get("kind")
            if kind not in kinds:
                raise InvalidRequest(
                    f"there is no range {kind!r}; as JSON there are {', '.join(kinds)}"
                )
            parameter: Parameter = from_json(kinds[kind], dict(item), kind)
            return parameter
    except InvalidRequest as error:
        raise InvalidRequest(f"space: {name}: {error}") from None
    remedy = f"choice({item!r})" if isinstance(item, (list, tuple)) else f"choice([{item!r}])"
    raise InvalidRequest(
        f"space: {name} is {item!r}, which is not a range; for fixed values use raysm.{remedy}"
    )


def _from_text(text: str) -> Parameter:
    """Parse a range like ``loguniform:1e-4:1e-1`` or ``choice:32,64``."""
    name, *parts = text.split(":")
    if name == Choice.kind:
        # A path or an address among the choices may contain colons.
        return Choice(tuple(_value(part) for part in ":".join(parts).split(",") if part))
    if "," in name:
        raise InvalidRequest(
            f"{text!r} is not a range; for a list of values write {Choice.kind}:{text}"
        )
    if name not in RANGES:
        raise InvalidRequest(
            f"there is no range {name!r}; there are {', '.join(RANGES)}, {Choice.kind}"
        )
    bounds = "LOW:HIGH:STEP" if name.startswith("q") else "LOW:HIGH"
    if len(parts) != bounds.count(":") + 1:
        raise InvalidRequest(f"write {name}:{bounds}, got {text!r}")
    return RANGES[name](*map(_value, parts))


def _value(text: str) -> Any:
    """Parse a number, a truth value or None; return any other text unchanged."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    # int comes first, so that 32 does not become 32.0.
    readers: tuple[Callable[[str], Any], ...] = (int, float)
    for read in readers:
        try:
            return read(text)
        except ValueError:
            continue
    return text
