"""A session's card as HTML."""

import html

from raysm.client.session.connected import rows
from raysm.contract.session import SessionState
from raysm.views.card.job_card import FRAME, SMALL, TEXT, facts_html

__all__ = ["session_card"]

OPEN, CLOSING = "#2e7d32", "#c62828"

# The contrast is at least 4 on black and on white.
LINK = "#1976d2"

IN_HEAD = ("state", "job")
"""Facts that are shown in the first line of the card instead of below it."""


def session_card(name: str, state: SessionState, dashboard: str = "") -> str:
    """Return the card: state, instances, cost, end, dashboard, and examples of code.

    Args:
        name: The name of the session.
        state: Its current state.
        dashboard: The URL of its dashboard, or empty.
    """
    facts = [(label, text) for label, text in rows(state) if label not in IN_HEAD]
    parts = [_head(name, state), facts_html(facts), _link(dashboard), _in_code(name)]
    return f'<div style="{FRAME}">{"".join(parts)}</div>'


def _head(name: str, state: SessionState) -> str:
    color = CLOSING if state.closing else OPEN
    how, job = dict(rows(state))["state"], html.escape(state.job)
    return (
        f'<div><span style="color:{color}">●</span> <b>{html.escape(name)}</b> '
        f'<span style="color:{color}">{html.escape(how)}</span> <span style="{SMALL}">the job {job}</span></div>'
    )


def _link(dashboard: str) -> str:
    if not dashboard:
        return ""
    # noopener: the dashboard's page must not get access to the notebook's.
    return f'<a href="{html.escape(dashboard)}" style="color:{LINK}" target="_blank" rel="noopener">Ray dashboard</a>'


def _in_code(name: str) -> str:
    code = (
        f"session = raysm.Session.attach({name!r})\n"
        "session.run(function, 1); session.map(function, items); session.exec(source)\n"
        "session.state; session.dashboard(); session.keep(minutes=60); session.close()\n"
        f"%raysm connect {name}    # then: a cell that begins with %%raysm; %raysm keep 60; %raysm close"
    )
    summary = f'<summary style="{SMALL}">the same in code</summary>'
    return f'<details>{summary}<pre style="{TEXT}">{html.escape(code)}</pre></details>'
