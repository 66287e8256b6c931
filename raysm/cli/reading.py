"""The job that a command reads which only looks: by its short name, too, once it has ended."""

import sys

from raysm.client.finding import find_ended, find_job
from raysm.client.job import Job
from raysm.client.service import Service
from raysm.errors import JobNotFound

__all__ = ["find_to_read"]


def find_to_read(name: str, service: Service) -> Job:
    """Return the job of this name, else the one of this short name that runs, else the last one of it that has ended.

    Args:
        name: The job's, ``digits-20260101-120000-0a1b2c3d``, or ``digits``.
        service: Where it is.

    Raises:
        JobNotFound: There is none; the message has the names that are like it.
    """
    try:
        return find_job(name, service)
    except JobNotFound:
        job = find_ended(name, service)
        if job is None:
            raise
    # Said, since there may be a hundred of that name; to stderr, as stdout is the answer's.
    print(f"raysm: {name} is {job.name}, the last job of that name; it has ended", file=sys.stderr)
    return job
