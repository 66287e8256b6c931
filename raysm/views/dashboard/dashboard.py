"""Open Ray's dashboard of a running job at an address of this machine."""

import asyncio
import contextlib
import html
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from raysm.client.job.handle import Job, token_of
from raysm.client.logs.stream import JobStream
from raysm.client.tunnel.dashboard import Place, Say, place_told, tell, waiting_for, way_to
from raysm.contract.events import Metric, parse
from raysm.errors import InvalidRequest, NotDone, RaysmError
from raysm.views.dashboard.charts import NODES, PRELOAD, Timeline, charts_site, samples_of
from raysm.views.dashboard.server import Answer, LocalServer, check_aiohttp, seen_from_notebook
from raysm.views.dashboard.upstream import Route, Upstream, Way

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Dashboard", "Watch", "dashboard_site", "open_dashboard"]

_log = logging.getLogger("raysm")

OpenTunnel: TypeAlias = Callable[[Job, Place], AbstractContextManager[Route]]

HEIGHT = 720
"""Pixels of the frame in a notebook, enough for the Overview without scrolling."""
SAMPLE_S = 5.0
"""Seconds between two reads of the nodes' utilization, which Ray's nodes report at this interval."""
LOOK_S = 3.0
"""Seconds between two reads of the job's log."""
READY = "raysm/ready"
HOLD_S = 20.0
"""Seconds that a request of ``READY`` may wait (long polling), less than the timeout of proxies."""
WITHOUT_PAGE_S = 0.3
"""Seconds to wait before the waiting page is shown: a running dashboard answers sooner."""


class Dashboard:
    """Ray's dashboard of one job, served at an address of this machine until ``close``.

    Use it as a context manager. Keep the address secret: it gives the same access to the cluster as the owner has.
    """

    def __init__(self, server: LocalServer, name: str) -> None:
        """Take a running server and the job's name."""
        self._server, self._name = server, name

    @property
    def url(self) -> str:
        """The address for a browser of this machine."""
        return self._server.url

    @property
    def link(self) -> str:
        """The address for a page of this kernel's notebook."""
        return seen_from_notebook(self._server.port, self._server.prefix).url

    @property
    def port(self) -> int:
        """The local port."""
        return self._server.port

    def close(self) -> None:
        """Stop serving it; may be repeated. The job keeps running."""
        self._server.close()

    def __enter__(self) -> "Dashboard":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dashboard of {self._name}: {self.url}>"

    def _repr_html_(self) -> str:
        seen = seen_from_notebook(self._server.port, self._server.prefix)
        url, name = html.escape(seen.url), html.escape(self._name)
        link = f'<a href="{url}" target="_blank" rel="noopener">Ray dashboard of {name}</a>'
        if not seen.in_frame:
            return f"<div>{link} (on the machine of this kernel)</div>"
        frame = f'<iframe src="{url}" width="100%" height="{HEIGHT}" style="border:1px solid #8884"></iframe>'
        return f"<div>{link}{frame}</div>"


class Watch:
    """Reads a job's log for the values of its metrics and the address of its dashboard.

    Attributes:
        timeline: The metrics.
        place: The dashboard's address in the cluster; None until the log has it.
        is_over: True once the job, with its follow-up jobs, has ended.
    """

    def __init__(self, job: Job) -> None:
        """Start at the first line of the log."""
        self.timeline = Timeline()
        self.place: Place | None = None
        self.is_over = False
        self._stream = JobStream(job.chain)

    def read(self) -> list[Metric]:
        """Read new lines of the log and return their metrics, which the caller adds by ``take``. Blocks.

        Raises:
            ServiceError: The service does not answer.
        """
        events = [event for event in (parse(line.text) for line in self._stream.new_lines()) if event is not None]
        for event in events:
            # The dashboard of a follow-up job has another address.
            self.place = place_told(event) or self.place
        self.is_over = self._stream.is_over
        return [event for event in events if isinstance(event, Metric)]

    def take(self, metrics: list[Metric]) -> None:
        """Add metrics to the timeline; call it in the event loop that reads the timeline."""
        for metric in metrics:
            self.timeline.add(metric)


def open_dashboard(
    job: Job, *, timeout: float | None = None, say: Say | None = None, tunnel: OpenTunnel | None = None
) -> Dashboard:
    """Serve Ray's dashboard of a job at an address of this machine.

    Args:
        job: A job that runs or will run.
        timeout: Seconds to wait for a job that has no dashboard yet; None waits until it has one.
        say: Called with a line if it must wait for the job; None prints to stderr.
        tunnel: Opens a connection to the dashboard; None is ``way_to``.

    Raises:
        InvalidRequest: The job has ended.
        NotDone: There is no dashboard within ``timeout``; it is also a TimeoutError.
        MissingDependency: aiohttp is not installed.
    """
    check_aiohttp()
    say = say or tell
    watch = Watch(job)
    watch.take(watch.read())
    if not watch.is_over and watch.place is None and not job.done():
        _wait_for_place(job, watch, timeout, say)
    if watch.is_over or job.done():
        raise InvalidRequest(
            f"{job.name} has ended ({job.status}), and Ray's dashboard with it; raysm logs {job.name} and "
            f"raysm metrics {job.name} show what it left"
        )
    if started := job.describe().started:
        watch.timeline.start_s = min(watch.timeline.start_s, started.timestamp())
    way = partial(_open_current, job, watch, tunnel or partial(way_to, say=say))
    # The token is read here, because the server's event loop must not wait for the service.
    site = partial(dashboard_site, job.name, watch, way, token_of(job), job.service.home / "dashboard")
    return Dashboard(LocalServer(site, link=PRELOAD), job.name)


def _open_current(job: Job, watch: Watch, tunnel: OpenTunnel) -> AbstractContextManager[Route]:
    # Looked up each time, because the dashboard of a follow-up job has another address.
    assert watch.place is not None, "open_dashboard waits for it"
    return tunnel(job, watch.place)


def _wait_for_place(job: Job, watch: Watch, timeout: float | None, say: Say) -> None:
    say(waiting_for(job))
    deadline_s = None if timeout is None else time.monotonic() + timeout
    for pause_s in job.service.polling.pauses():
        watch.take(watch.read())
        if watch.place is not None or watch.is_over:
            return
        if deadline_s is not None and time.monotonic() >= deadline_s:
            raise NotDone(f"{job.name} has no dashboard within {timeout:g} s; the job keeps running")
        # Shorter than the pauses of polling, which grow to many seconds, because the user waits.
        time.sleep(min(pause_s, 2.0))


@contextlib.asynccontextmanager
async def dashboard_site(
    name: str, watch: Watch, way: Way, token: str, cache: Path, *, look_s: float = LOOK_S
) -> AsyncIterator[Answer]:
    """Yield a handler for the browser: charts, a page while the dashboard starts, and all else from the head.

    Args:
        name: The job's name.
        watch: Reads the job's log.
        way: Opens a connection to the head's dashboard.
        token: The job's token.
        cache: A folder for the chart library.
        look_s: Seconds between two reads of the log.
    """
    charts = charts_site(name, watch.timeline, cache)

    async def answer(request: "web.Request", path: str) -> "web.StreamResponse | None":
        from aiohttp import web

        response = await charts(request, path)
        if response is not None:
            return response
        if watch.is_over:
            text = f"{name} has ended, and Ray's dashboard with it. raysm logs {name} shows its output."
            return _page(text, status=410) if not path else web.Response(status=410, text=text)
        if path in ("", READY) and request.method in ("GET", "HEAD"):
            try:
                await asyncio.wait_for(upstream.connect(), HOLD_S if path else WITHOUT_PAGE_S)
            except TimeoutError:
                if path:
                    return web.Response(status=503)
                text = f"The dashboard of {name} is starting: Ray starts it at the first request."
                return _page(text, script=RELOAD)
            except (OSError, RaysmError) as error:
                # The waiting page shows the error in place; a reload would start waiting again.
                return _page(f"The dashboard of {name} cannot be reached: {error}", status=502)
            if path:
                return web.Response(status=204)
        query = request.rel_url.raw_query_string
        return await upstream.answer(request, f"{path}?{query}" if query else path)

    async with Upstream(way, token) as upstream:
        tasks = [asyncio.create_task(_follow(name, watch, look_s)), asyncio.create_task(_sample(upstream, watch))]
        try:
            yield answer
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _follow(name: str, watch: Watch, look_s: float) -> None:
    while not watch.is_over:
        await asyncio.sleep(look_s)
        try:
            watch.take(await asyncio.to_thread(watch.read))
        except RaysmError:  # the service does not answer; the next read catches up
            continue
        except Exception:
            _log.warning("the dashboard of %s cannot read the job's log now", name, exc_info=True)


async def _sample(upstream: Upstream, watch: Watch) -> None:
    while not watch.is_over:
        # Without an answer, or with an unknown form, there is nothing to draw; the rest of the page still works.
        with contextlib.suppress(OSError, RaysmError, ValueError, KeyError, TypeError):
            watch.take(samples_of(await upstream.read(NODES), time.time()))
        await asyncio.sleep(SAMPLE_S)


STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; min-height: 100vh; display: grid; place-content: center; font: 15px system-ui, sans-serif; }
"""

# Not by a Refresh header or tag: if the address has a #, browsers only jump within the page.
RELOAD = f"""
(async () => {{
  for (;;) {{
    try {{
      const answer = await fetch("{READY}", {{cache: "no-store"}});
      if (answer.status === 502) return document.body.innerHTML = await answer.text();
      if (answer.status !== 503) return location.reload();
    }} catch (error) {{}}
    await new Promise(done => setTimeout(done, 300));
  }}
}})();
"""


def _page(text: str, *, status: int = 200, script: str = "") -> "web.Response":
    from aiohttp import web

    body = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Ray dashboard</title><style>{STYLE}</style>'
        f'<p role="status">{html.escape(text)}</p><script>{script}</script></html>'
    )
    headers = {"Cache-Control": "no-store"}
    return web.Response(text=body, status=status, content_type="text/html", headers=headers)
