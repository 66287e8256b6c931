"""What concerns a job as a whole, and this machine: whether it can be planned, and whether its dashboard is reached."""

import shutil
from collections.abc import Iterator

from raysm.client.doctor.case import Case
from raysm.client.doctor.finding import Finding, bad, good

__all__ = ["look_at_plan", "look_at_plugin"]

PLUGIN = "session-manager-plugin"


def look_at_plan(case: Case) -> Iterator[Finding]:
    """Yield whether the very call can be made; nothing where the job is not known as a whole."""
    if case.plan is not None:
        # What the plan refuses it raises: `carry_out` makes that a finding, with the remedy of the message.
        yield good(f"{case.plan().api.create} keeps to the API's rules")


def look_at_plugin(case: Case) -> Iterator[Finding]:
    """Yield whether a session into an instance can be opened from here."""
    path = shutil.which(PLUGIN)
    if path is not None:
        yield good(path)
        return
    yield bad(
        f"{PLUGIN} is not installed: the dashboard cannot be reached from here",
        "install it: https://docs.aws.amazon.com/systems-manager/latest/userguide/"
        "session-manager-working-with-install-plugin.html",
        needed=False,
    )
