"""A session's card as HTML. Pure: its state flows in, text flows out, in which all it says is escaped."""

import html

from raysm.client.session.connected import rows
from raysm.contract.session import SessionState
from raysm.views.card.drawing import FRAME, SMALL, TEXT, facts_html

__all__ = ["session_card"]

OPEN, CLOSING = "#2e7d32", "#c62828"

# A browser's own blue cannot be read on a dark page; this one has a contrast of 4 or more on black and on white.
LINK = "#1976d2"

IN_HEAD = ("state", "job")
"""What stands in the card's first line."""


def session_card(name: str, state: SessionState, dashboard: str = "") -> str:
    """Return the card: state, instances, cost, when it ends, the dashboard, and the same in code.

    Args:
        name: As it was named.
        state: How it is now.
        dashboard: Where its dashboard is shown; empty while it is not.
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
    # Opened with noopener: the dashboard's page must not get hold of the notebook's.
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
