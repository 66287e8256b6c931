"""What a grid has learned from its own jobs: attempts that have ended flow in, medians flow out.

How long a type takes for a unit of work, how long a place lets a job wait, and how much of its time spot capacity is
billed for. Medians, not means: of three jobs one that hung must not decide. All is kept as running lists of the latest
values, so that 100,000 jobs cost no more than a few hundred.
"""

import statistics
from collections import defaultdict, deque

from raysm.grid.attempt import Attempt
from raysm.grid.place import Place, place_of
from raysm.grid.task import Task

__all__ = ["LATEST", "SPOT_FACTOR", "SPOT_RANGE", "WAIT_S", "Experience"]

LATEST = 32
"""Values that a median is taken of: prices and queues change within days, and older ones say less."""

WAIT_S = 240.0
"""From Create to the start of the instances where nothing is known: 3 to 4 minutes is what people report."""

SPOT_FACTOR = 0.5
"""Of the time, what is billed of spot capacity while nothing is known of a place."""

SPOT_RANGE = (0.1, 1.0)
"""From the saving of "up to 90 %" that AWS names to none at all; nobody publishes SageMaker's spot prices.
https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html"""

DONE = "OK"
"""The ending of an attempt that brought its result: how long one ran that failed says nothing of the work."""


class Experience:
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
        if attempt.training_s and attempt.ending == DONE:
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
