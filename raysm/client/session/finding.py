"""Which sessions there are, by the names that their users gave them.

What flows in is a service, what flows out are jobs: a session is an active job whose tags say that it is one.
"""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from raysm.client.job.description import Status
from raysm.client.job.handle import Job, attach
from raysm.client.job.records import kept_of, task_of
from raysm.client.service import Service
from raysm.contract.job_api import TRAINING
from raysm.contract.names import TASK_TAG, WORKLOAD_TAG
from raysm.errors import InvalidRequest, JobNotFound
from raysm.request.job import NAME_PATTERN
from raysm.request.session import SessionWorkload

__all__ = ["Found", "check_free", "find", "sessions"]

LOOKED_AT = 200
"""Jobs, the latest ones: a session is at most a few days old."""

# Not Stopping: who attaches to one that ends would only be told so.
ACTIVE = (Status.IN_PROGRESS,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A session that runs."""

    name: str
    """As its user named it."""
    job: str
    """The job that it is."""
    created: datetime
    """When it was sent."""


def sessions(service: Service, name: str | None = None) -> Iterator[Found]:
    """Yield the sessions that run, the latest first.

    Args:
        service: Where.
        name: Of one; None is all. So only jobs of that name are asked for their tags.
    """
    # The service refuses to look for a name that no job can have.
    if name is not None and not NAME_PATTERN.fullmatch(name):
        return
    beginning = None if name is None else kept_of(name)
    # ListTrainingJobs filters by a part of the job's name, which begins with the session's, as far as it is kept.
    for item in service.summaries(TRAINING, contains=beginning, limit=LOOKED_AT):
        job = str(item[TRAINING.name_key])
        task = task_of(job)
        if Status(item[TRAINING.status_key]) not in ACTIVE or (name is not None and name != job and task != beginning):
            continue
        # A call of the service for each: ListTrainingJobs tells no tags. So the names are compared first.
        tags = service.tags(item[TRAINING.arn_key])
        session = tags.get(TASK_TAG, task)
        # Of long names the beginnings may be the same: the tag has all of it.
        if tags.get(WORKLOAD_TAG) == SessionWorkload.kind and name in (None, session, task, job):
            yield Found(name=session, job=job, created=item["CreationTime"])


def find(service: Service, name: str) -> Job:
    """Return the job of a session, by its name or the job's.

    Raises:
        JobNotFound: There is none that runs; the message has the nearest names.
    """
    for session in sessions(service, name):
        return attach(session.job, service)
    every = [session.name for session in sessions(service)]
    # 0.6 is difflib's own: below, names that merely share a few letters are proposed.
    near = difflib.get_close_matches(name, every, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(every) or 'none'}"
    raise JobNotFound(f"there is no session {name!r} {service.target.describe()} that runs; {hint}")


def check_free(service: Service, name: str) -> None:
    """Refuse a name that a session has.

    Raises:
        InvalidRequest: It is taken.
    """
    for session in sessions(service, name):
        raise InvalidRequest(
            f"there is a session {name!r} already, the job {session.job}: raysm.Session.attach({name!r}) goes on with "
            "it; close it, or take another name"
        )
