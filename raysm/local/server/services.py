"""What all jobs of a server share: cores, timers and the other services."""

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from raysm.local.scenario import Scenario
from raysm.local.server.market import Stock
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.objects import Objects
from raysm.local.server.records import Records

LOG = logging.getLogger(__name__)


class Ticket:
    """A job's place in the queue, and its cores once they are granted; always give it back."""

    def __init__(self, cores: int, job: str) -> None:
        self.cores = cores
        self.job = job
        self.granted = False


class Cores:
    """The cores of this machine: as many instances run at a time, first come, first served.

    A job with more instances than cores runs when it is alone.
    """

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._free = cores
        self._waiting: deque[Ticket] = deque()
        self._running: list[Ticket] = []
        self._changed = threading.Condition()

    def ask(self, instances: int, job: str = "") -> Ticket:
        ticket = Ticket(min(instances, self.cores), job)
        with self._changed:
            self._waiting.append(ticket)
            self._grant()
        return ticket

    def wait(self, ticket: Ticket, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for the cores; return whether they are granted."""
        with self._changed:
            return self._changed.wait_for(lambda: ticket.granted, timeout_s)

    def give_back(self, ticket: Ticket) -> None:
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            elif ticket.granted:
                ticket.granted = False
                self._free += ticket.cores
                self._running.remove(ticket)
            self._grant()

    def waiting(self) -> int:
        with self._changed:
            return len(self._waiting)

    def reason(self, ticket: Ticket) -> str:
        """Return a text that says what a ticket waits for; empty if it does not wait."""
        with self._changed:
            if ticket not in self._waiting:
                return ""
            place = self._waiting.index(ticket)
            names = [holder.job for holder in self._running]
            if place:
                before = f"behind {self._waiting[place - 1].job}"
            elif len(names) == 1:
                before = f"while {names[0]} runs (raysm stop {names[0]} ends it)"
            else:
                before = f"while {', '.join(names)} run (raysm stop JOB ends one)"
            free = f"waits for {ticket.cores} of {self.cores} cores, {self._free} of them free"
            return f"{free}; number {place + 1} in line, {before}"

    def _grant(self) -> None:
        # Small jobs do not overtake a large one: it would wait forever.
        while self._waiting and self._waiting[0].cores <= self._free:
            ticket = self._waiting.popleft()
            self._free -= ticket.cores
            ticket.granted = True
            self._running.append(ticket)
        # Wake all of them: each waits for its own ticket.
        self._changed.notify_all()


class Timers:
    """One thread that calls functions at given times.

    Tens of thousands of simulated jobs may wait.
    """

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Call ``do`` after ``seconds``; its exceptions are logged."""
        with self._changed:
            # The number orders functions of the same moment.
            heapq.heappush(self._queue, (time.monotonic() + seconds, next(self._numbers), do))
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="timers", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (do := self._next()) is not None:
            try:
                do()
            except Exception:
                LOG.exception("a scheduled step failed")

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._is_closed:
                left_s = self._queue[0][0] - time.monotonic() if self._queue else None
                if left_s is not None and left_s <= 0:
                    return heapq.heappop(self._queue)[2]
                self._changed.wait(left_s)
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    records: Records
    moto: MotoServices
    objects: Objects
    cores: Cores
    stock: Stock
    timers: Timers = field(default_factory=Timers)
    stop_grace_s: float = 120.0
    scenario: Scenario = field(default_factory=Scenario)
    chance: Random = field(default_factory=Random)
