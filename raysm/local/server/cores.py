"""Jobs wait for the cores of this machine, first come, first served.

As many instances run at a time as there are cores. A job with more instances than cores runs when it is alone.
"""

import threading
from collections import deque

__all__ = ["Cores", "Ticket"]

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


class Ticket:
    """A job's place in the queue, and its cores once they are granted; always give it back."""

    def __init__(self, cores: int, job: str) -> None:
        """Ask for ``cores`` for ``job``."""
        self.cores = cores
        self.job = job
        self.granted = False


class Cores:
    """The cores of this machine, and the jobs that wait for them."""

    def __init__(self, cores: int) -> None:
        """Share out ``cores``."""
        self.cores = cores
        self._free = cores
        self._waiting: deque[Ticket] = deque()
        self._running: list[Ticket] = []
        self._changed = threading.Condition()

    def ask(self, instances: int, job: str = "") -> Ticket:
        """Queue a job with so many instances."""
        ticket = Ticket(min(instances, self.cores), job)
        with self._changed:
            self._waiting.append(ticket)
            self._serve()
        return ticket

    def wait(self, ticket: Ticket, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for the cores; return whether they are granted."""
        with self._changed:
            return self._changed.wait_for(lambda: ticket.granted, timeout_s)

    def give_back(self, ticket: Ticket) -> None:
        """Leave the queue, or return the cores; may be repeated."""
        with self._changed:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            elif ticket.granted:
                ticket.granted = False
                self._free += ticket.cores
                self._running.remove(ticket)
            self._serve()

    def waiting(self) -> int:
        """Return how many jobs wait."""
        with self._changed:
            return len(self._waiting)

    def reason(self, ticket: Ticket) -> str:
        """Return what a ticket waits for, in words; empty if it does not wait."""
        with self._changed:
            if ticket not in self._waiting:
                return ""
            place = self._waiting.index(ticket)
            ordinal = ORDINALS[place] if place < len(ORDINALS) else f"number {place + 1}"
            names = [holder.job for holder in self._running]
            before = (
                f"behind {self._waiting[place - 1].job}"
                if place
                else f"while {', '.join(names)} run{'s'[: len(names) < 2]}"
            )
            free = f"waits for {ticket.cores} of {self.cores} cores, {self._free} of them free"
            return f"{free}; {ordinal} in line, {before}"

    def _serve(self) -> None:
        # Small jobs do not overtake a large one: it would wait forever.
        while self._waiting and self._waiting[0].cores <= self._free:
            ticket = self._waiting.popleft()
            self._free -= ticket.cores
            ticket.granted = True
            self._running.append(ticket)
        # Wake all of them: each waits for its own ticket.
        self._changed.notify_all()
