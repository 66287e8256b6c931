"""What the controller asks of one region of the service: the one seam of a grid, with one fake in its tests.

Every call may raise ``ServiceError``; what that means is said by ``raysm.grid.classify``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from raysm.client.job.description import Description, Status
from raysm.grid.attempt import Attempt
from raysm.grid.task import Task

__all__ = ["RATES_PAGE", "Listed", "Page", "Region"]

RATES_PAGE = 500
"""Jobs whose metric one call asks for: the most that GetMetricData takes
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_GetMetricData.html)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """What List says of one job."""

    name: str
    """The job's name."""
    status: Status
    """How it is."""
    created_s: float
    """When it was sent, on the service's clock."""
    changed_s: float
    """When the service last changed it."""

    @property
    def seen(self) -> str:
        """What tells one state of the job from another: where it is unchanged, Describe has nothing new."""
        return f"{self.status} {self.changed_s:.3f}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One page of List, the latest jobs first."""

    jobs: tuple[Listed, ...]
    """Those whose names hold what was asked for: AWS filters after it has taken the page, so there may be none."""
    token: str | None = None
    """Of the next page; None is the end."""


class Region(Protocol):
    """One region of the service, as one grid sees it."""

    def create(self, task: Task, attempt: Attempt) -> None:
        """Have the service run an attempt; returns as well where it has this very job already.

        Raises:
            ServiceError: It was refused, or nobody knows; ``ResourceInUse`` is another's job of this name.
        """

    def describe(self, name: str) -> Description:
        """Return what the service says of a job.

        Raises:
            JobNotFound: It knows none of this name.
            ServiceError: It did not answer.
        """

    def page(self, contains: str, token: str | None) -> Page:
        """Return a page of the jobs whose names hold ``contains``."""

    def rates(self, names: Sequence[str], metric: str) -> Mapping[str, float]:
        """Return the last value of a metric of each of these jobs, as far as there is one of the last minutes.

        Args:
            names: Of jobs, ``RATES_PAGE`` at most.
            metric: Its name.
        """

    def stop(self, name: str) -> None:
        """Ask the service to stop a job."""
