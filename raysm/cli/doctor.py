"""``raysm doctor``: check what a job needs, here or on AWS, print IAM policies, and send a small job with ``--run``.

The checks are in ``raysm.client.doctor`` for AWS and in ``raysm.cli.this_machine`` for jobs on this machine.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import NO_ROLE, read_settings
from raysm.cli.display import Display, Times
from raysm.cli.report import brought, print_result
from raysm.cli.sending import follow, prepared, send
from raysm.cli.this_machine import local_checks
from raysm.client.account.permissions import ROLE, USER, policy
from raysm.client.costs.bill import most_expensive
from raysm.client.doctor import probe
from raysm.client.doctor.case import Case, Finding, State, intent_of
from raysm.client.doctor.checks import examine
from raysm.client.doctor.rights import names_of
from raysm.client.service import Service
from raysm.client.settings import Settings
from raysm.client.submit import prepare
from raysm.contract.home import home, scenario_file
from raysm.errors import InvalidRequest
from raysm.request import AWS, Cluster, Limits, Script, Target
from raysm.request.cluster import LOCAL_TYPE

__all__ = ["BAD", "GOOD", "POLICIES", "UNKNOWN", "case_of", "run", "status"]

GOOD, BAD, UNKNOWN = 0, 1, 3
"""Exit codes: all is well; something is wrong; nothing is known to be wrong, but some checks could not look."""

POLICIES = {"user": USER, "role": ROLE}
"""Whose permissions ``--policy`` prints."""

RUN_INSTANCE_TYPE = "ml.m5.large"
RUN_MAX_S = 900


def run(arguments: Arguments, console: Console, connect: Callable[[Target], Service] = Service) -> int:
    """Print the findings or a policy, send the job of ``--run``, and return the exit code.

    Args:
        arguments: The parsed command line.
        console: Where to print.
        connect: Returns the service of a target.

    Raises:
        InvalidRequest: The options cannot be used, or the job of ``--run`` was not agreed to.
    """
    settings = read_settings(arguments)
    if arguments.policy is not None:
        print(
            json.dumps(
                policy(POLICIES[arguments.policy], names_of(case_of(settings, settings.options(), connect))), indent=1
            )
        )
        return GOOD
    if arguments.runs_job and arguments.json:
        raise InvalidRequest("--run prints lines; drop --json")
    options = settings.options()
    if arguments.runs_job and "cluster" not in options:
        options["cluster"] = Cluster(RUN_INSTANCE_TYPE if settings.on.names_own_types else LOCAL_TYPE, count=2)
    findings = []
    found = examine(case_of(settings, options, connect)) if settings.on.kind == AWS.kind else _here(options)
    for finding in found:
        findings.append(finding)
        # Printed one by one, since checks on AWS take seconds each.
        if not arguments.json:
            _print(finding, console)
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    if not arguments.runs_job:
        return status(findings)
    if status(findings) == BAD:
        raise InvalidRequest("no job was sent; fix what is marked BAD above first")
    _run_job(connect(settings.target()), options, console, agreed=arguments.yes)
    return GOOD


def _run_job(service: Service, options: dict[str, Any], console: Console, *, agreed: bool) -> None:
    """Send the probe as a job, follow it, and print its result, times and costs."""
    times = Times(started_s=time.time())
    limits = replace(options.get("limits") or Limits(), max_runtime_s=RUN_MAX_S)
    options = {**options, "limits": limits, "name": "doctor"}
    options.pop("if_done", None)
    ready = prepare(Script(probe.__file__), on=service, **options)
    is_billed = service.target.is_billed
    if is_billed and not agreed:
        console.print(Text(f"the job costs {most_expensive(ready.request, service.region)}"), soft_wrap=True)
        if not sys.stdin.isatty():
            raise InvalidRequest("cannot ask whether to send the job, since there is no terminal; add --yes")
        if input("send this job? [y/N] ").strip().lower() not in ("y", "yes"):
            raise InvalidRequest("no job was sent")
    job = send(ready, console)
    times.sent_s = time.time()
    with Display(console) as display:
        follow(job, display, (f"job {job.name}",))
    result = brought(job, None, console)
    times.formed_s, times.done_s, times.is_billed = display.formed_s, display.done_s, is_billed
    times.ended_s, times.described = time.time(), job.describe()
    print_result(console, result, workload=Script.kind, times=times, bill=job.cost())


def status(findings: list[Finding]) -> int:
    """Return the exit code of findings."""
    states = {finding.state for finding in findings if finding.needed}
    return BAD if State.BAD in states else UNKNOWN if State.UNKNOWN in states else GOOD


def case_of(settings: Settings, options: Mapping[str, Any], connect: Callable[[Target], Service] = Service) -> Case:
    """Return the case of a job on AWS, as far as files, flags and ``options`` describe it."""
    # The role that was chosen, if any: the target's is a stand-in that must not be checked.
    role = settings.table(AWS.kind).get("role")
    # A plan is made by its check, so that a refusal becomes one finding among others.
    plan = (lambda: prepared(settings).plan) if ("workload",) in settings else None
    return Case(connect(settings.target(role=NO_ROLE)), intent_of(options), role=role, plan=plan)


def _here(options: Mapping[str, Any]) -> Iterator[Finding]:
    yield from local_checks()
    # Imported here, since checks on AWS do not need the embedded SageMaker.
    from raysm.cli.scenario_market import look_at_market
    from raysm.local import scenario

    yield from look_at_market(scenario.read(scenario_file(home())), intent_of(options))


def _print(finding: Finding, console: Console) -> None:
    console.print(Text(f"{finding.word:<4}  {finding.name:<14} {finding.text}"), soft_wrap=True)
    if finding.remedy:
        console.print(Text(f"      {'':<14} -> {finding.remedy}"), soft_wrap=True)
