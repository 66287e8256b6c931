"""How long jobs take in each place: ends flow in, and what is left of a grid's last hours flows out, an ``Outlook``."""

import statistics
from collections import defaultdict, deque

from raysm.grid.attempt import Attempt
from raysm.grid.place import Outlook, Place, place_of
from raysm.grid.store import Store
from raysm.grid.task import UNKNOWN_S, Task

__all__ = ["Pace"]

LATEST = 32
"""Jobs of a place that a median is taken of."""

LAST = 500
"""Rows that wait, and jobs that are open, up to which the end of a grid is looked at: each step goes over all of them,
and of more the last to begin are a small part of the whole."""

DONE = "OK"
"""The ending of a job that did its work: one that failed says nothing of how long that takes."""


class Pace:
    """Medians of what was seen, by place: unlike prices, the way to the data is another one in each."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._seconds: defaultdict[Place, deque[float]] = defaultdict(lambda: deque(maxlen=LATEST))

    def learn(self, task: Task, attempt: Attempt) -> None:
        """Take note of an attempt that has ended."""
        if attempt.ending == DONE and attempt.sent_s is not None and attempt.ended_s is not None:
            self._seconds[place_of(attempt)].append((attempt.ended_s - attempt.sent_s) / task.work)

    def outlook(self, store: Store, now: float) -> Outlook:
        """Return what is left of a grid, once that is little; an empty one before."""
        # Of one place alone there is nothing to compare, and most grids have one.
        waiting = store.waiting_count(LAST + 1) if len(self._seconds) > 1 else 0
        if not 0 < waiting <= LAST or store.open_count() > LAST:
            return Outlook()
        takes_s = {place: statistics.median(seconds) for place, seconds in self._seconds.items()}
        free_s: defaultdict[Place, list[float]] = defaultdict(list)
        rows = store.database.connection.execute(
            "SELECT attempt.region, instance_type, spot, coalesce(sent_s, intended_s), task.expected_s FROM attempt "
            "JOIN task ON task.key = attempt.task WHERE attempt.state <> 'ended'"
        )
        for region, instance_type, spot, began_s, expected_s in rows:
            place = Place(region=region, instance_type=instance_type, spot=bool(spot))
            if place in takes_s:
                free_s[place].append(_ends_s(began_s + takes_s[place] * (expected_s or UNKNOWN_S), now))
        return Outlook(waiting=waiting, takes_s=takes_s, free_s=free_s)


def _ends_s(ends_s: float, now: float) -> float:
    """Return when an open attempt will end that was expected to at ``ends_s``, as far as anybody can tell."""
    # Who is late already will be for as long again: a job that hangs must not keep rows from other places for ever.
    return ends_s if ends_s > now else now + (now - ends_s)
