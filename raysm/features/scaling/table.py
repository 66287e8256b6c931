"""The times of one job at several sizes: speed-up, efficiency, cost, and a chart of bars.

The speed-up of n instances is the time of the smallest size divided by theirs. The efficiency is
the speed-up divided by how many times more instances they are: 1 if twice the instances take half
the time (the definitions of strong scaling; Amdahl, AFIPS 1967).
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raysm.cli.console import aligned
from raysm.core.client.costs.bill import dollars
from raysm.core.client.logs.rendering import metric_value

BAR = 40
"""Characters of the longest bar."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One job that has ended well."""

    instances: int
    job: str
    seconds: float
    """From the formed cluster to the complete result on the head, by the head's clock."""
    billed_s: float | None
    """Seconds that each instance is billed for; None if the service does not say."""
    usd: float | None
    """The cost of all instances; None if the job is not billed, or its price is unknown."""
    metric: float | None = None
    """The last value of the metric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """The jobs of one command, the smallest first.

    Attributes:
        jobs: The jobs that have ended well.
        metric: Name of the metric; empty if the jobs report none.
        is_shared: Whether the instances are emulated, and share the cores of one machine.
    """

    jobs: tuple[Measured, ...]
    metric: str = ""
    is_shared: bool = False

    def speedup(self, job: Measured) -> float:
        return self.jobs[0].seconds / job.seconds

    def efficiency(self, job: Measured) -> float:
        return self.speedup(job) * self.jobs[0].instances / job.instances

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "metric": self.metric or None,
            "is_shared": self.is_shared,
            "jobs": [
                asdict(job) | {"speedup": self.speedup(job), "efficiency": self.efficiency(job)}
                for job in self.jobs
            ],
        }


def table_lines(scaling: Scaling) -> list[str]:
    """Return the table, right-aligned but for the names of the jobs."""
    heads = ["instances", "seconds", "speed-up", "efficiency", "billed", "cost"]
    rows = [[*heads, *filter(None, [scaling.metric]), "job"]]
    for job in scaling.jobs:
        cells = [
            str(job.instances),
            f"{job.seconds:,.1f}",
            f"{scaling.speedup(job):.2f}",
            f"{scaling.efficiency(job):.0%}",
            "-" if job.billed_s is None else f"{job.instances} x {job.billed_s:,.0f} s",
            "-" if job.usd is None else dollars(job.usd),
        ]
        if scaling.metric:
            cells.append("-" if job.metric is None else metric_value(job.metric))
        rows.append([*cells, job.job])
    # Two spaces before a name, which is long: the last column needs no width of its own.
    numbers = aligned([row[:-1] for row in rows], str.rjust)
    return [f"{cells}  {row[-1]}" for cells, row in zip(numbers, rows, strict=True)]


def chart_lines(scaling: Scaling) -> list[str]:
    """Return a bar for each size, with a dot where a speed-up without loss would end."""
    first = scaling.jobs[0].instances
    longest = max(
        *(scaling.speedup(job) for job in scaling.jobs),
        *(job.instances / first for job in scaling.jobs),
    )
    lines = ["speed-up, and (·) without any loss:"]
    for job in scaling.jobs:
        speedup = scaling.speedup(job)
        bar = "█" * max(1, round(BAR * speedup / longest))
        ideal = max(1, round(BAR * job.instances / first / longest))
        if ideal > len(bar):
            bar = bar.ljust(ideal - 1) + "·"
        lines.append(f"{job.instances:>5} {bar.ljust(BAR)} {speedup:.2f}")
    return lines


def notes(scaling: Scaling) -> Sequence[str]:
    """Return what the figures do not show."""
    if not scaling.is_shared:
        return ()
    cores = os.cpu_count() or 1
    plural = "" if cores == 1 else "s"
    return (
        f"The emulated instances of all sizes share the {cores} core{plural} of this machine.",
        "So these times show what more instances cost, and on AWS (--on aws) what they save.",
    )
