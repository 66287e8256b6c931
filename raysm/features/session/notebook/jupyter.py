"""JupyterLab on the head of a session, at an address of this machine."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from raysm.core.client.views.server import LocalServer, Page, relaying

if TYPE_CHECKING:
    from raysm.core.protocol.connections import OpenConnection

# JupyterLab compiles the schemas of its settings:
# https://github.com/jupyterlab/jupyterlab/issues/8350
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "object-src 'none'; base-uri 'none'"
)


class RemoteJupyter(Page):
    """JupyterLab on a session's head, served here until ``close``.

    Its kernels live as long as the session.
    """

    @property
    def url(self) -> str:
        return self.link

    @property
    def link(self) -> str:
        return f"{super().link}lab"

    def _frame(self) -> str:
        # JupyterLab needs its own page for shortcuts and menus.
        return ""


def open_jupyter(
    name: str,
    *,
    address: Callable[[], str],
    open_connection: "OpenConnection",
    start: Callable[[str], str],
) -> RemoteJupyter:
    """Start JupyterLab on the head of a session and serve it here.

    Raises:
        RaysmError: JupyterLab does not start.
    """
    started = ""
    server = LocalServer(
        partial(
            relaying,
            open_connection,
            lambda: f"http://{address()}/jupyter/{started}/" if started else None,
        ),
        policy=POLICY,
    )
    page = RemoteJupyter(server, f"JupyterLab of the session {name}")
    try:
        # JupyterLab's page links its files by absolute paths, so it must know the path in the
        # browser.
        started = start(urlsplit(page.url).path.removesuffix("lab"))
    except BaseException:  # also Ctrl-C, because starting takes some seconds
        server.close()
        raise
    return page
