"""A dashboard as its user has it: an address to look at, until it is closed."""

import html

from raysm.views.dashboard.place import seen_from_notebook
from raysm.views.dashboard.server import DashboardServer

__all__ = ["Dashboard"]

HEIGHT = 720
"""Pixels of the frame in a notebook: the Overview without scrolling."""


class Dashboard:
    """Ray's dashboard of one job, on this machine; a context manager, open from the start.

    It lives as long as this process, or until it is closed. Who has its address may do with the cluster what the job's
    owner may: it is no secret of the job, but one of this session of yours.
    """

    def __init__(self, server: DashboardServer, name: str) -> None:
        """Hold a running server.

        Args:
            server: Shows it.
            name: Of the job.
        """
        self._server, self._name = server, name

    @property
    def url(self) -> str:
        """Its address, for a browser of this machine."""
        return self._server.url

    @property
    def link(self) -> str:
        """Its address for a page of this kernel's notebook."""
        return seen_from_notebook(self._server.port, self._server.prefix).url

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def close(self) -> None:
        """End it; harmless when repeated. The job goes on."""
        self._server.close()

    def __enter__(self) -> "Dashboard":
        return self

    # An error goes on: it is the block's own, and nothing of it concerns the server.
    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dashboard of {self._name}: {self.url}>"

    def _repr_html_(self) -> str:
        address = seen_from_notebook(self._server.port, self._server.prefix)
        url, name = html.escape(address.url), html.escape(self._name)
        link = f'<a href="{url}" target="_blank" rel="noopener">Ray dashboard of {name}</a>'
        if not address.in_frame:
            return f"<div>{link} (on the machine of this kernel)</div>"
        frame = f'<iframe src="{url}" width="100%" height="{HEIGHT}" style="border:1px solid #8884"></iframe>'
        return f"<div>{link}{frame}</div>"
