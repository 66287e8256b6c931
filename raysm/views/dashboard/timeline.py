"""The values of a job by time, in bounded memory: metrics flow in, series of points flow out."""

import bisect
from collections.abc import Iterable

from raysm.contract.events import Metric

__all__ = ["Timeline"]

MOST = 2_000
"""Points of a series: more than a chart has pixels."""


class Timeline:
    """The values of every metric of the job and of its instances, the older ones further apart."""

    def __init__(self, metrics: Iterable[Metric] = ()) -> None:
        """Begin with some."""
        self._points: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for metric in metrics:
            self.add(metric)

    def add(self, metric: Metric) -> None:
        """Add a value; one that comes late, by way of the log, takes its place among those that are there."""
        points = self._points.setdefault(metric.name, {}).setdefault(metric.host, [])
        bisect.insort(points, (metric.time_s, metric.value))
        if len(points) > MOST:
            # Of the older half every other one goes: what has just happened is looked at most closely.
            points[: MOST // 2] = points[: MOST // 2 : 2]

    @property
    def names(self) -> list[str]:
        """Every name once, in the order in which they came."""
        return list(self._points)

    def series(self, name: str, since_s: float = 0.0) -> dict[str, list[tuple[float, float]]]:
        """Return the points of a metric by instance, each a time in seconds since the epoch and a value.

        Args:
            name: The metric's.
            since_s: Those before are left out, but the last of them: the curve begins at the edge.
        """
        every = {host: _since(points, since_s) for host, points in self._points.get(name, {}).items()}
        return {host: points for host, points in every.items() if points}


def _since(points: list[tuple[float, float]], since_s: float) -> list[tuple[float, float]]:
    first = next((index for index, (time_s, _) in enumerate(points) if time_s >= since_s), None)
    return [] if first is None else points[max(0, first - 1) :]
