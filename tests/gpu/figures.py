"""What an entry of the run list has found: figures with their ranges, and answers that were compared."""

import math
from dataclasses import asdict, dataclass, field

__all__ = ["Figure", "Findings"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    value: float
    unit: str = ""
    least: float | None = None
    """The least and the most that it may be; None asks for nothing."""
    most: float | None = None

    @property
    def has_goal(self):
        return self.least is not None or self.most is not None

    @property
    def is_missed(self):
        # NaN is missed, too.
        return self.has_goal and not (
            (-math.inf if self.least is None else self.least)
            <= self.value
            <= (math.inf if self.most is None else self.most)
        )

    def line(self):
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (("at least", self.least), ("at most", self.most))
            if bound is not None
        ]
        goal = f"  {', '.join(bounds)}" + ("  MISSED" if self.is_missed else "") if bounds else ""
        return f"{self.name:<58}{self.value:>12.4g} {self.unit:<10}{goal}"


@dataclass(kw_only=True)
class Findings:
    device: str
    torch: str
    figures: list[Figure] = field(default_factory=list)
    compared: int = 0
    """Answers that were compared with what they have to be."""
    wrong: list[str] = field(default_factory=list)
    """Which of them differ, and what failed altogether."""
    left_out: list[str] = field(default_factory=list)
    """What was not done, and why."""

    def compare(self, name, wrong):
        """Count one answer; ``wrong`` says what is wrong with it, or is empty."""
        self.compared += 1
        if wrong:
            self.wrong.append(f"{name}: {wrong}")

    def add(self, name, value, unit="", *, least=None, most=None):
        self.figures.append(Figure(name=name, value=value, unit=unit, least=least, most=most))

    @property
    def seen(self):
        """The figures that have goals, and the answers, in few words."""
        words = [
            f"{figure.value:.3g} {figure.unit}".strip()
            for figure in self.figures
            if figure.has_goal
        ]
        if self.compared:
            words.append(f"{len(self.wrong)} of {self.compared} wrong")
        return ", ".join(words)

    @property
    def verdict(self):
        if self.wrong:
            return "WRONG"
        return "MISSED" if any(figure.is_missed for figure in self.figures) else "ok"

    def lines(self):
        found = [figure.line() for figure in self.figures]
        return [*found, *self.wrong, *(f"left out: {reason}" for reason in self.left_out)]

    def as_json(self):
        return asdict(self)

    @staticmethod
    def of_json(content):
        return Findings(**content | {"figures": [Figure(**each) for each in content["figures"]]})
