"""A region whose jobs only the holder of the shared lease sends and stops; what only looks is everybody's."""

from collections.abc import Mapping, Sequence

from raysm.client.description import Description
from raysm.contract.result import RowOutcome
from raysm.grid.attempt import Attempt
from raysm.grid.region import Page, Region
from raysm.grid.shared.sharing import Sharing
from raysm.grid.task import Task

__all__ = ["FencedRegion"]


class FencedRegion:
    """A region behind the lease; see ``raysm.grid.region.Region``."""

    def __init__(self, region: Region, sharing: Sharing) -> None:
        """Take the region, and who has the lease."""
        self._region = region
        self._sharing = sharing

    def create(self, task: Task, attempt: Attempt) -> None:
        """Send an attempt whose intent other machines find.

        Raises:
            LeaseLost: Another controller has taken the grid.
            Unreachable: Nobody knows.
        """
        self._sharing.cover(attempt.name)
        self._region.create(task, attempt)

    def describe(self, name: str) -> Description:
        """Return what the service says of a job."""
        return self._region.describe(name)

    def page(self, contains: str, token: str | None) -> Page:
        """Return a page of List."""
        return self._region.page(contains, token)

    def rates(self, names: Sequence[str], metric: str) -> Mapping[str, float]:
        """Return the last value of a metric of each of these jobs."""
        return self._region.rates(names, metric)

    def outcomes(self, attempt: Attempt) -> Mapping[str, RowOutcome]:
        """Return what has become of the rows that share a job."""
        return self._region.outcomes(attempt)

    def stop(self, name: str) -> None:
        """Stop a job; not one that the next controller has sent, and that this one takes for a stray.

        Raises:
            LeaseLost: Another controller has taken the grid.
            Unreachable: Nobody knows.
        """
        # Each time: to stop what another one waits for costs a row its work, and a write a two-hundredth of a cent.
        self._sharing.assure()
        self._region.stop(name)
