"""Where the time of each step goes: waiting for data, forward and backward, checkpoints, and what lies between.

What flows in are ``with spans.span("data"):`` blocks around what the loop waits for, and ``step_done()`` at the end of
each step; what flows out are seconds by kind, per step and in total. Kept with two clock readings a span, in the thread
of the loop alone: a save that goes on in the background delays no step and is not counted.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

__all__ = ["CHECKPOINT", "COMMUNICATION", "COMPUTE", "DATA", "MEASURING", "OTHER", "Spans", "Totals"]

DATA = "data"
"""Waiting for the next batch."""

COMPUTE = "compute"
"""Forward, backward and optimizer, with the communication that goes on in them."""

COMMUNICATION = "communication"
"""Agreeing on the loss. On a GPU it awaits what ``COMPUTE`` has only queued: the two are one until a step is looked at
by ``communication``."""

CHECKPOINT = "checkpoint"
"""What a checkpoint delays the loop by."""

MEASURING = "measuring"
"""What measuring itself takes now and then: left out, as if the step had not been looked at."""

OTHER = "other"
"""The rest of the loop: the user's own code between the steps."""


@dataclass(slots=True)
class Totals:
    """Seconds by kind over a number of steps."""

    steps: int = 0
    """How many."""
    wall_s: float = 0.0
    """From the first one's begin to the last one's end."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By kind, each second counted once; with ``OTHER`` they make ``wall_s``."""

    def share(self, kind: str) -> float:
        """Return the part of the time that ``kind`` took, 0 to 1."""
        return self.seconds.get(kind, 0.0) / self.wall_s if self.wall_s > 0 else 0.0

    def add(self, wall_s: float, seconds: Mapping[str, float]) -> None:
        """Add one step."""
        self.steps += 1
        self.wall_s += wall_s
        for kind, spent_s in seconds.items():
            self.seconds[kind] = self.seconds.get(kind, 0.0) + spent_s


class Spans:
    """Times the loop of one process.

    A span inside another counts for itself alone, so that no second is counted twice. Spans of other threads than the
    one that made this object are passed over.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin now; ``clock`` returns seconds."""
        self._clock = clock
        # Checkpoints are written in other threads, and delay nothing there.
        self._thread = threading.get_ident()
        # Seconds of the spans inside each open one, the innermost last.
        self._nested_s: list[float] = []
        self._now: dict[str, float] = {}
        self._begin_s = clock()
        self.total = Totals()
        """Since the beginning, or since ``restart``."""
        self.recent = Totals()
        """Since whoever announces last took it with ``take_recent``."""

    def span(self, kind: str) -> "_Span":
        """Return a context that counts its seconds as ``kind``."""
        return _Span(self, kind)

    def step_done(self) -> None:
        """End a step: what happens next belongs to the next one."""
        end_s = self._clock()
        wall_s = end_s - self._begin_s
        # Two readings of a clock may differ by less than the sum of what lies between them, rounded.
        self._now[OTHER] = max(0.0, wall_s - sum(self._now.values()))
        self.total.add(wall_s, self._now)
        self.recent.add(wall_s, self._now)
        self._begin_s = end_s
        self._now = {}

    def restart(self) -> None:
        """Forget everything so far: the first steps warm up caches and compile kernels, and say nothing of the rest."""
        self._begin_s = self._clock()
        self._now = {}
        self.total, self.recent = Totals(), Totals()

    def take_recent(self) -> Totals:
        """Return what was added since the last call."""
        recent, self.recent = self.recent, Totals()
        return recent

    def enter(self) -> float:
        """Begin a span; for ``_Span``."""
        self._nested_s.append(0.0)
        return self._clock()

    def leave(self, kind: str, begin_s: float) -> None:
        """End the innermost span; for ``_Span``."""
        spent_s = self._clock() - begin_s
        # A save inside of a step is the save's time, not the step's.
        own_s = spent_s - self._nested_s.pop()
        if self._nested_s:
            self._nested_s[-1] += spent_s
        # The step begins later by as much: it is as long as if nobody had looked.
        if kind == MEASURING:
            self._begin_s += own_s
        else:
            self._now[kind] = self._now.get(kind, 0.0) + own_s

    def is_mine(self) -> bool:
        """Return whether the calling thread is the loop's."""
        return threading.get_ident() == self._thread


class _Span:
    """One use of ``Spans.span``: a class, because a generator's context costs three times as much."""

    # Two are made in every step, so they are kept small.
    __slots__ = ("_begin_s", "_kind", "_mine", "_spans")

    def __init__(self, spans: Spans, kind: str) -> None:
        self._spans, self._kind = spans, kind

    def __enter__(self) -> None:
        self._mine = self._spans.is_mine()
        if self._mine:
            self._begin_s = self._spans.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._mine:
            self._spans.leave(self._kind, self._begin_s)
