"""The base class of a session's handle: its connection, its state and its representation."""

import contextlib
import html
from typing import Any

from raysm.core.client.job.handle import Job
from raysm.errors import RaysmError, SessionEnded
from raysm.features.session.client.opened import Opened
from raysm.features.session.client.text import card, text
from raysm.features.session.protocol import SessionState


class ConnectedSession:
    _name: str | None
    _open: Opened | None
    _dashboard: Any

    @property
    def _opened(self) -> "Opened":
        if self._open is None:
            which = "the session" if self._name is None else f"the session {self._name}"
            raise SessionEnded(
                f"{which} is not open: it was not started, or was closed or detached here; start() it, or find a "
                "running one by raysm.Session.attach(name)"
            )
        return self._open

    @property
    def name(self) -> str:
        """The name of the session, or of its job if it has none."""
        return self._opened.line.session

    @property
    def job(self) -> Job:
        """The session's job."""
        return self._opened.job

    @property
    def state(self) -> SessionState:
        """The current state of the session."""
        return self._opened.state()

    def __repr__(self) -> str:
        return text(self._glance(), self._name)

    def _repr_html_(self) -> str:
        state = self._glance()
        if state is None:
            return f"<p>{html.escape(repr(self))}</p>"
        link = "" if self._dashboard is None else self._dashboard.link
        return card(self._name or state.job, state, link)

    def _glance(self) -> SessionState | None:
        with contextlib.suppress(RaysmError):
            return self.state
        return None
