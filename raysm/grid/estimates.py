"""What a grid learns from its own jobs: medians of durations, waits and billed time, and when open jobs will end.

Medians rather than means, so that one job that hung does not decide. Only the latest values count, so that 100,000 jobs
cost no more than a few hundred.
"""

import statistics
from collections import defaultdict, deque

from raysm.grid.attempt import Attempt
from raysm.grid.endings import EndName
from raysm.grid.place import Outlook, Place, place_of
from raysm.grid.store import Store
from raysm.grid.task import UNKNOWN_S, Task

__all__ = ["Estimates", "LATEST", "Forecast", "SPOT_FACTOR", "SPOT_RANGE", "WAIT_S"]

LATEST = 32
"""Values that a median is taken of: prices and queues change within days, and older ones say less."""

WAIT_S = 240.0
"""From Create to the start of the instances where nothing is known: 3 to 4 minutes is what people report."""

SPOT_FACTOR = 0.5
"""Of the time, what is billed of spot capacity while nothing is known of a place."""

SPOT_RANGE = (0.1, 1.0)
"""From the saving of "up to 90 %" that AWS names to none at all; nobody publishes SageMaker's spot prices.
https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html"""


class Estimates:
    """Medians of what was seen."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._seconds: defaultdict[str, deque[float]] = defaultdict(_latest)
        self._factors: defaultdict[str, deque[float]] = defaultdict(_latest)
        self._waits: defaultdict[Place, deque[float]] = defaultdict(_latest)
        self._all_waits = _latest()
        self._billed: defaultdict[tuple[str, str], deque[float]] = defaultdict(_latest)

    def learn(self, task: Task, attempt: Attempt) -> None:
        """Take note of an attempt that has ended."""
        place = place_of(attempt)
        if attempt.sent_s is not None and attempt.started_s is not None:
            for waits in (self._waits[place], self._all_waits):
                waits.append(max(0.0, attempt.started_s - attempt.sent_s))
        if attempt.training_s and attempt.ending == EndName.OK:
            self._seconds[attempt.instance_type].append(attempt.training_s)
            # By what the row says of itself too: a type that got the long rows by chance is no slower for it.
            if task.expected_s:
                self._factors[attempt.instance_type].append(attempt.training_s / task.expected_s)
        if attempt.spot and attempt.training_s and attempt.billable_s is not None:
            self._billed[attempt.region, attempt.instance_type].append(attempt.billable_s / attempt.training_s)

    def samples(self, instance_type: str) -> int:
        """Return how many done rows the time of a type is known from."""
        return len(self._seconds.get(instance_type, ()))

    def seconds(self, task: Task, instance_type: str) -> float | None:
        """Return how long a row will take on a type; None where nothing says so."""
        factor = _median(self._factors.get(instance_type))
        if task.expected_s is not None:
            return task.expected_s if factor is None else factor * task.expected_s
        return _median(self._seconds.get(instance_type))

    def wait_s(self, place: Place) -> float:
        """Return how long a job will wait for its instances in a place."""
        # Of a place that nobody tried, what the others do: a guess of it must not tip the scales against it.
        median = _median(self._waits.get(place) or self._all_waits)
        return WAIT_S if median is None else median

    def billed_factor(self, place: Place) -> float:
        """Return what share of its time a job in a place is billed for: 1 on demand."""
        if not place.spot:
            return 1.0
        median = _median(self._billed.get((place.region, place.instance_type)))
        return SPOT_FACTOR if median is None else median

    def billed_range(self, place: Place) -> tuple[float, float]:
        """Return that share at best and at worst, as far as it is known."""
        if not place.spot:
            return 1.0, 1.0
        billed_seconds = self._billed.get((place.region, place.instance_type))
        return (min(billed_seconds), max(billed_seconds)) if billed_seconds else SPOT_RANGE


def _latest() -> "deque[float]":
    return deque(maxlen=LATEST)


def _median(values: "deque[float] | None") -> float | None:
    return statistics.median(values) if values else None


LAST = 500
"""Rows that wait, and jobs that are open, up to which the end of a grid is looked at: each step goes over all of them,
and of more the last to begin are a small part of the whole."""


class Forecast:
    """Medians of what was seen, by place: unlike prices, the way to the data is another one in each."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._seconds: defaultdict[Place, deque[float]] = defaultdict(lambda: deque(maxlen=LATEST))

    def learn(self, task: Task, attempt: Attempt) -> None:
        """Take note of an attempt that has ended."""
        if attempt.ending == EndName.OK and attempt.sent_s is not None and attempt.ended_s is not None:
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
