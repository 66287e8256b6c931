"""What a run on a GPU has found: figures with their goals, and answers beside those of float64."""

from dataclasses import asdict, dataclass, field

__all__ = ["Figure", "Findings"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    value: float
    unit: str = ""
    least: float | None = None
    """What it is to reach; None asks for nothing."""

    @property
    def is_missed(self):
        # Written so that NaN is missed, too.
        return self.least is not None and not self.value >= self.least

    def line(self):
        goal = (
            ""
            if self.least is None
            else f"  goal {self.least:g}" + ("  MISSED" if self.is_missed else "")
        )
        return f"{self.name:<58}{self.value:>12.4g} {self.unit:<10}{goal}"


@dataclass(kw_only=True)
class Findings:
    device: str
    torch: str
    figures: list[Figure] = field(default_factory=list)
    compared: int = 0
    """Answers that were compared with float64's."""
    wrong: list[str] = field(default_factory=list)
    """Which of them differ, and what failed altogether."""
    left_out: list[str] = field(default_factory=list)
    """What was not done, and why."""

    def compare(self, name, wrong):
        """Count one answer; ``wrong`` says what is wrong with it, or is empty."""
        self.compared += 1
        if wrong:
            self.wrong.append(f"{name}: {wrong}")

    def table(self):
        lines = [f"{self.device}, torch {self.torch}", *(figure.line() for figure in self.figures)]
        lines.append(f"{self.compared} answers compared with float64's, {len(self.wrong)} wrong")
        return [*lines, *self.wrong, *(f"left out: {reason}" for reason in self.left_out)]

    def as_json(self):
        return asdict(self)

    @property
    def exit_code(self):
        """1 where an answer is wrong or a goal was missed."""
        return 1 if self.wrong or any(figure.is_missed for figure in self.figures) else 0
