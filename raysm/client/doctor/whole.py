"""What concerns a job as a whole, and this machine: whether it can be planned, and whether it can be entered."""

import importlib.util
from collections.abc import Iterator

from raysm.client.doctor.case import Case
from raysm.client.doctor.finding import Finding, bad, good

__all__ = ["look_at_plan", "look_at_tunnel"]

CARRIER = "aiohttp"
"""What carries a session: raysm speaks its protocol itself, and needs no plugin of AWS's beside it."""


def look_at_plan(case: Case) -> Iterator[Finding]:
    """Yield whether the very call can be made; nothing where the job is not known as a whole."""
    if case.plan is not None:
        # What the plan refuses it raises: `carry_out` makes that a finding, with the remedy of the message.
        yield good(f"{case.plan().api.create} keeps to the API's rules")


def look_at_tunnel(case: Case, carrier: str = CARRIER) -> Iterator[Finding]:
    """Yield whether a session into an instance can be opened from here."""
    # Found, not imported: the doctor is to answer at once.
    if importlib.util.find_spec(carrier) is not None:
        yield good(f"tunnels, shells and dashboards of jobs can be opened from here, by {carrier}")
        return
    yield bad(
        f"{carrier} is not installed: no tunnel, shell or dashboard of a job can be opened from here",
        "python3 -m pip install 'raysm[interactive]'",
        needed=False,
    )
