"""The way from this machine to a job's dashboard: a place flows in, an address of this machine flows out."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from raysm.client.dashboard_place import Place
from raysm.client.job import Job

__all__ = ["Reached", "way_to"]


@dataclass(frozen=True, slots=True)
class Reached:
    """What a way leads to."""

    address: str
    """``HOST:PORT``, as this machine reaches it."""


@contextlib.contextmanager
def way_to(job: Job, place: Place) -> Iterator[Reached]:
    """Yield how a job's dashboard is reached from here.

    Raises:
        InvalidRequest: The job lets nobody in.
        ServiceError: The service refuses.
    """
    if job.api.update is None and not job.service.target.is_billed:
        # SageMaker lets nobody into a Processing job; here its instances are in this machine's own networks.
        yield Reached(place.address)
        return
    with job.tunnel(place.port, on=place.host or None) as tunnel:
        yield Reached(tunnel.address)
