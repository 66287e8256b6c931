"""Ways out of a grid: the queue of AWS Batch that its jobs go through in each region; without one they go directly.

What a user writes flows in, the region that a controller calls flows out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from raysm.client.service import Service
from raysm.errors import InvalidRequest
from raysm.grid.queue_region import QueueRegion
from raysm.grid.region import Region
from raysm.grid.rows.columns import REGION
from raysm.grid.service_region import Prepare, ServiceRegion

__all__ = ["Queues", "queues_of"]

ANYWHERE = ""
"""Stands for every region that has no queue of its own."""

NAME = re.compile(r"arn:[\w:/.-]+|[A-Za-z0-9][\w-]{0,127}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Queues:
    """Queues of type ``SAGEMAKER_TRAINING``; an empty one is none anywhere.

    Raises:
        InvalidRequest: A name or a region cannot be, or there is a share and no queue.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    """Name or ARN of the queue, by region; of the region "" that of all others."""
    share: str = ""
    """Identifier of the share that the jobs use, of queues with a scheduling policy."""

    def __post_init__(self) -> None:
        """Check the fields."""
        for region, name in self.names.items():
            if region != ANYWHERE and not REGION.fullmatch(region):
                raise InvalidRequest(
                    f"the region {region!r} of the queue {name!r} is not a region; write it like us-east-1"
                )
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise InvalidRequest(f"a queue is given by its name or ARN, got {name!r}")
        if self.share and not self.names:
            raise InvalidRequest(f"a share ({self.share!r}) needs a queue; give it too: queue=…, --queue")

    def open(self, region: str, service: Service, prepare: Prepare, grid: str) -> Region:
        """Return a region by its way out.

        Args:
            region: Its name.
            service: Of it.
            prepare: Makes an attempt's job for it.
            grid: With what the names of the grid's jobs begin.

        Raises:
            InvalidRequest: Its queue takes none of the grid's jobs.
            ServiceError: It cannot be asked for.
        """
        queue = self.names.get(region) or self.names.get(ANYWHERE)
        if queue is None:
            return ServiceRegion(service, prepare, grid)
        behind = QueueRegion(service, prepare, grid, queue, self.share)
        behind.check()
        return behind


def queues_of(named: str | Mapping[str, str] | Sequence[str] | None, share: str | None = None) -> Queues:
    """Return what a user writes as a value.

    Args:
        named: One name for all regions, names by region, or texts ``NAME`` and ``REGION=NAME``; None is none.
        share: Identifier of the jobs' share.

    Raises:
        InvalidRequest: It cannot be.
    """
    if isinstance(named, Mapping):
        return Queues(names=named, share=share or "")
    names: dict[str, str] = {}
    for text in [named] if isinstance(named, str) else named or ():
        region, _, name = text.rpartition("=")
        if region in names:
            raise InvalidRequest(f"{text!r} is a second queue for {region or 'all regions'}; give one")
        names[region] = name
    return Queues(names=names, share=share or "")
