"""From what the user says to a session that takes calls: the job that is sent, and the way to its server.

What flows in are options of a job and of a session; what flows out are a job and where its server listens.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from raysm.client.costs.prices import price_of, price_of_user, volume_usd_per_hour
from raysm.client.job.handle import Job
from raysm.client.logs.pending import AFTER_S, reasons_told
from raysm.client.logs.rendering import sentence
from raysm.client.prepared import Prepared
from raysm.client.service import Service
from raysm.client.session.arguments import check_number, check_whole
from raysm.client.submit import prepare
from raysm.contract.events import Event, State, parse
from raysm.contract.session import CLOSING, SERVING
from raysm.errors import InvalidRequest, JobFailed
from raysm.request import Cluster, Limits, Security
from raysm.request.session import SessionWorkload

__all__ = ["SessionLimits", "place_of", "prepared", "usd_per_hour", "why_ended"]

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
