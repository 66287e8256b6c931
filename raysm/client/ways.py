"""The way from this machine to a job's dashboard: a job flows in, a place and an address of this machine flow out.

Ray's dashboard is there some seconds after somebody first asks for it: whoever waits for it is told so.
"""

import contextlib
import http.client
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from raysm.client.dashboard_place import Place, last_place, place_told
from raysm.client.follow import JobStream
from raysm.client.job import Job
from raysm.contract.events import DASHBOARD_NOT_YET, parse
from raysm.errors import InvalidRequest, NotDone

__all__ = ["Reached", "Say", "place_of", "tell", "waiting_for", "way_to"]

Say: TypeAlias = Callable[[str], object]
"""Is told, in one line, that somebody has to wait."""

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


def tell(text: str) -> None:
    """Write a line to stderr: stdout is for what was asked for, ``ray list nodes --format json``."""
    sys.stderr.write(f"raysm: {text}\n")
    sys.stderr.flush()


def waiting_for(job: Job) -> str:
    """Return what somebody is told who asks for the dashboard of a job that has none yet."""
    return f"{job.name} has no dashboard yet ({job.secondary_status or job.status}); waiting for it"


def place_of(job: Job, *, say: Say = tell) -> Place:
    """Return where the dashboard of a job is; one that still starts is waited for.

    Args:
        job: It runs, or will.
        say: Is told that it waits.

    Raises:
        InvalidRequest: The job has ended.
        ServiceError: The service refuses, or has been away for minutes.
    """
    stream = JobStream(job.chain)
    # A job that has ended need not be read: it may have gigabytes of log.
    if not job.done():
        # The last one: a driver that was started again has another port.
        events = (parse(line.text) for line in stream.new_lines())
        place = last_place(event for event in events if event is not None) or _await_place(job, stream, say)
        if place is not None:
            return place
    raise InvalidRequest(f"{job.name} has ended ({job.status}), and its cluster with it")


def _await_place(job: Job, stream: JobStream, say: Say) -> Place | None:
    """Return the first place that the job tells from now on; None where it ends without."""
    say(waiting_for(job))
    for line in stream.follow():
        event = parse(line.text)
        place = None if event is None else place_told(event)
        if place is not None:
            return place
    return None


@contextlib.contextmanager
def way_to(job: Job, place: Place, *, limit_s: float = LIMIT_S, say: Say = tell) -> Iterator[Reached]:
    """Yield how a job's dashboard is reached from here, once it answers there: the first question starts it.

    Args:
        job: It runs.
        place: Where it said that its dashboard is.
        limit_s: Seconds that the dashboard may take to come up.
        say: Is told that it waits.

    Raises:
        InvalidRequest: The job lets nobody in.
        NotDone: The dashboard has not come up in time.
        ServiceError: The service refuses.
    """
    if job.api.update is None and not job.service.target.is_billed:
        # SageMaker lets nobody into a Processing job; here its instances are in this machine's own networks.
        _await_answer(job, place.address, limit_s, say)
        yield Reached(place.address)
        return
    with job.tunnel(place.port, on=place.host or None) as tunnel:
        _await_answer(job, tunnel.address, limit_s, say)
        yield Reached(tunnel.address)


def _await_answer(job: Job, address: str, limit_s: float, say: Say) -> None:
    deadline_s, is_told = time.monotonic() + limit_s, False
    while not _answers(address):
        if job.done():
            # What the caller asks next fails at once, and says so better.
            return
        if not is_told:
            # Only now: of a dashboard that is up nobody waits for anything.
            say(f"waiting for the dashboard of {job.name} to answer: it is started when somebody first asks for it")
            is_told = True
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
