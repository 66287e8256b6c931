"""Start a session's job and wait for its server, and find running sessions by name."""

import dataclasses
import difflib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from raysm.client.costs.prices import price_of, price_of_user, volume_usd_per_hour
from raysm.client.job.description import Status
from raysm.client.job.handle import Job, attach
from raysm.client.job.records import kept_of, task_of
from raysm.client.logs.pending import AFTER_S, reasons_told
from raysm.client.logs.rendering import sentence
from raysm.client.prepared import Prepared
from raysm.client.service import Service
from raysm.client.session.arguments import check_number, check_whole
from raysm.client.submit import prepare
from raysm.contract.events import Event, State, parse
from raysm.contract.job_api import TRAINING
from raysm.contract.names import TASK_TAG, WORKLOAD_TAG
from raysm.contract.session import CLOSING, SERVING
from raysm.errors import InvalidRequest, JobFailed, JobNotFound
from raysm.request import Cluster, Limits, Security
from raysm.request.job import NAME_PATTERN
from raysm.request.session import SessionWorkload

__all__ = [
    "Found",
    "SessionLimits",
    "check_free",
    "find",
    "place_of",
    "prepared",
    "sessions",
    "usd_per_hour",
    "why_ended",
]

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


Show = Callable[[Event], None]

_log = logging.getLogger("raysm")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SessionLimits:
    """When a session ends by itself."""

    idle_timeout_s: float = 1800.0
    """Seconds without a call, while a client is attached."""
    idle_timeout_detached_s: float = 300.0
    """Seconds without a call and without a client."""
    budget_usd: float | None = None
    """What it may cost; None is no limit."""
    price_per_hour: float | None = None
    """What one instance costs, USD; None is what raysm's table of public prices says."""
    max_runtime_s: int | None = None
    """Seconds for which its job may run; None is a day."""

    def __post_init__(self) -> None:
        """Check what its workload does not see; the others it checks itself.

        Raises:
            InvalidRequest: A price or a time is no number.
        """
        if self.price_per_hour is not None:
            check_number("Session: price_per_hour", self.price_per_hour, example="price_per_hour=1.41")
        if self.max_runtime_s is not None:
            check_whole("Session: max_runtime_s", self.max_runtime_s, least=1)


def prepared(name: str | None, limits: SessionLimits, service: Service, options: Mapping[str, Any]) -> Prepared:
    """Return the job of a session, ready to be sent.

    Raises:
        InvalidRequest: What was asked for cannot be.
    """
    # A copy: the handle keeps what its user said, and may be asked again.
    chosen = dict(options)
    # Needed here already: what it costs an hour is told to the session, which watches over its budget.
    cluster = chosen.get("cluster") or service.target.default_cluster()
    workload = SessionWorkload(
        idle_timeout_s=limits.idle_timeout_s,
        idle_timeout_detached_s=limits.idle_timeout_detached_s,
        budget_usd=limits.budget_usd,
        usd_per_hour=usd_per_hour(cluster, service, limits.price_per_hour),
    )
    if limits.max_runtime_s is not None:
        if chosen.get("limits") is not None:
            raise InvalidRequest("Session: max_runtime_s stands in limits already; give one of the two")
        chosen["limits"] = Limits(max_runtime_s=limits.max_runtime_s)
    # Through it goes every call, where the instances are on a network of their own.
    chosen["security"] = dataclasses.replace(chosen.get("security") or Security(), remote_debug=True)
    return prepare(workload, on=service, name=name or "session", **{**chosen, "cluster": cluster})


def usd_per_hour(cluster: Cluster, service: Service, price_per_hour: float | None) -> float | None:
    """Return what all instances cost at most; None where the price of one is not known, or nothing is billed."""
    choices = [_usd_per_hour(choice, cluster, service, price_per_hour) for choice in cluster.choices]
    prices = [usd for usd in choices if usd is not None]
    # Which of its types the service takes nobody knows before, and a budget is to hold.
    return max(prices) if len(prices) == len(choices) else None


def _usd_per_hour(
    instances: Mapping[str, int], cluster: Cluster, service: Service, price_per_hour: float | None
) -> float | None:
    total = 0.0
    for instance_type, count in instances.items():
        if price_per_hour is not None:
            price = price_of_user(price_per_hour)
        elif service.target.is_billed and (listed := price_of(instance_type, service.region)) is not None:
            price = listed
        else:
            return None
        # ML storage is billed beside the instance: https://aws.amazon.com/sagemaker/ai/pricing/
        volume = volume_usd_per_hour(instance_type, cluster.volume_gb, service.region) or 0.0
        total += count * (price.usd_per_hour + (volume if service.target.is_billed else 0.0))
    return total


def place_of(job: Job, show: Show | None = None, *, quiet_s: float = AFTER_S) -> tuple[str, int]:
    """Wait until a session takes calls; return the name of its head, and its server's port on the loopback there.

    Args:
        job: The session's.
        show: Called with what the job says of itself meanwhile; None tells it to the logger.
        quiet_s: Seconds before the logger hears of anything.

    Raises:
        JobFailed: It ended before.
    """
    show = show or _to_logger(quiet_s)
    # By the logger: a print would stand in the middle of what a program prints, and its user may silence this one.
    with reasons_told(job, lambda text: _log.warning("%s", text), every_s=quiet_s) as hear:
        # By the job's log, the one way out of an instance that every network and every role has.
        for line in job.lines(follow=True):
            hear(line.text)
            event = parse(line.text)
            if event is None:
                continue
            show(event)
            match event:
                case State(name=name, host=host, address=str(address)) if name == SERVING:
                    port = urlsplit(address).port
                    assert port is not None, "the driver listens on one"
                    return host, port
    raise job.exception() or JobFailed(f"the session's job {job.name} ended before it took calls", job=job.name)


def _to_logger(quiet_s: float) -> Show:
    begun_s = time.monotonic()

    def show(event: Event) -> None:
        match event:
            case State() if time.monotonic() - begun_s >= quiet_s and (text := sentence(event)):
                # In the argument: what a job says may hold a percent sign.
                _log.warning("%s", text)

    return show


def why_ended(job: Job, name: str) -> str | None:
    """Return why a session has ended, for people; None while its job runs."""
    if not job.done():
        return None
    # The session says itself why it ends; the service knows only that its main process ended.
    for event in job.events():
        match event:
            case State(name=state, detail=detail) if state == CLOSING:
                return f"the session {name} has ended: {detail}"
    how = job.describe()
    return f"the session {name} has ended: its job {job.name} is {how.status}: {how.reason}".rstrip(": ")
