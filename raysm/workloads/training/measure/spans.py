"""Where the time of each step goes: data, computing, communication, checkpoints, and the user's code between the steps.

Two clock readings for each span, in the thread of the loop alone: a save in the background delays no step.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

__all__ = ["CHECKPOINT", "COMMUNICATION", "COMPUTE", "DATA", "MEASURING", "OTHER", "Spans", "Totals"]

DATA = "data"
"""Waiting for the next batch."""

COMPUTE = "compute"
"""Forward, backward and optimizer, with the communication that goes on in them."""

COMMUNICATION = "communication"
"""Agreeing on the loss. On a GPU this awaits what ``COMPUTE`` has only queued, so only their sum means something."""

CHECKPOINT = "checkpoint"
"""What a checkpoint delays the loop by."""

MEASURING = "measuring"
"""What profiling a step takes: left out of the step."""

OTHER = "other"
"""The rest of the loop: the user's own code between the steps."""


@dataclass(slots=True)
class Totals:
    """Seconds by kind over a number of steps; with ``OTHER`` they add up to ``wall_s``."""

    steps: int = 0
    wall_s: float = 0.0
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def share(self, kind: str) -> float:
        """Return the part of the time that ``kind`` took, 0 to 1."""
        return self.seconds.get(kind, 0.0) / self.wall_s if self.wall_s > 0 else 0.0

    def add(self, wall_s: float, seconds: Mapping[str, float]) -> None:
        """Add one step."""
        self.steps += 1
        self.wall_s += wall_s
        for kind, spent_s in seconds.items():
            self.seconds[kind] += spent_s


class Spans:
    """Times the loop of one thread, the one that made this object; spans of others are ignored.

    A span inside another counts for itself alone, so that no second is counted twice.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin now; ``clock`` returns seconds."""
        self.clock = clock
        self.thread = threading.get_ident()
        # Seconds of the spans inside each open one, the innermost last.
        self.nested_s: list[float] = []
        self.restart()

    def restart(self) -> None:
        """Forget everything so far: the first steps warm up caches and compile kernels."""
        self.begin_s = self.clock()
        self.step: defaultdict[str, float] = defaultdict(float)
        self.total, self._recent = Totals(), Totals()

    def span(self, kind: str) -> "_Span":
        """Return a context that counts its seconds as ``kind``."""
        return _Span(self, kind)

    def step_done(self) -> None:
        """End a step."""
        end_s = self.clock()
        wall_s = end_s - self.begin_s
        # Rounding can make the parts larger than the whole.
        self.step[OTHER] = max(0.0, wall_s - sum(self.step.values()))
        self.total.add(wall_s, self.step)
        self._recent.add(wall_s, self.step)
        self.begin_s, self.step = end_s, defaultdict(float)

    def take_recent(self) -> Totals:
        """Return what was added since the last call."""
        recent, self._recent = self._recent, Totals()
        return recent


class _Span:
    """One use of ``Spans.span``: a class, because a generator's context costs three times as much."""

    __slots__ = ("_begin_s", "_is_loop", "_kind", "_spans")

    def __init__(self, spans: Spans, kind: str) -> None:
        self._spans, self._kind = spans, kind

    def __enter__(self) -> None:
        spans = self._spans
        self._is_loop = threading.get_ident() == spans.thread
        if self._is_loop:
            spans.nested_s.append(0.0)
            self._begin_s = spans.clock()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._is_loop:
            return
        spans = self._spans
        spent_s = spans.clock() - self._begin_s
        own_s = spent_s - spans.nested_s.pop()
        if spans.nested_s:
            spans.nested_s[-1] += spent_s
        if self._kind == MEASURING:
            # The step begins later by as much: it is as long as if it had not been profiled.
            spans.begin_s += own_s
        else:
            spans.step[self._kind] += own_s
