"""JupyterLab on the head of a session, at an address of this machine."""

import contextlib
import html
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from raysm.contract.web_relay import open_relay, relay
from raysm.views.dashboard.server import Answer, LocalServer, Seen, seen_from_notebook

if TYPE_CHECKING:
    from aiohttp import web

    from raysm.contract.connections import OpenConnection

__all__ = ["POLICY", "RemoteJupyter", "open_jupyter"]

# JupyterLab compiles the schemas of its settings: https://github.com/jupyterlab/jupyterlab/issues/8350
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; base-uri 'none'"


class RemoteJupyter:
    """JupyterLab on a session's head, served here until ``close``; its kernels live as long as the session.

    Use it as a context manager. Keep the address secret: it gives the same access as the session's owner has.
    """

    def __init__(self, server: LocalServer, seen: Seen, name: str) -> None:
        """Take a running server, its address as a browser sees it, and the session's name."""
        self._server, self._seen, self._name = server, seen, name

    @property
    def url(self) -> str:
        """The address for a browser of this machine; with jupyter-server-proxy, a path of the notebook's server."""
        return f"{self._seen.url}lab"

    def close(self) -> None:
        """Stop serving it; may be repeated."""
        self._server.close()

    def __enter__(self) -> "RemoteJupyter":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<JupyterLab of the session {self._name}: {self.url}>"

    def _repr_html_(self) -> str:
        # A link instead of a frame: JupyterLab needs its own page for shortcuts and menus.
        url, name = html.escape(self.url), html.escape(self._name)
        where = "" if self._seen.in_frame else " (on the machine of this kernel)"
        return f'<div><a href="{url}" target="_blank" rel="noopener">JupyterLab of the session {name}</a>{where}</div>'


def open_jupyter(
    name: str, *, address: Callable[[], str], open_connection: "OpenConnection", start: Callable[[str], str]
) -> RemoteJupyter:
    """Start JupyterLab on the head of a session and serve it here.

    Args:
        name: The name of the session.
        address: Returns the address of the session's server, as reached from here.
        open_connection: Connects to the server, after both ends have proved that they know the token.
        start: Starts a Jupyter server on the head, given its base path; returns its name.

    Raises:
        RaysmError: JupyterLab does not start.
    """
    started = ""

    @contextlib.asynccontextmanager
    async def site() -> AsyncIterator[Answer]:
        async with open_relay(open_connection) as client:

            async def answer(request: "web.Request", path: str) -> "web.StreamResponse | None":
                if not started:
                    return None
                query = request.rel_url.raw_query_string
                key = f"{path}?{query}" if query else path
                return await relay(request, client, f"http://{address()}/jupyter/{started}/{key}")

            yield answer

    server = LocalServer(site, policy=POLICY)
    try:
        seen = seen_from_notebook(server.port, server.prefix)
        # JupyterLab's page links its files by absolute paths, so it must know the path in the browser.
        started = start(urlsplit(seen.url).path)
    except BaseException:  # also Ctrl-C, because starting takes some seconds
        server.close()
        raise
    return RemoteJupyter(server, seen, name)
