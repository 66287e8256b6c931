"""The base class of a session's handle: its connection, its state and its representation."""

import contextlib
import html
from typing import Any

from raysm.core import features
from raysm.core.client.costs.bill import dollars
from raysm.core.client.job.handle import Job
from raysm.core.protocol.names import counted
from raysm.core.request.durations import brief_duration
from raysm.errors import RaysmError, SessionEnded
from raysm.features.session.client.opened import Opened
from raysm.features.session.protocol import SessionState


def rows(state: SessionState) -> list[tuple[str, str]]:
    """Return the facts about a session as pairs of label and text."""
    gpus = f", {counted(int(state.gpus), 'GPU')}" if state.gpus else ""
    # Without a price the cost is left out, because "0 USD" would look like a known cost.
    cost = []
    if state.usd is not None and state.usd_per_hour is not None:
        budget = f" of {dollars(state.budget_usd)}" if state.budget_usd is not None else ""
        cost = [("cost", f"{dollars(state.usd)}{budget}, {dollars(state.usd_per_hour)} an hour")]
    end = (
        "not while it is busy" if state.ends_in_s is None else f"in {brief_duration(state.ends_in_s)}: {state.ends_why}"
    )
    return [
        ("state", f"closing: {state.closing}" if state.closing else "open"),
        ("instances", f"{len(state.hosts)}: {state.cpus:g} CPUs{gpus}"),
        ("at work", f"{state.busy} calls" if state.busy != 1 else "1 call"),
        ("clients", str(state.clients)),
        *cost,
        ("ends", end),
        ("job", state.job),
    ]


def detached(name: str, idle_s: float) -> tuple[str, str]:
    text = (
        f"from now on: ends after {brief_duration(idle_s)} without a call; raysm session keep {name} 60m puts that off"
    )
    return "detached", text


def text(state: SessionState | None, name: str | None) -> str:
    if state is None:
        return f"<session {name or ''}: not open>".replace(" :", ":")
    facts = ", ".join(f"{label} {value}" for label, value in rows(state))
    return f"<session {name or state.job}: {facts}>"


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
        card: str = features.view("session_card")(self._name or state.job, state, link)
        return card

    def _glance(self) -> SessionState | None:
        with contextlib.suppress(RaysmError):
            return self.state
        return None
