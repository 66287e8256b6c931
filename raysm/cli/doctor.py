"""``raysm doctor``: prints what stands in the way of a job, here or on AWS, and the policies that a job there needs.

What flows in is a parsed command line, what flows out are lines or JSON; what is looked at stands in
``raysm.client.doctor`` for AWS, and in ``raysm.cli.this_machine`` for jobs on this machine.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.choosing import NO_ROLE, read_settings
from raysm.cli.this_machine import local_checks
from raysm.client.doctor import Case, Finding, State, examine, intent_of
from raysm.client.doctor.names import names_of
from raysm.client.permissions import ROLE, USER, policy
from raysm.client.plan import Plan
from raysm.client.service import Service
from raysm.client.settings import Settings
from raysm.contract.home import home, scenario_file
from raysm.request import AWS, Local

__all__ = ["BAD", "GOOD", "POLICIES", "UNKNOWN", "case_of", "run", "status"]

GOOD, BAD, UNKNOWN = 0, 1, 3
"""Exit codes: nothing stands in the way; something does; nothing that could be looked at, but not all could be."""

POLICIES = {"user": USER, "role": ROLE}
"""Whose permissions ``--policy`` prints."""


def run(arguments: Arguments, console: Console) -> int:
    """Print what is found, or a policy; return the exit code.

    Raises:
        InvalidRequest: What was asked for cannot be.
    """
    settings = read_settings(arguments)
    if arguments.policy is not None:
        print(json.dumps(policy(POLICIES[arguments.policy], names_of(case_of(settings))), indent=1))
        return GOOD
    if arguments.first_job:
        from raysm.cli import first_job

        return first_job.run(arguments, settings, console)
    findings = []
    for finding in EXAMINATIONS[settings.on.kind](settings):
        findings.append(finding)
        # As each is found: the looks at AWS take their time, one after the other.
        if not arguments.json:
            _print(finding, console)
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    return status(findings)


def status(findings: list[Finding]) -> int:
    """Return the exit code of what was found."""
    states = {finding.state for finding in findings if finding.needed}
    return BAD if State.BAD in states else UNKNOWN if State.UNKNOWN in states else GOOD


def case_of(settings: Settings) -> Case:
    """Return the case of a job on AWS, as far as files and flags say it."""
    # What was chosen, if anything: the target's is a stand-in, of which nothing is to be found.
    role = settings.table(AWS.kind).get("role")
    options = settings.options()
    service = Service(settings.target(role=NO_ROLE))
    # Made by the check itself: what refuses a plan is a finding beside the others, not the end of them.
    is_whole = ("workload",) in settings
    return Case(service, intent_of(options), role=role, plan=(lambda: _plan(settings)) if is_whole else None)


def _plan(settings: Settings) -> Plan:
    from raysm.cli.submitting import prepared

    return prepared(settings).plan


def _on_aws(settings: Settings) -> Iterator[Finding]:
    return examine(case_of(settings))


def _here(settings: Settings) -> Iterator[Finding]:
    yield from local_checks()
    # Here, not above: a look at AWS needs nothing of the half that plays it.
    from raysm.cli.scenario_market import look_at_market
    from raysm.local import scenario

    yield from look_at_market(scenario.read(scenario_file(home())), intent_of(settings.options()))


EXAMINATIONS: Mapping[str, Callable[[Settings], Iterator[Finding]]] = {AWS.kind: _on_aws, Local.kind: _here}
"""What is looked at for a job at each kind of target."""


def _print(finding: Finding, console: Console) -> None:
    console.print(Text(f"{finding.word:<4}  {finding.name:<14} {finding.text}"), soft_wrap=True)
    if finding.remedy:
        console.print(Text(f"      {'':<14} -> {finding.remedy}"), soft_wrap=True)
