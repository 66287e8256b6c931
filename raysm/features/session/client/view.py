"""A session as a string, and as a card for notebooks."""

import html

from raysm.core.client.costs.bill import dollars
from raysm.core.client.views.card import SMALL, facts_html, framed, in_code
from raysm.core.protocol.names import counted
from raysm.core.request.durations import brief_duration
from raysm.features.session.protocol import SessionState


def list_facts(state: SessionState) -> list[tuple[str, str]]:
    """Return the facts about a session as pairs of label and text."""
    gpus = f", {counted(int(state.gpus), 'GPU')}" if state.gpus else ""
    # Without a price the cost is left out, because "0 USD" would look like a known cost.
    cost = []
    if state.usd is not None and state.usd_per_hour is not None:
        budget = f" of {dollars(state.budget_usd)}" if state.budget_usd is not None else ""
        cost = [("cost", f"{dollars(state.usd)}{budget}, {dollars(state.usd_per_hour)} an hour")]
    end = (
        "not while it is busy"
        if state.ends_in_s is None
        else f"in {brief_duration(state.ends_in_s)}: {state.ends_why}"
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


def describe_detached(name: str, idle_s: float) -> tuple[str, str]:
    text = (
        f"from now on: ends after {brief_duration(idle_s)} without a call; "
        f"raysm session keep {name} 60m postpones that"
    )
    return "detached", text


def describe_session(state: SessionState | None, name: str | None) -> str:
    if state is None:
        return f"<session {name}: not open>" if name else "<session: not open>"
    facts = ", ".join(f"{label} {value}" for label, value in list_facts(state))
    return f"<session {name or state.job}: {facts}>"


def render_card(name: str, state: SessionState, dashboard: str = "") -> str:
    facts = dict(list_facts(state))
    status = facts.pop("state")
    job = facts.pop("job")
    color = "#c62828" if state.closing else "#2e7d32"
    # noopener: the dashboard's page must not get access to the notebook's. The color's contrast is
    # at least 4 on black and on white.
    link = (
        f'<a href="{html.escape(dashboard)}" style="color:#1976d2" target="_blank" '
        'rel="noopener">Ray dashboard</a>'
    )
    code = (
        f"session = raysm.Session.attach({name!r})\n"
        "session.run(function, 1); session.map(function, items); session.exec(source)\n"
        "session.state; session.dashboard(); session.keep(minutes=60); session.close()\n"
        f"%raysm connect {name}    # then: "
        "a cell that begins with %%raysm; %raysm keep 60m; %raysm close"
    )
    head = (
        f'<div><span style="color:{color}">●</span> <b>{html.escape(name)}</b> '
        f'<span style="color:{color}">{html.escape(status)}</span> '
        f'<span style="{SMALL}">the job {html.escape(job)}</span></div>'
    )
    return framed([head, facts_html(list(facts.items())), link if dashboard else "", in_code(code)])
