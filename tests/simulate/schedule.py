"""Processes that run one at a time, under one clock, and are suspended or killed where a seed says so.

Each process is a greenlet. It runs until it sleeps, or until ``point`` suspends or kills it; no
time passes meanwhile. So the same seed gives the same run, whatever the machine does.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from greenlet import getcurrent, greenlet


class Killed(BaseException):
    """The process ends here: nothing of it runs on."""


@dataclass(eq=False, kw_only=True)
class Process:
    name: str
    offset_s: float = 0.0
    """What its clock shows more than the true time."""
    is_disturbed: bool = True
    """Whether it may be suspended and killed."""
    is_over: bool = False
    run: greenlet = field(init=False)


class Schedule:
    """A clock, and the processes that wait for it.

    Attributes:
        now: The true time in seconds.
        chance: Draws everything that happens by chance.
        trace: What was suspended or killed, and when.
    """

    def __init__(self, seed: int, began_s: float = 1_800_000_000.0) -> None:
        self.now = began_s
        self.chance = random.Random(seed)
        self.trace: list[str] = []
        self.suspend_share = self.kill_share = 0.0
        self.pauses_s: tuple[float, ...] = (1.0,)
        self.on_suspend: Callable[[], object] = lambda: None
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Process]] = []
        self._by_greenlet: dict[greenlet, Process] = {}

    @property
    def process(self) -> Process:
        return self._by_greenlet[getcurrent()]

    def clock(self) -> float:
        """Return the time that the running process sees."""
        return self.now + self.process.offset_s

    def start(self, work: Callable[[], object], process: Process, after_s: float = 0.0) -> None:
        def live() -> None:
            try:
                work()
            except Killed:
                self.note(f"{process.name} is killed")
            finally:
                process.is_over = True

        process.run = greenlet(live)
        self._by_greenlet[process.run] = process
        self._wake(process, after_s)

    def sleep(self, seconds: float) -> None:
        """Let the other processes run until the running one's time has come."""
        self._wake(self.process, seconds)
        self._hub.switch()

    def point(self, name: str) -> None:
        """Suspend or kill the running process here, if the seed says so."""
        process = self._by_greenlet.get(getcurrent())
        if process is None or not process.is_disturbed:
            return
        draw = self.chance.random()
        if draw < self.kill_share:
            self.note(f"{process.name} is killed {name}")
            raise Killed(name)
        if draw < self.kill_share + self.suspend_share:
            pause_s = self.chance.choice(self.pauses_s) * self.chance.uniform(0.5, 1.5)
            self.note(f"{process.name} is suspended for {pause_s:.0f} s {name}")
            self.on_suspend()
            self.sleep(pause_s)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now - 1_800_000_000.0:10.1f}  {text}")

    def run(self, until_s: float) -> None:
        """Run all processes until they are over, or until a time."""
        self._hub = getcurrent()
        while self._waiting and self._waiting[0][0] <= until_s:
            at_s, _, process = heapq.heappop(self._waiting)
            self.now = max(self.now, at_s)
            process.run.switch()

    def _wake(self, process: Process, after_s: float) -> None:
        heapq.heappush(self._waiting, (self.now + max(0.0, after_s), next(self._numbers), process))
