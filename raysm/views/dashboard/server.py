"""A web server on loopback that answers only below a secret path.

The path keeps out other users of this machine. The checks of Host and Origin keep out pages of other sites in the
user's browser.
"""

import asyncio
import atexit
import contextlib
import hmac
import importlib
import importlib.util
import json
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from raysm.contract.connections import accept_no_more
from raysm.contract.loop_thread import LoopThread
from raysm.errors import MissingDependency

if TYPE_CHECKING:
    from aiohttp import web

__all__ = [
    "Answer",
    "LocalServer",
    "MAX_UPLOAD_BYTES",
    "POLICY",
    "PREFIX_BYTES",
    "Seen",
    "check_aiohttp",
    "refusal",
    "running_servers",
    "seen_from_notebook",
]


LOOPBACK = "127.0.0.1"
START_S = 30.0
END_S = 10.0
PREFIX_BYTES = 24
MAX_UPLOAD_BYTES = 100 << 20
"""Ray's own limit for an uploaded working directory."""

POLICY = "default-src 'self' 'unsafe-inline' data: blob:; object-src 'none'; base-uri 'none'"
"""Pages load nothing from other sites, so that no other site learns the secret path."""

Answer: TypeAlias = Callable[["web.Request", str], Awaitable["web.StreamResponse | None"]]
"""Answers a request, given its path below the secret path; None means 404."""


def check_aiohttp() -> None:
    """Check that aiohttp is installed.

    Raises:
        MissingDependency: It is not.
    """
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            "the dashboard needs aiohttp, which is not installed: python3 -m pip install 'raysm[interactive]'"
        ) from error


def refusal(headers: Mapping[str, str], port: int) -> tuple[int, str] | None:
    """Return HTTP status and reason if a request must be refused, else None.

    Args:
        headers: Headers of the request.
        port: Port of the server.
    """
    host = headers.get("Host", "")
    if not _is_own_name(host, port, headers):
        return 421, "this server answers only to 127.0.0.1 and localhost"
    origin = headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        return 403, "the request comes from another site"
    # Images and scripts of another page send no Origin. A link that the user follows is a navigation.
    if headers.get("Sec-Fetch-Site") == "cross-site" and headers.get("Sec-Fetch-Mode") != "navigate":
        return 403, "the request comes from another site"
    return None


def _is_own_name(host: str, port: int, headers: Mapping[str, str]) -> bool:
    name, _, named_port = host.lower().rpartition(":")
    if name in (LOOPBACK, "localhost") and named_port == str(port):
        return True
    # A browser that connects directly sends this port, even if the name is another site's (DNS rebinding).
    # jupyter-server-proxy forwards the browser's Host, with another port, and sets this header.
    return named_port != str(port) and "X-Forwarded-Context" in headers


class LocalServer:
    """A running server, until it is closed.

    Attributes:
        prefix: The secret first part of its paths.
        port: The port on loopback.
    """

    def __init__(
        self, site: Callable[[], AbstractAsyncContextManager[Answer]], *, policy: str = POLICY, link: str = ""
    ) -> None:
        """Start it.

        Args:
            site: Returns a context manager, entered in the server's event loop, that yields the handler.
            policy: The Content-Security-Policy of every answer.
            link: The Link header of the start page.

        Raises:
            MissingDependency: aiohttp is not installed.
        """
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
        self._open = contextlib.AsyncExitStack()
        self._loop = LoopThread("raysm dashboard")
        try:
            self._loop.run(self._serve(site), START_S)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError) and not str(error):
                raise TimeoutError(f"the local server did not start within {START_S:g} s") from error
            raise
        # A tunnel that is not closed would stay open on AWS until its idle timeout.
        atexit.register(self.close)

    @property
    def url(self) -> str:
        """The address with the secret path."""
        return f"http://{LOOPBACK}:{self.port}/{self.prefix}/"

    def close(self) -> None:
        """Stop serving; may be repeated."""
        atexit.unregister(self.close)
        if self._loop.is_closed:
            return
        with contextlib.suppress(TimeoutError):
            self._loop.run(self._open.aclose(), END_S)
        self._loop.close()

    async def _serve(self, site: Callable[[], AbstractAsyncContextManager[Answer]]) -> None:
        from aiohttp import web

        answer = await self._open.enter_async_context(site())

        async def handle(request: web.Request) -> web.StreamResponse:
            # The raw path stays percent-encoded. compare_digest takes the same time for every wrong prefix.
            prefix, slash, path = request.rel_url.raw_path.lstrip("/").partition("/")
            if refused := refusal(request.headers, self.port):
                return web.Response(status=refused[0], text=refused[1])
            if not hmac.compare_digest(prefix.encode(), self.prefix.encode()):
                return web.Response(status=404, text="not found")
            if not slash:
                # Pages link their files by relative paths, so the slash is needed; relative for jupyter-server-proxy.
                raise web.HTTPTemporaryRedirect(f"{self.prefix}/")
            return await answer(request, path) or web.Response(status=404, text="not found")

        async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
            is_page = request.rel_url.raw_path == f"/{self.prefix}/"
            response.headers.update(self._headers | (self._link if is_page else {}))

        application = web.Application(client_max_size=MAX_UPLOAD_BYTES)
        application.router.add_route("*", "/{path:.*}", handle)
        application.on_response_prepare.append(add_headers)
        # No access log, because it would contain the secret path.
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, logger=_logger())
        await runner.setup()
        listener = socket.create_server((LOOPBACK, 0))
        self._open.push_async_callback(_close, runner, listener)
        await web.SockSite(runner, listener).start()
        self.port = listener.getsockname()[1]


def _logger() -> logging.Logger:
    """Return a logger that prints errors of requests on one line, because aiohttp's tracebacks do not help users."""
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
    await accept_no_more([listener])
    connections = runner.server.connections if runner.server else []
    transports = [connection.transport for connection in connections]
    await runner.cleanup()
    for transport in transports:
        # abort() instead of close(), which would first send the rest to a browser that may not read.
        if transport is not None:
            transport.abort()
    # Let the loop run once, in which the transports end.
    await asyncio.sleep(0)


STUDIO = "/jupyterlab/default/"
"""The path of JupyterLab in SageMaker Studio."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """How a notebook can show a page."""

    url: str
    """An absolute URL, or a path on the notebook's own server."""
    in_frame: bool
    """True if the notebook can show the page in a frame, and not only as a link."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A running Jupyter server of this machine."""

    pid: int
    base_url: str


def seen_from_notebook(
    port: int,
    prefix: str,
    environ: Mapping[str, str] | None = None,
    *,
    servers: Callable[[], Iterable[Server]] | None = None,
    is_installed: Callable[[str], bool] | None = None,
) -> Seen:
    """Return how this kernel's notebook can show the page at ``http://127.0.0.1:PORT/PREFIX/``.

    Args:
        port: Port of the page.
        prefix: Secret path of the page.
        environ: Environment variables; None uses those of this process.
        servers: Returns the Jupyter servers of this machine; None reads Jupyter's records.
        is_installed: Returns whether a package is installed; None uses importlib.
    """
    # Variables that a Jupyter server sets for its kernels.
    environ = os.environ if environ is None else environ  # noqa: TID251
    direct = f"http://127.0.0.1:{port}/{prefix}/"
    if any(name.startswith("VSCODE_") for name in environ) or "COLAB_RELEASE_TAG" in environ:
        # The sites of VS Code and Colab do not serve pages of this machine.
        return Seen(url=direct, in_frame=False)
    base = _base_url(environ, (servers or running_servers), is_installed or _is_installed)
    return Seen(url=direct if base is None else f"{base.rstrip('/')}/proxy/{port}/{prefix}/", in_frame=True)


def _base_url(
    environ: Mapping[str, str], servers: Callable[[], Iterable[Server]], is_installed: Callable[[str], bool]
) -> str | None:
    """Return the base path of the notebook's server if it proxies pages of this machine, else None."""
    if "JUPYTERHUB_SERVICE_PREFIX" in environ:
        return environ["JUPYTERHUB_SERVICE_PREFIX"]
    if environ.get("SAGEMAKER_APP_TYPE", environ.get("SAGEMAKER_INTERNAL_IMAGE_URI", "")).lower() == "jupyterlab":
        return STUDIO
    # The server may run in another environment than the kernel; then the direct address is the best guess.
    if not is_installed("jupyter_server_proxy"):
        return None
    parent = environ.get("JPY_PARENT_PID", "")
    return next((server.base_url for server in servers() if str(server.pid) == parent), None)


def running_servers(folder: Path | None = None) -> list[Server]:
    """Return the Jupyter servers with a record in ``folder``; None means Jupyter's runtime folder."""
    if folder is None:
        if not _is_installed("jupyter_core"):
            return []
        folder = Path(importlib.import_module("jupyter_core.paths").jupyter_runtime_dir())
    servers = []
    for file in sorted(folder.glob("jpserver-*.json")):
        try:
            record = json.loads(file.read_text())
            servers.append(Server(pid=int(record["pid"]), base_url=str(record["base_url"])))
        except (OSError, ValueError, KeyError):  # a record that is being written, or of another version
            continue
    return servers


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
