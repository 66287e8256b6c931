"""Which charts a dashboard has: a timeline flows in, charts flow out, each a title and its curves. Pure.

Ray's page asks Grafana for two panels by their numbers, and for a whole board; these are what they are here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from raysm.contract.names import natural
from raysm.contract.node_usage import NODE_COUNT
from raysm.views.dashboard.timeline import Timeline

__all__ = ["Chart", "PANELS", "board"]

Points: TypeAlias = list[tuple[float, float]]

MOST_CURVES = 8
"""Of more instances, the lowest, the mean and the highest are drawn."""

BUCKETS = 240
"""Into so many times the values of many instances are gathered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One chart."""

    title: str
    """Above it."""
    unit: str
    """Of its values: ``%``, ``B``, ``B/s``; empty for a number."""
    curves: Mapping[str, Points]
    """By name; each point a time in seconds since the epoch and a value."""
    from_zero: bool = False
    """Whether 0 is always shown: of a share, a rate, a count."""


TITLES: Mapping[str, tuple[str, str]] = {
    "cpu_percent": ("CPU", "%"),
    "memory_percent": ("Memory", "%"),
    "gpu_percent": ("GPU", "%"),
    "gpu_memory_percent": ("GPU memory, the fullest", "%"),
    "network_received_bytes_per_s": ("Network, received", "B/s"),
    "network_sent_bytes_per_s": ("Network, sent", "B/s"),
    "disk_read_bytes_per_s": ("Disk, read", "B/s"),
    "disk_written_bytes_per_s": ("Disk, written", "B/s"),
    "object_store_bytes": ("Object store", "B"),
    NODE_COUNT: ("Nodes", ""),
}
"""Title and unit of what every cluster has, in the order in which it is shown."""

# Of the first, memory_percent says the same, of instances of any size.
NO_CHART = ("memory_bytes", "peak_memory_bytes")
"""What instances tell, and nobody reads from a curve."""

UTILIZATION: Mapping[str, str] = {
    "cpu_percent": "CPU",
    "memory_percent": "memory",
    "gpu_percent": "GPU",
    "gpu_memory_percent": "GPU memory",
}
"""What of it sums a cluster up."""


def board(timeline: Timeline, since_s: float) -> list[Chart]:
    """Return every chart: the workload's own metrics first, over the whole time, then the instances'."""
    names = [name for name in timeline.names if name not in (*TITLES, *NO_CHART) and _is_series(timeline, name)]
    # A loss is looked at from its first value, however long ago that was.
    charts = [_chart(timeline, name, name, "", 0.0) for name in names]
    charts += [_chart(timeline, name, title, unit, since_s) for name, (title, unit) in TITLES.items()]
    return [chart for chart in charts if chart.curves]


def _is_series(timeline: Timeline, name: str) -> bool:
    """Whether a metric is more than what each instance said once, at its end."""
    # What the workload says of itself is drawn from its first value on.
    return any(not host or len(points) > 1 for host, points in timeline.series(name).items())


def utilization(timeline: Timeline, since_s: float) -> Chart:
    """Return the mean of all instances, of each resource."""
    curves = {}
    for name, shown in UTILIZATION.items():
        by_host = timeline.series(name, since_s)
        if by_host:
            curves[shown] = _gathered(by_host, _mean)
    return Chart(title="Cluster utilization", unit="%", curves=curves, from_zero=True)


def node_count(timeline: Timeline, since_s: float) -> Chart:
    """Return how many nodes were alive."""
    return _chart(timeline, NODE_COUNT, "Node count", "", since_s)


PANELS: Mapping[str, Callable[[Timeline, float], Chart]] = {"41": utilization, "24": node_count}
"""What Ray's Overview asks for, by the number of the panel of Ray's Grafana board."""


def _chart(timeline: Timeline, name: str, title: str, unit: str, since_s: float) -> Chart:
    by_host = timeline.series(name, since_s)
    # The workload's own metrics have no host.
    curves = {host or title: points for host, points in sorted(by_host.items(), key=lambda item: natural(item[0]))}
    if len(curves) > MOST_CURVES:
        curves = {
            "highest": _gathered(by_host, max),
            "mean": _gathered(by_host, _mean),
            "lowest": _gathered(by_host, min),
        }
    return Chart(title=title, unit=unit, curves=curves, from_zero=name in TITLES)


def _mean(values: list[float]) -> float:
    # fsum: shares of a thousand instances add up to the same in any order.
    return math.fsum(values) / len(values)


def _gathered(by_host: Mapping[str, Points], gather: Callable[[list[float]], float]) -> Points:
    """Return one curve of many: of each stretch of time what ``gather`` makes of the hosts' means in it."""
    times = [time_s for points in by_host.values() for time_s, _ in points]
    # At least a second: the head reports each of its instances no more often.
    begin, width = min(times), max(1.0, (max(times) - min(times)) / BUCKETS)
    # By host within each: one that reports twice in a stretch counts once.
    buckets: dict[int, dict[str, list[float]]] = {}
    for host, points in by_host.items():
        for time_s, value in points:
            buckets.setdefault(int((time_s - begin) / width), {}).setdefault(host, []).append(value)
    return [
        (begin + (number + 0.5) * width, gather([_mean(values) for values in hosts.values()]))
        for number, hosts in sorted(buckets.items())
    ]
