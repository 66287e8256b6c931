"""The way from this machine to a job's dashboard: a place flows in, an address of this machine flows out."""

import contextlib
import http.client
import time
from collections.abc import Iterator
from dataclasses import dataclass

from raysm.client.dashboard_place import Place
from raysm.client.job import Job
from raysm.contract.events import DASHBOARD_NOT_YET
from raysm.errors import NotDone

__all__ = ["Reached", "way_to"]

LIMIT_S = 60.0
"""Seconds from the first question to the first answer; on two busy cores it takes about ten."""
PROBE_S = 0.3
ANSWER_S = 20.0
"""Of one answer: through a tunnel the first connection takes a handshake of several seconds."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What a way leads to."""

    address: str
    """``HOST:PORT``, as this machine reaches it."""


@contextlib.contextmanager
def way_to(job: Job, place: Place, *, limit_s: float = LIMIT_S) -> Iterator[Reached]:
    """Yield how a job's dashboard is reached from here, once it answers there: the first question starts it.

    Args:
        job: It runs.
        place: Where it said that its dashboard is.
        limit_s: Seconds that the dashboard may take to come up.

    Raises:
        InvalidRequest: The job lets nobody in.
        NotDone: The dashboard has not come up in time.
        ServiceError: The service refuses.
    """
    if job.api.update is None and not job.service.target.is_billed:
        # SageMaker lets nobody into a Processing job; here its instances are in this machine's own networks.
        _await_answer(job, place.address, limit_s)
        yield Reached(place.address)
        return
    with job.tunnel(place.port, on=place.host or None) as tunnel:
        _await_answer(job, tunnel.address, limit_s)
        yield Reached(tunnel.address)


def _await_answer(job: Job, address: str, limit_s: float) -> None:
    deadline_s = time.monotonic() + limit_s
    while not _answers(address):
        if job.done():
            # What the caller asks next fails at once, and says so better.
            return
        if time.monotonic() >= deadline_s:
            raise NotDone(f"the dashboard of {job.name} has not come up within {limit_s:g} s; the job goes on")
        time.sleep(PROBE_S)


def _answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=ANSWER_S)
    try:
        connection.request("HEAD", "/")
        return connection.getresponse().status != DASHBOARD_NOT_YET
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
