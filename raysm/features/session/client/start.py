"""Start a session's job and wait for its server, and find running sessions by name."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from raysm.core.client.costs.prices import cap_of, usd_per_hour
from raysm.core.client.job.description import Status, budget_used
from raysm.core.client.job.handle import Job, attach
from raysm.core.client.job.records import kept_of, task_of
from raysm.core.client.logs.pending import AFTER_S, reasons_told
from raysm.core.client.logs.rendering import sentence
from raysm.core.client.service import Service
from raysm.core.client.submit import Prepared, prepare
from raysm.core.protocol.events import Event, State, parse
from raysm.core.protocol.job_api import TRAINING
from raysm.core.protocol.names import TASK_TAG, WORKLOAD_TAG
from raysm.core.request import Limits, Security
from raysm.core.request.job import NAME_PATTERN
from raysm.core.request.options import check_amounts
from raysm.errors import InvalidRequest, JobFailed, JobNotFound
from raysm.features.session.client.checks import check_above_0, check_integer
from raysm.features.session.protocol import CLOSING, SERVING
from raysm.features.session.request import SessionWorkload

MAX_JOBS = 200
"""How many of the latest jobs are searched for sessions, which are at most a few days old."""

# Not Stopping, because a session that ends cannot be attached to.
ACTIVE = (Status.IN_PROGRESS,)


class ServerAddress(NamedTuple):
    """Where a session's server listens: the name of the head, and the port on its loopback."""

    host: str
    port: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningSession:
    name: str
    job: str
    created: datetime


def list_sessions(service: Service, name: str | None = None) -> Iterator[RunningSession]:
    """Yield the running sessions; with ``name``, those with this name or whose job has it."""
    # The service refuses to search for an invalid name.
    if name is not None and not NAME_PATTERN.fullmatch(name):
        return
    prefix = None if name is None else kept_of(name)
    # ListTrainingJobs filters by a part of the job's name, which begins with the possibly shortened
    # session's name.
    for item in service.summaries(TRAINING, contains=prefix, limit=MAX_JOBS):
        job = str(item[TRAINING.name_key])
        task = task_of(job)
        if Status(item[TRAINING.status_key]) not in ACTIVE or (
            name is not None and name != job and task != prefix
        ):
            continue
        # Names are compared first, because the tags of each job need another request.
        tags = service.tags(item[TRAINING.arn_key])
        session = tags.get(TASK_TAG, task)
        # The tag has the complete name. Long names may be equal after they were shortened.
        if tags.get(WORKLOAD_TAG) == SessionWorkload.kind and name in (None, session, task, job):
            yield RunningSession(name=session, job=job, created=item["CreationTime"])


def find_session(service: Service, name: str) -> Job:
    for session in list_sessions(service, name):
        return attach(session.job, service)
    names = ", ".join(session.name for session in list_sessions(service)) or "none"
    raise JobNotFound(
        f"no session {name!r} is running {service.target.describe()}; running sessions: {names}"
    )


def check_name_is_free(service: Service, name: str) -> None:
    for session in list_sessions(service, name):
        raise InvalidRequest(
            f"there is a session {name!r} already, the job {session.job}: "
            f"raysm.Session.attach({name!r}) connects to it, in a cell %raysm connect {name}; "
            "close it, or take another name"
        )


Show = Callable[[Event], None]

_log = logging.getLogger("raysm")


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionLimits:
    """When a session ends by itself; ``Session`` describes the fields."""

    idle_timeout_s: float = 1800.0
    idle_timeout_detached_s: float = 300.0
    max_cost: float | None = None
    price_per_hour: float | None = None
    max_runtime_s: int | None = None

    def __post_init__(self) -> None:
        if self.price_per_hour is not None:
            check_above_0(
                "Session: price_per_hour", self.price_per_hour, example="price_per_hour=1.41"
            )
        check_amounts("Session", max_cost=self.max_cost)
        if self.max_runtime_s is not None:
            check_integer("Session: max_runtime_s", self.max_runtime_s, minimum=1)


def prepare_session(
    name: str | None, limits: SessionLimits, service: Service, options: Mapping[str, Any]
) -> Prepared:
    # A copy, because the handle keeps the user's options.
    chosen = dict(options)
    # The session needs its hourly price to watch its budget, and the price depends on the cluster.
    cluster = chosen.get("cluster") or service.target.default_cluster()
    if limits.max_runtime_s is not None and chosen.get("limits") is not None:
        raise InvalidRequest("Session: max_runtime_s is in limits, too; give one of the two")
    own = {
        "max_runtime_s": limits.max_runtime_s,
        "max_cost": limits.max_cost,
        "price_per_hour": limits.price_per_hour,
    }
    job_limits = replace(
        chosen.get("limits") or Limits(),
        **{name: value for name, value in own.items() if value is not None},
    )
    chosen["limits"] = job_limits
    cap = cap_of(cluster, job_limits, service)
    workload = SessionWorkload(
        idle_timeout_s=limits.idle_timeout_s,
        idle_timeout_detached_s=limits.idle_timeout_detached_s,
        # Without a cap nothing is billed: a project's file may have one for its jobs on AWS.
        max_cost=limits.max_cost if cap is None else cap.max_cost,
        max_cost_s=cap.max_runtime_s if cap is not None and cap.is_reason else None,
        usd_per_hour=usd_per_hour(cluster, service, job_limits.price_per_hour),
    )
    # Tunnels need remote debugging, and calls need a tunnel unless the instances share this
    # machine's network.
    chosen["security"] = replace(chosen.get("security") or Security(), remote_debug=True)
    return prepare(workload, on=service, name=name or "session", **{**chosen, "cluster": cluster})


def await_server(job: Job, show: Show | None = None, *, quiet_s: float = AFTER_S) -> ServerAddress:
    """Wait until a session accepts calls; return the address of its server.

    ``show`` gets the job's events meanwhile. None logs one line at once, and the events after
    ``quiet_s``.
    """
    # Logged and not printed, so that the user can silence it.
    if show is None:
        _log.warning("waiting until the session accepts calls: %s", job.name)
        show = _log_events(quiet_s)
    with reasons_told(job, lambda text: _log.warning("%s", text), every_s=quiet_s) as on_line:
        # The address comes through the job's log, which works with every network and every role.
        for line in job.lines(follow=True):
            on_line(line.text)
            event = parse(line.text)
            if event is None:
                continue
            show(event)
            match event:
                case State(name=name, host=host, address=str(address)) if name == SERVING:
                    port = urlsplit(address).port
                    assert port is not None, "the driver listens on one"
                    return ServerAddress(host, port)
    raise job.exception() or JobFailed(
        f"the session's job {job.name} ended before it accepted calls", job=job.name
    )


def _log_events(quiet_s: float) -> Show:
    started_s = time.monotonic()

    def show(event: Event) -> None:
        match event:
            case State() if time.monotonic() - started_s >= quiet_s and (text := sentence(event)):
                # As an argument, because the text may contain a percent sign.
                _log.warning("%s", text)

    return show


def describe_end(job: Job, name: str) -> str | None:
    """Return why a session has ended; None if its job is running."""
    if not job.done():
        return None
    # The session logs the reason; the service only knows that the job ended.
    for event in job.events():
        match event:
            case State(name=state, detail=detail) if state == CLOSING:
                return f"the session {name} has ended: {detail}"
    description = job.describe()
    if sentence := budget_used(description).partition("\n")[0]:
        return f"the session {name} has ended: its job {job.name} was {sentence}"
    end = f"{description.status}: {description.reason}".rstrip(": ")
    return f"the session {name} has ended: its job {job.name} is {end}"
