"""A web server on loopback that answers only below a secret path.

Connections of other users of this machine are refused, and without the path there is nothing to
see. The checks of Host and Origin keep out pages of other sites in the user's browser.
"""

import asyncio
import atexit
import contextlib
import hmac
import html
import importlib.util
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from raysm.core.protocol.callers import OwnListener, refusal
from raysm.core.protocol.connections import accept_no_more
from raysm.core.protocol.loop_thread import LoopThread
from raysm.core.protocol.web_relay import open_relay, relay
from raysm.errors import MissingDependency

if TYPE_CHECKING:
    from aiohttp import web

    from raysm.core.protocol.connections import OpenConnection


def _in_one_line(record: logging.LogRecord) -> bool:
    """Log an error in a request without its traceback, which would fill the user's terminal."""
    if record.exc_info:
        record.msg = f"{record.getMessage()}: {record.exc_info[1]!r}"
        record.args = ()
        record.exc_info = None
    return True


_log = logging.getLogger("raysm.dashboard")
_log.addFilter(_in_one_line)

LOOPBACK = "127.0.0.1"
START_S = 30.0
REFUSED = refusal(b"this server answers only its own user", "text/plain")
MAX_CONNECTIONS = 400
"""Connections at a time; a process commonly may open 1,024 files, and this one is often a
notebook's kernel."""
HEADERS_S = 20.0
KEEP_ALIVE_S = 75.0
END_S = 10.0
PREFIX_BYTES = 24
MAX_UPLOAD_BYTES = 100 << 20
"""Ray's own limit for an uploaded working directory."""

POLICY = "default-src 'self' 'unsafe-inline' data: blob:; object-src 'none'; base-uri 'none'"
"""Pages load nothing from other sites, so that no other site learns the secret path."""

Answer: TypeAlias = Callable[["web.Request", str], Awaitable["web.StreamResponse | None"]]


def check_aiohttp() -> None:
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            "the dashboard needs aiohttp, which is not installed: "
            "python3 -m pip install 'raysm[interactive]'"
        ) from error


def find_refusal(headers: Mapping[str, str], port: int) -> tuple[int, str] | None:
    """Return HTTP status and reason if a server with this port must refuse a request, else None."""
    host = headers.get("Host", "")
    if not _is_own_name(host, port, headers):
        return 421, "this server answers only to 127.0.0.1 and localhost"
    origin = headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        return 403, "the request comes from another site"
    # Images and scripts of another page send no Origin. A link that the user follows is a
    # navigation.
    if (
        headers.get("Sec-Fetch-Site") == "cross-site"
        and headers.get("Sec-Fetch-Mode") != "navigate"
    ):
        return 403, "the request comes from another site"
    return None


def _is_own_name(host: str, port: int, headers: Mapping[str, str]) -> bool:
    name, _, named_port = host.lower().rpartition(":")
    if name in (LOOPBACK, "localhost") and named_port == str(port):
        return True
    # A browser that connects directly sends this port, even if the name is another site's (DNS
    # rebinding). jupyter-server-proxy forwards the browser's Host, with another port, and sets this
    # header.
    return named_port != str(port) and "X-Forwarded-Context" in headers


class LocalServer:
    def __init__(
        self,
        site: Callable[[], AbstractAsyncContextManager[Answer]],
        *,
        policy: str = POLICY,
        link: str = "",
        headers_s: float = HEADERS_S,
    ) -> None:
        check_aiohttp()
        self.prefix = secrets.token_urlsafe(PREFIX_BYTES)
        self.port = 0
        self._headers = {
            "Content-Security-Policy": policy,
            "Referrer-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Server": "raysm",  # the default reveals aiohttp's version
        }
        self._link = {"Link": link} if link else {}
        self._headers_s = headers_s
        self._open = contextlib.AsyncExitStack()
        self._loop = LoopThread("raysm dashboard")
        try:
            self._loop.run(self._serve(site), START_S)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError) and not str(error):
                raise TimeoutError(
                    f"the local server did not start within {START_S:g} s"
                ) from error
            raise
        # A tunnel that is not closed would stay open on AWS until its idle timeout.
        atexit.register(self.close)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/{self.prefix}/"

    def close(self) -> None:
        atexit.unregister(self.close)
        if self._loop.is_closed:
            return
        with contextlib.suppress(TimeoutError):
            self._loop.run(self._open.aclose(), END_S)
        self._loop.close()

    async def _serve(self, site: Callable[[], AbstractAsyncContextManager[Answer]]) -> None:
        from aiohttp import web

        answer = await self._open.enter_async_context(site())
        asked: set[object] = set()

        async def handle(request: web.Request) -> web.StreamResponse:
            asked.add(request.protocol)
            # The raw path stays percent-encoded. compare_digest takes the same time for every wrong
            # prefix.
            prefix, slash, path = request.rel_url.raw_path.lstrip("/").partition("/")
            if refused := find_refusal(request.headers, self.port):
                return web.Response(status=refused[0], text=refused[1])
            if not hmac.compare_digest(prefix.encode(), self.prefix.encode()):
                return web.Response(status=404, text="not found")
            if not slash:
                # Pages link their files by relative paths, so the slash is needed; relative for
                # jupyter-server-proxy.
                raise web.HTTPTemporaryRedirect(f"{self.prefix}/")
            return await answer(request, path) or web.Response(status=404, text="not found")

        async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
            is_page = request.rel_url.raw_path == f"/{self.prefix}/"
            response.headers.update(self._headers | (self._link if is_page else {}))

        application = web.Application(client_max_size=MAX_UPLOAD_BYTES)
        application.router.add_route("*", "/{path:.*}", handle)
        application.on_response_prepare.append(add_headers)
        # No access log, because it would contain the secret path.
        runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=1.0,
            keepalive_timeout=KEEP_ALIVE_S,
            logger=_log,
        )
        await runner.setup()
        server = runner.server
        assert server is not None
        listener = OwnListener(lambda: len(server.connections) < MAX_CONNECTIONS, REFUSED)
        self._open.push_async_callback(_close, runner, listener)
        self.port = listener.port
        await web.SockSite(runner, listener).start()
        watching = asyncio.create_task(_close_silent(server, asked, self._headers_s))
        self._open.callback(watching.cancel)


async def _close_silent(server: "web.Server", asked: set[object], headers_s: float) -> None:
    """Close connections without a complete request for ``headers_s``; never return.

    ``asked`` has the others; those that have ended are removed from it.
    """
    began_s: dict[web.RequestHandler, float] = {}
    while True:
        now_s = time.monotonic()
        began_s = {connection: began_s.get(connection, now_s) for connection in server.connections}
        asked.intersection_update(began_s)
        for connection, since_s in began_s.items():
            if (
                connection not in asked
                and now_s - since_s > headers_s
                and connection.transport is not None
            ):
                connection.transport.abort()
        await asyncio.sleep(headers_s / 4)


async def _close(runner: "web.AppRunner", listener: socket.socket) -> None:
    await accept_no_more([listener])
    connections = runner.server.connections if runner.server else []
    transports = [connection.transport for connection in connections]
    await runner.cleanup()
    for transport in transports:
        # abort() instead of close(), which would first send the rest to a browser that may not
        # read.
        if transport is not None:
            transport.abort()
    # Let the loop run once, in which the transports end.
    await asyncio.sleep(0)


STUDIO = "/jupyterlab/default/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    url: str
    """An absolute URL, or a path on the notebook's own server."""
    in_frame: bool
    """True if the notebook can show the page in a frame, and not only as a link."""


def seen_from_notebook(port: int, prefix: str, environ: Mapping[str, str] | None = None) -> Seen:
    """Return how this kernel's notebook can show the page at ``http://127.0.0.1:PORT/PREFIX/``.

    ``environ`` has the variables that a Jupyter server sets for its kernels; None uses those of
    this process.
    """
    environ = os.environ if environ is None else environ  # noqa: TID251
    direct = f"http://{LOOPBACK}:{port}/{prefix}/"
    if any(name.startswith("VSCODE_") for name in environ) or "COLAB_RELEASE_TAG" in environ:
        # The sites of VS Code and Colab do not serve pages of this machine.
        return Seen(url=direct, in_frame=False)
    base = _base_url(environ)
    return Seen(
        url=direct if base is None else f"{base.rstrip('/')}/proxy/{port}/{prefix}/", in_frame=True
    )


def _base_url(environ: Mapping[str, str]) -> str | None:
    """Return the base path of the notebook's server if it proxies local pages, else None."""
    if "JUPYTERHUB_SERVICE_PREFIX" in environ:
        return environ["JUPYTERHUB_SERVICE_PREFIX"]
    if (
        environ.get("SAGEMAKER_APP_TYPE", environ.get("SAGEMAKER_INTERNAL_IMAGE_URI", "")).lower()
        == "jupyterlab"
    ):
        return STUDIO
    # The server may run in another environment than the kernel; then the direct address is the best
    # guess.
    if importlib.util.find_spec("jupyter_server_proxy") is None or "JPY_PARENT_PID" not in environ:
        return None
    from jupyter_server.serverapp import list_running_servers

    servers = {str(server["pid"]): str(server["base_url"]) for server in list_running_servers()}
    return servers.get(environ["JPY_PARENT_PID"])


# A saved notebook outlives the page, and would show an error of the server's.
IF_REACHABLE = """((url, gone) => {
    const say = () => document.body.append(gone);
    fetch(url, {mode: "no-cors", cache: "no-store"}).then(
        answer => answer.status == 404 || answer.status >= 500 ? say() : location.replace(url),
        say);
})"""


class Page:
    """A page at an address of this machine until ``close``; use it as a context manager.

    Keep the address secret: it gives the same access as the owner has.
    """

    def __init__(self, server: LocalServer, title: str) -> None:
        self._server = server
        self._title = title

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def link(self) -> str:
        return self._seen.url

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def _seen(self) -> Seen:
        return seen_from_notebook(self._server.port, self._server.prefix)

    def close(self) -> None:
        self._server.close()

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self._title}: {self.url}>"

    def _repr_html_(self) -> str:
        url = html.escape(self.link)
        link = f'<a href="{url}" target="_blank" rel="noopener">{html.escape(self._title)}</a>'
        if not self._seen.in_frame:
            return f"<div>{link} (on the machine of this kernel)</div>"
        return f"<div>{link}{self._frame()}</div>"

    def _frame(self) -> str:
        gone = (
            f"{self._title} is shown here while the kernel that opened it runs. "
            "Run the cell again to open it."
        )
        # Both may have a tag; inside of a script it would end that.
        url, text = (json.dumps(each).replace("<", "\\u003c") for each in (self.link, gone))
        page = (
            "<body style='font:15px system-ui;color:gray'>"
            f"<script>{IF_REACHABLE}({url}, {text})</script>"
        )
        # High enough for the Overview of Ray's dashboard without scrolling.
        style = 'width="100%" height="720" style="border:1px solid #8884"'
        return f'<iframe srcdoc="{html.escape(page)}" {style}></iframe>'


def with_query(request: "web.Request", path: str) -> str:
    query = request.rel_url.raw_query_string
    return f"{path}?{query}" if query else path


@contextlib.asynccontextmanager
async def relaying(
    way: "str | OpenConnection", base: Callable[[], str | None]
) -> AsyncIterator[Answer]:
    async with open_relay(way) as client:

        async def answer(request: "web.Request", path: str) -> "web.StreamResponse | None":
            url = base()
            return (
                None
                if url is None
                else await relay(request, client, url + with_query(request, path))
            )

        yield answer
