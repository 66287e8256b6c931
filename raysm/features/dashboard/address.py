"""The address of a job's dashboard, and ``raysm://NAME`` as an address for Ray's own commands.

Ray starts its dashboard some seconds after the first request.
"""

import atexit
import contextlib
import http.client
import ipaddress
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from raysm.core.client.job.handle import Job, token_of
from raysm.core.client.job.listing import find_job
from raysm.core.client.logs.stream import JobStream
from raysm.core.client.service import connect
from raysm.core.client.settings import Project, Settings, find_project_file
from raysm.core.protocol.connections import connect_to_own, has_own_listener, without_proxy
from raysm.core.protocol.events import Event, State, parse
from raysm.core.protocol.terminal_text import visible
from raysm.core.request import Target
from raysm.errors import InvalidRequest, NotDone, RaysmError

if TYPE_CHECKING:
    from raysm.core.client.tunnel import Tunnel


ANSWERS = "dashboard"
CONTROL = "control"
"""Name of the event that says where the head's control channel is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DashboardAddress:
    host: str
    port: int
    address: str


def read_address(event: Event | None, name: str = ANSWERS) -> DashboardAddress | None:
    """Return the address in an event of this name; None for another event."""
    match event:
        case State(name=found, address=str(url), host=host) if found == name:
            parts = urlsplit(url)
            return (
                None
                if parts.port is None
                else DashboardAddress(host=host, port=parts.port, address=parts.netloc)
            )
    return None


Say: TypeAlias = Callable[[str], object]

START_S = 60.0
"""Seconds from the first request to the first answer; on two busy cores it takes about ten."""
PROBE_S = 0.3
ANSWER_S = 20.0
"""Seconds for one answer: the first connection through a tunnel takes a handshake of several
seconds."""
SOON_S = 2.0
"""After so long without an answer, the user is told that the dashboard is being started."""


def write_line(text: str) -> None:
    """Write a line to stderr: stdout is for the answer, ``ray list nodes --format json``."""
    sys.stderr.write(f"raysm: {visible(text)}\n")
    sys.stderr.flush()


def describe_wait(job: Job) -> str:
    return f"{job.name} has no dashboard yet ({job.secondary_status or job.status}); waiting for it"


def await_address(job: Job, *, say: Say = write_line) -> DashboardAddress:
    stream = JobStream(job.chain)
    place: DashboardAddress | None = None
    # The log of a job that has ended may have gigabytes.
    if not job.done():
        for line in stream.new_lines():
            # The last one: a driver that was started again has another port.
            place = _find_address(line.text) or place
        if place is None:
            say(describe_wait(job))
            place = next(filter(None, (_find_address(line.text) for line in stream.follow())), None)
    if place is None:
        raise InvalidRequest(f"{job.name} has ended ({job.status}), and its cluster with it")
    return place


def _find_address(line: str) -> DashboardAddress | None:
    event = parse(line)
    return None if event is None else read_address(event)


@contextlib.contextmanager
def open_route(
    job: Job, place: DashboardAddress, *, limit_s: float = START_S, say: Say = write_line
) -> Iterator["Tunnel"]:
    """Yield a tunnel to the dashboard, once the dashboard answers: the first request starts it."""
    with tunnel_to(job, place) as tunnel:
        _await_answer(job, tunnel.address, limit_s, say)
        yield tunnel


def tunnel_to(job: Job, place: DashboardAddress) -> "Tunnel":
    if not job.service.target.is_billed:
        # Checked here too, since a client of the tunnel only sees that nothing answers.
        has_own_listener(place.address.rpartition(":")[0], place.port)
    if job.api.update is not None or job.service.target.is_billed:
        return job.tunnel(place.port, on=place.host or None)
    # Processing jobs cannot be entered; here their instances are in this machine's own networks.
    from raysm.core.client.tunnel import Tunnel

    host = place.address.rpartition(":")[0]
    # The address is that of a line of the log, which the job's code can print too.
    if not _is_private(host):
        raise InvalidRequest(
            f"the log of {job.name} names {place.address} as an address of its head, which is "
            "not on this machine: the job's token was not sent there"
        )
    # A tunnel checks for each connection which user's process listens.
    return Tunnel(lambda: connect_to_own(host, place.port, ANSWER_S))


def _is_private(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:  # a name
        return False


def _await_answer(job: Job, address: str, limit_s: float, say: Say) -> None:
    deadline_s = time.monotonic() + limit_s
    is_reported = False
    answer_s = SOON_S
    while not _answers(address, answer_s):
        if job.done():
            # The caller's next request fails at once with a better message.
            return
        if not is_reported:
            # Only now: a dashboard that is up takes no wait.
            say(
                f"waiting for the dashboard of {job.name} to answer: it starts at the first request"
            )
            is_reported = True
            answer_s = ANSWER_S
        if time.monotonic() >= deadline_s:
            raise NotDone(
                f"the dashboard of {job.name} has not started within {limit_s:g} s; "
                "the job keeps running"
            )
        time.sleep(PROBE_S)


def _answers(address: str, limit_s: float) -> bool:
    connection = http.client.HTTPConnection(address, timeout=limit_s)
    try:
        connection.request("HEAD", "/")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


_open = contextlib.ExitStack()
"""Open tunnels, until this process ends: Ray does not say when it no longer needs them."""

atexit.register(_open.close)


def get_job_submission_client_cluster_info(
    address: str,
    # Ray passes all of these by name, and may pass more.
    create_cluster_if_needed: bool = False,
    cookies: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    headers: Mapping[str, Any] | None = None,
    **_: Any,
) -> Any:
    """Return Ray's ``ClusterInfo`` of a running job; Ray calls it for ``raysm://NAME``.

    The headers get the job's token.
    """
    from ray.dashboard.modules.dashboard_sdk import ClusterInfo

    try:
        job = find_job(unquote(address).strip("/"), connect(_target()))
        place = await_address(job)
        # Open until the end of the process: `ray job logs --follow` uses it for hours.
        way = _open.enter_context(open_route(job, place))
    except RaysmError as error:
        # Ray's commands show click's own errors on one line.
        click = sys.modules.get("click")
        if click is None or click.get_current_context(silent=True) is None:
            raise
        raise click.ClickException(str(error)) from error
    # Ray's client reads its proxy from the environment.
    os.environ.update(without_proxy([way.address.rpartition(":")[0]], os.environ))  # noqa: TID251
    return ClusterInfo(
        address=f"http://{way.address}",
        cookies=cookies and dict(cookies),
        metadata=metadata and dict(metadata),
        headers={**(headers or {}), "Authorization": f"Bearer {token_of(job)}"},
    )


class ClientBuilder:
    """Refuses ``ray.init("raysm://NAME")``, which would be Ray Client."""

    def __init__(self, address: str | None) -> None:
        name = address or "NAME"
        # Ray's own maintainers point from it to the Jobs API:
        # https://docs.ray.io/en/latest/cluster/running-applications
        raise InvalidRequest(
            f"ray.init('raysm://{name}') would be Ray Client, which the clusters of raysm do not "
            f"run: submit a script (ray job submit --address raysm://{name} --working-dir . -- "
            "python train.py), or call functions in a session of the cluster (raysm.Session)"
        )


def _target() -> Target:
    file = find_project_file(Path.cwd(), Path.home())
    layers = [] if file is None else Project.read(file).chosen()
    # Reading a job needs no role, only the caller's credentials.
    return Settings(layers).target(role="arn:aws:iam::000000000000:role/unused")
