"""The proxy: an HTTP server on this machine's loopback, in a thread of its own, that lets in whoever knows its path.

What flows in are requests of a browser; what flows out are the answers of the parts that the page is made of.
"""

import asyncio
import atexit
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from raysm.contract.connections import accept_no_more
from raysm.contract.loop_thread import LoopThread
from raysm.errors import MissingDependency
from raysm.views.dashboard.guard import Guard, new_prefix
from raysm.views.dashboard.headers import ADDED, POLICY
from raysm.views.dashboard.parts import PageRequest

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["DashboardServer", "Site", "check_aiohttp"]

LOOPBACK = "127.0.0.1"
START_S = 30.0
END_S = 10.0
LARGEST_UPLOAD = 100 << 20
"""Bytes: what Ray itself takes of a working folder."""


def check_aiohttp() -> None:
    """Say what is missing.

    Raises:
        MissingDependency: aiohttp is not installed.
    """
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            "the dashboard is shown through aiohttp, which is not installed: python3 -m pip install "
            "'raysm[interactive]'"
        ) from error


class Site(Protocol):
    """What the server shows; its methods are called in the server's event loop."""

    async def begin(self) -> None:
        """Start what runs beside."""

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Answer a request that was let in; None where there is nothing under its path."""

    async def end(self) -> None:
        """Close what is open."""


class DashboardServer:
    """A running server, until it is closed.

    Attributes:
        prefix: The secret first part of its paths.
        port: Where it listens.
    """

    def __init__(self, site: Callable[[], Site], *, policy: str = POLICY) -> None:
        """Start it.

        Args:
            site: Makes what it shows, in its event loop.
            policy: What a browser lets its pages do, in the words of Content-Security-Policy.

        Raises:
            MissingDependency: aiohttp is not installed.
        """
        check_aiohttp()
        self.prefix = new_prefix()
        self.port = 0
        self._added = {**ADDED, "Content-Security-Policy": policy}
        # Closed in the order in which it was opened backwards, also where the start fails half way.
        self._open = contextlib.AsyncExitStack()
        self._loop = LoopThread("raysm dashboard")
        try:
            self._loop.run(self._serve(site), START_S)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError) and not str(error):
                raise TimeoutError(f"the proxy of the dashboard did not start within {START_S:g} s") from error
            raise
        # A way into a job that nobody closes stays open at the service's end until that finds it idle.
        atexit.register(self.close)

    @property
    def url(self) -> str:
        """Where it is looked at."""
        return f"http://{LOOPBACK}:{self.port}/{self.prefix}/"

    def close(self) -> None:
        """End it; harmless when repeated."""
        atexit.unregister(self.close)
        if self._loop.is_closed:
            return
        with contextlib.suppress(TimeoutError):
            self._loop.run(self._open.aclose(), END_S)
        self._loop.close()

    async def _serve(self, make: Callable[[], Site]) -> None:
        from aiohttp import web

        site = make()
        # No access log: the secret path would stand in it.
        application = _application(self, site)
        application.on_response_prepare.append(self._add_headers)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, logger=_logger())
        await runner.setup()
        listener = socket.create_server((LOOPBACK, 0))
        self._open.push_async_callback(_close, runner, listener)
        self._open.push_async_callback(site.end)
        await web.SockSite(runner, listener).start()
        self.port = listener.getsockname()[1]
        await site.begin()

    async def _add_headers(self, _: Any, response: "web.StreamResponse") -> None:
        response.headers.update(self._added)
        # aiohttp's default would tell its version.
        response.headers["Server"] = "raysm"


def _logger() -> logging.Logger:
    """Return a logger that tells an error of a request in one line: its traceback is of no use on a user's terminal."""
    logger = logging.getLogger("raysm.dashboard")
    if not logger.filters:
        logger.addFilter(_shorten)
    return logger


def _shorten(record: logging.LogRecord) -> bool:
    if record.exc_info:
        error = record.exc_info[1]
        record.msg, record.args = f"{record.getMessage()}: {type(error).__name__}: {error}", ()
        record.exc_info = record.exc_text = None
    return True


async def _close(runner: "web.AppRunner", listener: socket.socket) -> None:
    """End the server, and all of its connections."""
    await accept_no_more([listener])
    connections = runner.server.connections if runner.server else []
    transports = [connection.transport for connection in connections]
    await runner.cleanup()
    for transport in transports:
        # Closed, it would first send what is left: to a browser that does not read, as long as there is one.
        if transport is not None:
            transport.abort()
    # They end in the loop's next turn.
    await asyncio.sleep(0)


def _application(server: DashboardServer, site: Site) -> "web.Application":
    from aiohttp import web

    async def handle(request: web.Request) -> web.StreamResponse:
        guard = Guard(prefix=server.prefix, port=server.port)
        # Encoded, as it came: so it goes on.
        path = guard.below(request.rel_url.raw_path)
        refusal = guard.refusal(request.headers)
        if path is None or refusal is not None:
            status, text = (404, "there is nothing here") if refusal is None else (refusal.status, refusal.reason)
            return web.Response(status=status, text=text)
        if not path and not request.rel_url.raw_path.endswith("/"):
            # The page names its files relative to itself. Relative too, because a Jupyter server may stand before it.
            raise web.HTTPTemporaryRedirect(f"{server.prefix}/")
        page_request = PageRequest(path=path, query=request.rel_url.raw_query_string, request=request)
        return await site.answer(page_request) or web.Response(status=404, text="there is nothing here")

    application = web.Application(client_max_size=LARGEST_UPLOAD)
    application.router.add_route("*", "/{path:.*}", handle)
    return application
