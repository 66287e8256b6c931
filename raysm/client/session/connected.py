"""What every part of a session's handle needs: the connection, if it is open, and what the session is.

What flows out are answers of the session's server; a handle that is not open says what to do.
"""

import contextlib
import html
import pkgutil
from typing import Any

from raysm.client.job.handle import Job
from raysm.client.session.card import text
from raysm.client.session.opened import Opened
from raysm.contract.session import SessionState
from raysm.errors import RaysmError, SessionEnded

__all__ = ["ConnectedSession"]


class ConnectedSession:
    """A handle that has, or has not, a session open."""

    _name: str | None
    _open: Opened | None
    _dashboard: Any

    @property
    def _opened(self) -> "Opened":
        if self._open is None:
            which = "the session" if self._name is None else f"the session {self._name}"
            raise SessionEnded(
                f"{which} is not open: start() it, or use it as a context manager; one that runs already is found by "
                "raysm.Session.attach(name)"
            )
        return self._open

    @property
    def name(self) -> str:
        """As it was named; else its job's name."""
        return self._opened.line.session

    @property
    def job(self) -> Job:
        """The job that it is."""
        return self._opened.job

    @property
    def state(self) -> SessionState:
        """How it is now."""
        return self._opened.state()

    # For people

    def __repr__(self) -> str:
        return text(self._glance(), self._name)

    def _repr_html_(self) -> str:
        state = self._glance()
        if state is None:
            return f"<p>{html.escape(repr(self))}</p>"
        link = "" if self._dashboard is None else self._dashboard.link
        card: str = pkgutil.resolve_name("raysm.views.card.session_card:session_card")(
            self._name or state.job, state, link
        )
        return card

    def _glance(self) -> SessionState | None:
        with contextlib.suppress(RaysmError):
            return self.state
        return None
