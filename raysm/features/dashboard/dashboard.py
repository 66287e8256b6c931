"""Open Ray's dashboard of a running job at an address of this machine."""

import asyncio
import contextlib
import html
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from raysm.core.client.job.handle import Job, token_of
from raysm.core.client.logs.stream import JobStream
from raysm.core.client.views.server import Answer, LocalServer, Page, check_aiohttp, with_query
from raysm.core.protocol.connections import open_to_own
from raysm.core.protocol.events import Metric, parse
from raysm.core.protocol.terminal_text import visible
from raysm.core.protocol.web_relay import open_relay, relay
from raysm.errors import InvalidRequest, NotDone, RaysmError
from raysm.features.dashboard.address import (
    DashboardAddress,
    Say,
    describe_wait,
    open_route,
    read_address,
    write_line,
)
from raysm.features.dashboard.charts import NODES, PRELOAD, Timeline, charts_site, parse_samples
from raysm.features.dashboard.stacks import read_stacks

if TYPE_CHECKING:
    from aiohttp import web

_log = logging.getLogger("raysm")

SAMPLE_S = 5.0
"""Seconds between two reads of the nodes' utilization, which Ray's nodes report at this
interval."""
LOOK_S = 3.0
WITHOUT_PAGE_S = 0.3
"""Seconds to wait before the waiting page is shown: a running dashboard answers sooner."""
HOLD_S = 20.0
"""Seconds that a waiting page's reload may wait, less than the timeout of proxies."""


MAX_TRIES = 3
RETRY_S = 0.3
READ_S = 60.0
"""Seconds to wait for an answer: Ray's dashboard has a low priority, so a busy head answers
late."""


class Route(Protocol):
    @property
    def address(self) -> str:
        """``127.0.0.1:PORT``."""


OpenRoute: TypeAlias = Callable[[], AbstractContextManager[Route]]
OpenTunnel: TypeAlias = Callable[[Job, DashboardAddress], AbstractContextManager[Route]]


class Watch:
    """Reads a job's log for the values of its metrics and the address of its dashboard.

    Attributes:
        timeline: The metrics.
        place: The dashboard's address in the cluster; None until the log has it.
        is_over: True once the job, with its follow-up jobs, has ended.
    """

    def __init__(self, job: Job) -> None:
        self.timeline = Timeline()
        self.place: DashboardAddress | None = None
        self.is_over = False
        self._stream = JobStream(job.chain)

    def read(self) -> list[Metric]:
        """Read new lines of the log and return their metrics, which the caller adds by ``take``.

        They are the job's own, and those of its metric definitions. It blocks, so the server calls
        it in a thread.
        """
        metrics: list[Metric] = []
        for line in self._stream.new_lines():
            event = parse(line.text)
            if event is not None:
                # The dashboard of a follow-up job has another address.
                self.place = read_address(event) or self.place
            metrics += self._stream.metrics(line, event)
        self.is_over = self._stream.is_over
        return metrics

    def take(self, metrics: list[Metric]) -> None:
        for metric in metrics:
            self.timeline.add(metric)


def open_dashboard(
    job: Job,
    *,
    timeout: float | None = None,
    say: Say | None = None,
    tunnel: OpenTunnel | None = None,
) -> Page:
    """Open Ray's dashboard of a running job at an address of this machine.

    Args:
        job: The job.
        timeout: Seconds to wait for the dashboard's address; None waits without limit.
        say: Called with lines for the user; None writes them to stderr.
        tunnel: Opens the route to the head; None opens a tunnel.

    Raises:
        InvalidRequest: The job has ended.
        NotDone: The job has no dashboard after ``timeout`` seconds.
    """
    check_aiohttp()
    say = say or write_line
    watch = Watch(job)
    watch.take(watch.read())
    if not watch.is_over and watch.place is None and not job.done():
        _wait_for_address(job, watch, timeout, say)
    if watch.is_over or job.done():
        raise InvalidRequest(
            f"{job.name} has ended ({job.status}), and Ray's dashboard with it; "
            f"raysm logs {job.name} and raysm metrics {job.name} show what it left"
        )
    if started := job.describe().started:
        watch.timeline.start_s = min(watch.timeline.start_s, started.timestamp())
    open_tunnel = tunnel or partial(open_route, say=say)

    def open_current_route() -> AbstractContextManager[Route]:
        # Looked up each time, because the dashboard of a follow-up job has another address.
        assert watch.place is not None, "waited for above"
        return open_tunnel(job, watch.place)

    # The token is read here, because the server's event loop must not wait for the service.
    site = partial(
        dashboard_site,
        job.name,
        watch,
        open_current_route,
        token_of(job),
        job.service.home / "dashboard",
        stacks=lambda native: str(read_stacks(job, native=native)),
    )
    return Page(LocalServer(site, link=PRELOAD), f"Ray dashboard of {job.name}")


def _wait_for_address(job: Job, watch: Watch, timeout: float | None, say: Say) -> None:
    say(describe_wait(job))
    deadline_s = None if timeout is None else time.monotonic() + timeout
    for pause_s in job.service.polling.pauses():
        watch.take(watch.read())
        if watch.place is not None or watch.is_over:
            return
        if deadline_s is not None and time.monotonic() >= deadline_s:
            raise NotDone(
                f"{job.name} has no dashboard within {timeout:g} s; the job keeps running"
            )
        # Shorter than the pauses of polling, which grow to many seconds, because the user waits.
        time.sleep(min(pause_s, 2.0))


@contextlib.asynccontextmanager
async def dashboard_site(
    name: str,
    watch: Watch,
    open_to_head: OpenRoute,
    token: str,
    cache: Path,
    *,
    stacks: Callable[[bool], str],
    look_s: float = LOOK_S,
) -> AsyncIterator[Answer]:
    """Yield a handler for the browser.

    It serves the charts, the stacks, a page while the dashboard starts, and everything else from
    the head.

    Args:
        name: The job's.
        watch: Reads the job's log.
        open_to_head: Opens the route to Ray's dashboard.
        token: The job's.
        cache: A folder for the chart library.
        stacks: Returns the stacks as text, with native frames if True; it blocks.
        look_s: Seconds between two reads of the log.
    """
    charts = charts_site(name, watch.timeline, cache)
    is_waiting = False

    async def answer(request: "web.Request", path: str) -> "web.StreamResponse | None":
        nonlocal is_waiting
        from aiohttp import web

        response = await charts(request, path)
        if response is not None:
            return response
        if path == STACKS:
            return await _show_stacks(name, stacks, native="native" in request.query)
        if watch.is_over:
            text = (
                f"{name} has ended, and Ray's dashboard with it. "
                f"raysm logs {name} shows its output."
            )
            return _page(text, status=410) if not path else web.Response(status=410, text=text)
        if not path and request.method in ("GET", "HEAD"):
            try:
                # While its reload is not answered, the browser shows the waiting page.
                await asyncio.wait_for(upstream.connect(), HOLD_S if is_waiting else WITHOUT_PAGE_S)
            except TimeoutError:
                is_waiting = True
                text = f"The dashboard of {name} is starting: Ray starts it at the first request."
                return _page(text, script=RELOAD)
            except (OSError, RaysmError) as error:
                return _page(f"The dashboard of {name} cannot be reached: {error}", status=502)
            if (page := await upstream.fetch_page()) is not None:
                text = page.replace("</body>", f"{LINK}</body>", 1)
                return web.Response(text=text, content_type="text/html", headers=NOT_KEPT)
        return await upstream.answer(request, with_query(request, path))

    async with Upstream(open_to_head, token) as upstream:
        tasks = [
            asyncio.create_task(_follow(name, watch, look_s)),
            asyncio.create_task(_sample(upstream, watch)),
        ]
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


async def _sample(upstream: "Upstream", watch: Watch) -> None:
    while not watch.is_over:
        # Without an answer, or with an unknown form, there is nothing to draw; the rest of the page
        # still works.
        with contextlib.suppress(OSError, RaysmError, ValueError, KeyError, TypeError):
            watch.take(parse_samples(await upstream.read(NODES), time.time()))
        await asyncio.sleep(SAMPLE_S)


class Upstream:
    """The route to the dashboard on the head, which is opened again when it breaks."""

    def __init__(self, open_to_head: OpenRoute, token: str) -> None:
        self._open_to_head = open_to_head
        self._token = token
        self._lock = threading.Lock()
        self._open = contextlib.ExitStack()
        self._is_closed = False
        self._opening: asyncio.Task[str] | None = None

    async def __aenter__(self) -> "Upstream":
        # Each connection checks the owner of the port: if the tunnel has ended, another user may
        # have its port.
        self._client = open_relay(open_to_own)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._opening is not None:
            self._opening.cancel()
        await self._client.close()
        with self._lock:
            self._is_closed = True
            self._open.close()

    async def connect(self) -> str:
        if self._opening is None or (self._opening.done() and _failed(self._opening)):
            self._opening = asyncio.create_task(asyncio.to_thread(self._open_route))
        # Several requests wait for one attempt, so the cancellation of one must not cancel it.
        return await asyncio.shield(self._opening)

    async def answer(self, request: "web.Request", key: str) -> "web.StreamResponse":
        """Forward a request for ``key``, its encoded path and query.

        The answer is 502 if the head cannot be reached.
        """
        # Other methods are sent once, because the request may have arrived before the connection
        # broke.
        tries = MAX_TRIES if request.method in ("GET", "HEAD") else 1
        while True:
            try:
                address = await self.connect()
            except (OSError, RaysmError) as error:
                return _unreachable(error)
            headers = {"Authorization": f"Bearer {self._token}"}
            response = await relay(request, self._client, f"http://{address}/{key}", headers)
            tries -= 1
            if response.status != 502 or response.prepared or self._is_closed:
                return response
            self._reset(address)
            if not tries:
                return _unreachable(ConnectionError(getattr(response, "text", "")))
            await asyncio.sleep(RETRY_S)

    async def fetch_page(self) -> str | None:
        """Return Ray's page, or None if it cannot be had now."""
        with contextlib.suppress(OSError, RaysmError, UnicodeDecodeError):
            return (await self._fetch("")).decode()
        return None

    async def read(self, key: str) -> Any:
        return json.loads(await self._fetch(key))

    async def _fetch(self, key: str) -> bytes:
        import aiohttp

        address = await self.connect()
        headers = {"Authorization": f"Bearer {self._token}", "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(READ_S),
                self._client.get(
                    f"http://{address}/{key}", headers=headers, allow_redirects=False
                ) as answer,
            ):
                status = answer.status
                content = await answer.read()
        except (OSError, aiohttp.ClientError) as error:
            self._reset(address)
            raise ConnectionError(f"{key} is not answered: {error}") from error
        if status != 200:
            raise OSError(f"{key} is answered with {status}")
        return content

    def _open_route(self) -> str:
        manager = self._open_to_head()
        route = manager.__enter__()
        with self._lock:
            self._open.push(manager)
            # The page may have been closed while the connection was being opened.
            if self._is_closed:
                self._open.close()
                raise ConnectionError("the dashboard was closed")
        return route.address

    def _reset(self, address: str) -> None:
        # If several requests find the connection broken, the first one closes it.
        opening = self._opening
        if (
            opening is not None
            and opening.done()
            and not _failed(opening)
            and opening.result() == address
        ):
            self._opening = None
            with self._lock:
                stack = self._open.pop_all()
            asyncio.get_running_loop().run_in_executor(None, stack.close)


def _failed(task: "asyncio.Task[str]") -> bool:
    return task.cancelled() or task.exception() is not None


def _unreachable(error: Exception) -> "web.Response":
    from aiohttp import web

    # In the form of Ray's own answers: its page ignores it and asks again after four seconds.
    return web.json_response(
        {"result": False, "msg": f"the head cannot be reached: {error}"}, status=502
    )


STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; min-height: 100vh; display: grid; place-content: center;
  font: 15px system-ui, sans-serif; }
"""
STACKS_STYLE = """
:root { color-scheme: light dark; }
body { margin: 16px; font: 14px system-ui, sans-serif; }
pre { font: 13px ui-monospace, monospace; }
a { margin-right: 12px; }
"""

# Not by a Refresh header or tag: if the address has a #, browsers only jump within the page.
RELOAD = "setTimeout(() => location.reload(), 1000)"

STACKS = "raysm/stacks"
LINK = (
    f'<a href="{STACKS}" target="_blank" title="Where each process of the job stands" '
    'style="position:fixed;right:16px;bottom:16px;z-index:9999;padding:6px 12px;'
    'border-radius:16px;background:#036dcf;color:#fff;font:13px system-ui;text-decoration:none">'
    "Stacks</a>"
)
"""Stands on each of Ray's pages, which are one document."""
NOT_KEPT = {"Cache-Control": "no-store"}


async def _show_stacks(name: str, stacks: Callable[[bool], str], *, native: bool) -> "web.Response":
    status = 200
    try:
        text = await asyncio.to_thread(stacks, native)
    except RaysmError as error:
        text = str(error)
        status = 409 if isinstance(error, InvalidRequest) else 502
    links = '<a href="?">Look again</a><a href="?native">Look with native frames</a>'
    body = f"<p>{links}{time.strftime('%X')}</p><pre>{html.escape(visible(text))}</pre>"
    return _document(f"Stacks of {name}", STACKS_STYLE, body, status)


def _page(text: str, *, status: int = 200, script: str = "") -> "web.Response":
    body = f'<p role="status">{html.escape(text)}</p><script>{script}</script>'
    return _document("Ray dashboard", STYLE, body, status)


def _document(title: str, style: str, body: str, status: int) -> "web.Response":
    from aiohttp import web

    text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{style}</style>{body}</html>"
    )
    return web.Response(text=text, status=status, content_type="text/html", headers=NOT_KEPT)
