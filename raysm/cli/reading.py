"""The job that a command reads which only looks: by its short name, too, once it has ended."""

import sys
from collections.abc import Callable

from raysm.client.job.handle import Job, attach
from raysm.client.job.listing import find_running
from raysm.client.service import Service
from raysm.errors import JobNotFound

__all__ = ["find_to_read", "tell_ended"]


def find_to_read(name: str, service: Service) -> Job:
    """Return the job of this name, else the one of this short name that runs, else the last one of it that has ended.

    Args:
        name: The job's, ``digits-20260101-120000-0a1b2c3d``, or ``digits``.
        service: Where it is.

    Raises:
        JobNotFound: There is none; the message has the names that are like it.
    """
    try:
        return attach(name, service)
    except JobNotFound:
        return find_running(name, service, ended=tell_ended(name))


def tell_ended(name: str) -> Callable[[Job], None]:
    """Return what says of a job that it is the last one of the short name ``name``, and has ended."""

    def tell(job: Job) -> None:
        # Said, since there may be a hundred of that name; to stderr, as stdout is the answer's.
        print(f"raysm: {name} is {job.name}, the last job of that name; it has ended", file=sys.stderr)

    return tell
