"""The site of simulated instances, which starts nothing: the embedded server plays their jobs by its scenario."""

from collections.abc import Sequence
from pathlib import Path

from raysm.errors import InvalidRequest
from raysm.local.instances.base import Instance, InstanceSpec, Site

__all__ = ["SimulatedSite"]


class SimulatedSite(Site):
    """A site where nothing can run."""

    interface = "lo"

    def base_inside(self, base: Path) -> Path:
        """Return the folder itself: nobody is inside."""
        return base

    def start(self, specs: Sequence[InstanceSpec]) -> list[Instance]:
        """Refuse.

        Raises:
            InvalidRequest: Always.
        """
        raise InvalidRequest(
            "simulated instances run nothing: send the job to the embedded SageMaker (on=raysm.Local("
            "instance_kind='simulated')), whose scenario says what becomes of it"
        )

    def close(self) -> None:
        """Do nothing: there is nothing to end."""
