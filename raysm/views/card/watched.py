"""What is known of a job that somebody watches: log lines flow in one by one, the state of a card flows out.

Pure, and small however long the job runs: of lines the last few stay, of curves few points, of instances their latest
values.
"""

import re
from collections import deque
from dataclasses import dataclass

from raysm.client.logs.rendering import Phase, sentence
from raysm.contract.events import Metric, Progress, State, parse

__all__ = ["CONTROL", "Seen", "Watched", "clean"]

MOST_LINES = 8
"""Of the log."""

MOST_CHARACTERS = 180
"""Of a line of the log."""

MOST_POINTS = 240
"""Of a curve: where it has more, every second one is left out, from then on."""

# CSI sequences (colors, cursor), OSC (titles, links), and the two-character ones.
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""What neither a terminal nor a browser is to be given; a line break and a tab are none of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What the log has told so far."""

    joined: tuple[int, int] | None = None
    """Instances that have joined, and how many there are to be; None until the first one has."""
    stage: str = ""
    """What the job said last of where it is, as a sentence."""
    phases: tuple[tuple[str, float, str], ...] = ()
    """Each phase: its name, how much of it is done (0 to 1), and that in words."""
    curves: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()
    """Each metric of the job with its points: by steps, or, where it has none, by seconds since its first value."""
    usage: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] = ()
    """Each instance with its latest shares in percent, by name: ``cpu``, ``memory``, ``gpu``."""
    lines: tuple[str, ...] = ()
    """The last lines of the log, each behind its instance."""


class Watched:
    """Adds up what the lines of a job's log say."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._joined: tuple[int, int] | None = None
        self._stage = ""
        self._phases: dict[str, tuple[Phase, Progress]] = {}
        self._curves: dict[str, _Curve] = {}
        self._usage: dict[str, dict[str, float]] = {}
        self._lines: deque[str] = deque(maxlen=MOST_LINES)

    def add(self, host: str, text: str) -> None:
        """Take one line."""
        match parse(text):
            case None:
                self._lines.append(f"{host} | {clean(text)}")
            case State() as state:
                self._take_state(state)
            case Progress() as progress:
                phase, _ = self._phases.get(progress.phase) or (Phase(progress), progress)
                self._phases[progress.phase] = (phase, progress)
            case Metric(host="") as metric:
                self._curves.setdefault(metric.name, _Curve()).add(metric)
            case Metric() as metric if metric.name.endswith("_percent"):
                self._usage.setdefault(metric.host, {})[metric.name.removesuffix("_percent")] = metric.value

    def _take_state(self, state: State) -> None:
        self._stage = clean(sentence(state)) or self._stage
        if state.count is not None and state.total is not None:
            self._joined = (state.count, state.total)

    def seen(self) -> Seen:
        """Return what is known now."""
        return Seen(
            joined=self._joined,
            stage=self._stage,
            phases=tuple((name, _share(last), phase.sentence(last)) for name, (phase, last) in self._phases.items()),
            curves=tuple((name, tuple(curve.points)) for name, curve in self._curves.items()),
            usage=tuple((host, tuple(shares.items())) for host, shares in sorted(self._usage.items(), key=_number)),
            lines=tuple(self._lines),
        )


class _Curve:
    """The points of one metric, thinned as they come."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._first_s: float | None = None
        self._every = 1
        self._count = 0

    def add(self, metric: Metric) -> None:
        self._first_s = metric.time_s if self._first_s is None else self._first_s
        x = float(metric.step) if metric.step is not None else metric.time_s - self._first_s
        # The last one is always there, and is replaced where it is none of those that stay.
        if self._count % self._every and self.points:
            self.points.pop()
        self.points.append((x, metric.value))
        self._count += 1
        if len(self.points) > MOST_POINTS:
            self.points = self.points[::2]
            self._every *= 2


def clean(text: str) -> str:
    """Return a line without what terminals and browsers would obey: colors, cursors, bells; cut where it is long."""
    # A progress bar writes over itself: what stands in the end is behind the last return.
    plain = CONTROL.sub("", ESCAPES.sub("", text.rstrip().rpartition("\r")[2]))
    return plain if len(plain) <= MOST_CHARACTERS else plain[: MOST_CHARACTERS - 1] + "…"


def _share(progress: Progress) -> float:
    # A phase may have nothing to do; then it is done.
    return min(1.0, max(0.0, progress.done / progress.total)) if progress.total else 1.0


def _number(item: tuple[str, object]) -> tuple[int, str]:
    digits = item[0].rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else 0, item[0])
