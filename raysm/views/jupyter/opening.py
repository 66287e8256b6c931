"""From a session to JupyterLab on its head, at an address of this machine.

What flows in are a browser's requests below a secret path, as of a dashboard; what flows out are the answers of a
Jupyter server on the head, asked through the session's own server, on connections that both ends have proved.
"""

import html
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from raysm.contract.web_relay import open_relay, relay
from raysm.views.dashboard.parts import PageRequest
from raysm.views.dashboard.place import Seen, seen_from_notebook
from raysm.views.dashboard.server import DashboardServer

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import web

    from raysm.contract.connections import OpenConnection

__all__ = ["JupyterSite", "RemoteJupyter", "open_jupyter"]

# As a dashboard's; but JupyterLab compiles the schemas of its settings: https://github.com/jupyterlab/jupyterlab/issues/8350
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; base-uri 'none'"


class JupyterSite:
    """What the proxy shows: one Jupyter server of a session."""

    def __init__(self, address: Callable[[], str], open_connection: "OpenConnection") -> None:
        """Lead nowhere yet.

        Args:
            address: Returns where the session's server is reached from here.
            open_connection: Connects to it.
        """
        self._address, self._open_connection = address, open_connection
        self._name: str | None = None
        self._client: aiohttp.ClientSession | None = None

    def lead_to(self, name: str) -> None:
        """Show the Jupyter server of this name."""
        self._name = name

    async def begin(self) -> None:
        """Open what requests are passed on by."""
        self._client = open_relay(self._open_connection)

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Pass a request on; None before it is known to which server."""
        if self._name is None or self._client is None:
            return None
        url = f"http://{self._address()}/jupyter/{self._name}/{page_request.key}"
        return await relay(page_request.request, self._client, url)

    async def end(self) -> None:
        """Close it."""
        if self._client is not None:
            await self._client.close()


class RemoteJupyter:
    """JupyterLab on a session's head, at an address of this machine; a context manager, open from the start.

    It lives as long as this process, or until it is closed; its notebooks and kernels live as long as the session. Who
    has its address may do what the session's owner may: it is no secret of the job, but one of this session of yours.
    """

    def __init__(self, server: DashboardServer, place: Seen, name: str) -> None:
        """Hold a running server.

        Args:
            server: Shows it.
            place: How it is seen from here.
            name: The session's.
        """
        self._server, self._seen, self._name = server, place, name

    @property
    def url(self) -> str:
        """Its address, for a browser of this machine; in a notebook with jupyter-server-proxy, below its server's."""
        return f"{self._seen.url}lab"

    def close(self) -> None:
        """Show it no more; harmless when repeated. Its kernels go on as long as the session does."""
        self._server.close()

    def __enter__(self) -> "RemoteJupyter":
        return self

    # An error goes on: it is the block's own, and nothing of it concerns the server.
    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<JupyterLab of the session {self._name}: {self.url}>"

    def _repr_html_(self) -> str:
        # A link, and no frame: JupyterLab wants a page of its own for its keys and menus.
        url, name = html.escape(self.url), html.escape(self._name)
        where = "" if self._seen.in_frame else " (on the machine of this kernel)"
        return f'<div><a href="{url}" target="_blank" rel="noopener">JupyterLab of the session {name}</a>{where}</div>'


def open_jupyter(
    name: str, *, address: Callable[[], str], open_connection: "OpenConnection", start: Callable[[str], str]
) -> RemoteJupyter:
    """Start JupyterLab on the head of a session, and show it here.

    Args:
        name: The session's.
        address: Returns where its server is reached from here.
        open_connection: Connects to it.
        start: Starts a Jupyter server on the head, told its base path; returns its name.

    Raises:
        RaysmError: It does not start.
    """
    site = JupyterSite(address, open_connection)
    server = DashboardServer(lambda: site, policy=POLICY)
    try:
        place = seen_from_notebook(server.port, server.prefix)
        # Its page names everything by its whole path, unlike Ray's: it has to know below which a browser sees it.
        site.lead_to(start(urlsplit(place.url).path))
    except BaseException:
        # Ctrl-C, too: it takes some seconds to start.
        server.close()
        raise
    return RemoteJupyter(server, place, name)
