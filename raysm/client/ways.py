"""The way from this machine to a job's dashboard: a place flows in, an address of this machine flows out."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from raysm.client.dashboard_place import Place
from raysm.client.job import Job
from raysm.errors import InvalidRequest

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
        InvalidRequest: The job's network is another one.
    """
    if job.service.target.is_billed:
        raise InvalidRequest(job.service.target.way_to_dashboard(job.name))
    # The instances of the embedded SageMaker are in this machine's own networks.
    yield Reached(place.address)
