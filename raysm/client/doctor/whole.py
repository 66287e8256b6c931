"""What concerns a job as a whole, and this machine: whether it can be planned, and whether it can be entered."""

from collections.abc import Iterator

from raysm.client.doctor.case import Case
from raysm.client.doctor.finding import Finding, bad, good
from raysm.client.tunnel.plugin import INSTALL, PluginAccess
from raysm.errors import MissingDependency

__all__ = ["look_at_plan", "look_at_tunnel"]


def look_at_plan(case: Case) -> Iterator[Finding]:
    """Yield whether the very call can be made; nothing where the job is not known as a whole."""
    if case.plan is not None:
        # What the plan refuses it raises: `carry_out` makes that a finding, with the remedy of the message.
        yield good(f"{case.plan().api.create} keeps to the API's rules")


def look_at_tunnel(case: Case) -> Iterator[Finding]:
    """Yield whether tunnels and shells can be opened from here."""
    try:
        PluginAccess(case.service).check()
    except MissingDependency as error:
        # Jobs run without it.
        yield bad(str(error).partition(". ")[0], INSTALL, needed=False)
        return
    yield good("AWS's session-manager-plugin is installed: tunnels, shells and dashboards of jobs can be opened")
