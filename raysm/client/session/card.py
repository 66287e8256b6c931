"""A session for people: what flows in is its state, what flows out is facts by their labels, or a line of text."""

from raysm.client.costs.bill import dollars
from raysm.contract.session import SessionState

__all__ = ["detached", "rows", "text"]


def rows(state: SessionState) -> list[tuple[str, str]]:
    """Return what there is to know, by its label."""
    gpus = f", {state.gpus:g} GPUs" if state.gpus else ""
    # Left out on this machine: "0 USD" would read as if somebody had looked.
    cost = []
    if state.usd is not None and state.usd_per_hour is not None:
        budget = f" of {dollars(state.budget_usd)}" if state.budget_usd is not None else ""
        cost = [("cost", f"{dollars(state.usd)}{budget}, {dollars(state.usd_per_hour)} an hour")]
    end = "while it works, none" if state.ends_in_s is None else f"in {_minutes(state.ends_in_s)}: {state.ends_why}"
    return [
        ("state", f"closing: {state.closing}" if state.closing else "open"),
        ("instances", f"{len(state.hosts)}: {state.cpus:g} CPUs{gpus}"),
        ("at work", f"{state.busy} calls" if state.busy != 1 else "1 call"),
        ("clients", str(state.clients)),
        *cost,
        ("end", end),
        ("job", state.job),
    ]


def detached(name: str, idle_s: float) -> tuple[str, str]:
    """Return what becomes of a session whose only client goes now, and its label.

    Args:
        name: The session's.
        idle_s: After which it ends without one.
    """
    return (
        "detached",
        f"from now on: ends after {_minutes(idle_s)} without a call; raysm session keep {name} 60m puts that off",
    )


def text(state: SessionState | None, name: str | None) -> str:
    """Return it as one line."""
    if state is None:
        return f"<session {name or ''}: not open>".replace(" :", ":")
    facts = ", ".join(f"{label} {value}" for label, value in rows(state))
    return f"<session {name or state.job}: {facts}>"


def _minutes(seconds: float) -> str:
    # Rounded to minutes a minute and a half would read "2 min", when half of it may be gone.
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
