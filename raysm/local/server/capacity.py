"""Jobs wait for the machine's cores: as many instances run at a time as there are cores, in the order of arrival.

A job with more instances than there are cores runs when it is alone; otherwise it could never.
"""

import threading
from collections import deque

__all__ = ["Capacity", "Ticket"]


ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


class Ticket:
    """A job's place in the queue, and what it holds once it is its turn; give it back in any case."""

    def __init__(self, cores: int, job: str) -> None:
        """Want so many for ``job``."""
        self.cores = cores
        self.job = job
        self.granted = False


class Capacity:
    """The cores of this machine, and who waits for them."""

    def __init__(self, cores: int) -> None:
        """Share out so many."""
        self.cores = cores
        self._free = cores
        self._waiting: deque[Ticket] = deque()
        self._running: list[Ticket] = []
        self._changed = threading.Condition()

    def ask(self, instances: int, job: str = "") -> Ticket:
        """Join the queue with a job of so many instances."""
        # A job of more instances than cores wants all of them: it would wait for ever for what there is not.
        ticket = Ticket(min(instances, self.cores), job)
        with self._changed:
            self._waiting.append(ticket)
            self._serve()
        return ticket

    def wait(self, ticket: Ticket, timeout_s: float) -> bool:
        """Wait until it is this one's turn; return whether it is, within ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: ticket.granted, timeout_s)

    def give_back(self, ticket: Ticket) -> None:
        """Leave the queue, or return the cores; harmless when repeated."""
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
        """Return what a ticket waits for, in words; nothing where it is its turn, or it has left the queue."""
        with self._changed:
            if ticket not in self._waiting:
                return ""
            place = self._waiting.index(ticket)
            names = [holder.job for holder in self._running]
            before = (
                f"behind {self._waiting[place - 1].job}"
                if place
                else f"while {', '.join(names)} run{'s'[: len(names) < 2]}"
            )
            return (
                f"waits for {ticket.cores} of {self.cores} cores, {self._free} of them free; "
                f"{_ordinal(place)} in line, {before}"
            )

    def _serve(self) -> None:
        # Strictly by arrival: a large job is not passed by small ones for ever.
        while self._waiting and self._waiting[0].cores <= self._free:
            ticket = self._waiting.popleft()
            self._free -= ticket.cores
            ticket.granted = True
            self._running.append(ticket)
        # All of them: each waits for a ticket of its own, and waking one might wake the wrong one.
        self._changed.notify_all()


def _ordinal(place: int) -> str:
    return ORDINALS[place] if place < len(ORDINALS) else f"number {place + 1}"
