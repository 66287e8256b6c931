"""From a job to its dashboard on this machine: waits until there is one, and says so.

Of a job that has ended it is what the head left of it, among the job's other outputs.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

from raysm.client.dashboard_place import Place
from raysm.client.job import Job
from raysm.client.storage import Storage
from raysm.client.token import token_of
from raysm.client.ways import Say, tell, waiting_for, way_to
from raysm.contract.dashboard_record import DASHBOARD_RECORD, DashboardRecord, unpack
from raysm.errors import InvalidRequest, MissingDependency, NotDone
from raysm.views.dashboard.assets import installed_build
from raysm.views.dashboard.dashboard import Dashboard
from raysm.views.dashboard.frozen import FrozenPart, FrozenSite, KeptFiles, banner_of
from raysm.views.dashboard.grafana import ChartsPart
from raysm.views.dashboard.live import LiveSite
from raysm.views.dashboard.parts import Part
from raysm.views.dashboard.server import DashboardServer, check_aiohttp
from raysm.views.dashboard.timeline import Timeline
from raysm.views.dashboard.upstream import Route
from raysm.views.dashboard.watch import Watch

__all__ = ["open_dashboard"]

OpenTunnel: TypeAlias = Callable[[Job, Place], AbstractContextManager[Route]]


def open_dashboard(
    job: Job, *, timeout: float | None = None, say: Say | None = None, tunnel: OpenTunnel | None = None
) -> Dashboard:
    """Return Ray's dashboard of a job, at an address of this machine.

    Args:
        job: It runs, or has ended.
        timeout: Seconds to wait for a job that has no dashboard yet; None is without end.
        say: Is told, in one line, that it waits; None writes to stderr.
        tunnel: Opens a way to a place of the job; None is ``way_to``.

    Raises:
        InvalidRequest: The job has ended and left none.
        NotDone: A TimeoutError: there is none within ``timeout``.
        MissingDependency: aiohttp is not installed; of a job that has ended, Ray.
    """
    check_aiohttp()
    say = say or tell
    watch = Watch(job)
    watch.take(watch.read())
    if not watch.is_over and watch.place is None and not job.done():
        _await_place(job, watch, timeout, say)
    # Asked again: it may have ended while somebody waited for its dashboard.
    if watch.is_over or job.done():
        parts = _ended_parts(job, watch.timeline)
        return Dashboard(DashboardServer(lambda: FrozenSite(parts)), job.name)
    # Read once, here: the site is made in the server's own loop, which must not wait for the service.
    token, cache = token_of(job), _cache(job)

    def site() -> LiveSite:
        ended = partial(_ended_parts, job, watch.timeline)
        way = partial(_way, job, watch, tunnel or partial(way_to, say=say))
        return LiveSite(job.name, watch, way=way, token=token, cache=cache, ended=ended)

    return Dashboard(DashboardServer(site), job.name)


def _await_place(job: Job, watch: Watch, timeout: float | None, say: Say) -> None:
    say(waiting_for(job))
    deadline_s = None if timeout is None else time.monotonic() + timeout
    for pause_s in job.service.polling.pauses():
        watch.take(watch.read())
        if watch.place is not None or watch.is_over:
            return
        if deadline_s is not None and time.monotonic() >= deadline_s:
            raise NotDone(f"{job.name} has no dashboard within {timeout:g} s; it goes on")
        # Somebody sits and waits for it: the polling's own pauses grow to many seconds.
        time.sleep(min(pause_s, 2.0))


def _way(job: Job, watch: Watch, tunnel: OpenTunnel) -> AbstractContextManager[Route]:
    # Asked each time that a way is opened: the dashboard of a follow-up job is at another place.
    assert watch.place is not None, "waited for before"
    return tunnel(job, watch.place)


def _ended_parts(job: Job, timeline: Timeline) -> Sequence[Part]:
    record = _record_of(job)
    # What was watched while it ran is newer; what the head has kept reaches further back.
    for sample in record.samples:
        timeline.add(sample)
    folder = _page(job, record)
    banner = banner_of(job.name, str(job.status), record)
    files = FrozenPart(record, lambda host: [line.text for line in job.lines(instance=host)])
    charts = ChartsPart(job.name, timeline, clock=lambda: record.time_s)
    return (charts, KeptFiles(folder, banner), files)


def _record_of(job: Job) -> DashboardRecord:
    content = Storage(job.service).read(f"{job.outputs}/data/{DASHBOARD_RECORD}")
    if content is None:
        # On one line: the whole reason is what raysm status shows.
        why = job.describe().reason.partition("\n")[0]
        raise InvalidRequest(
            f"{job.name} has ended ({job.status}{': ' if why else ''}{why}) and left no dashboard: it ended before its "
            f"dashboard was started, or was killed; raysm logs {job.name} shows what it wrote"
        )
    return unpack(content)


def _page(job: Job, record: DashboardRecord) -> Path:
    """Return the folder of Ray's page: of the version that the job had, where it is here."""
    version = str(record.answers.get("api/version", {}).get("ray_version", ""))
    folders = sorted(_cache(job).glob(f"{version}-*"))
    folder = installed_build(version) or next((path for path in folders if (path / "index.html").is_file()), None)
    # Of another version, rather than none: the page changes little, and the banner says that it has ended.
    folder = folder or installed_build()
    if folder is None:
        raise MissingDependency(
            f"the page of the dashboard comes with Ray, which is not installed: python3 -m pip install "
            f"'ray[default]=={version or '2.60.*'}'"
        )
    return folder


def _cache(job: Job) -> Path:
    return job.service.home / "dashboard"
