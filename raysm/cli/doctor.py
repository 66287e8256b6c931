"""``raysm doctor``: check what a job needs, here or on AWS, print IAM policies, and send a small job with ``--run``.

The checks are in ``raysm.client.doctor`` for AWS and in ``raysm.cli.doctor`` for jobs on this machine.
"""

import importlib
import importlib.metadata
import importlib.util
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
from raysm.client.account.permissions import ROLE, USER, policy
from raysm.client.costs.bill import most_expensive
from raysm.client.doctor import probe
from raysm.client.doctor.case import Case, Finding, Intent, State, bad, good, intent_of, one_suffices
from raysm.client.doctor.checks import examine
from raysm.client.doctor.rights import names_of
from raysm.client.service import Service
from raysm.client.settings import Settings
from raysm.client.submit import prepare
from raysm.client.targets import endpoint
from raysm.contract.home import home, scenario_file
from raysm.contract.names import LOCAL_REGION
from raysm.errors import InvalidRequest
from raysm.local.scenario import Capacity, Market, Scenario
from raysm.local.scenario import read as read_scenario
from raysm.request import AWS, Cluster, Limits, Script, Target
from raysm.request.cluster import LOCAL_TYPE
from raysm.request.targets import INSTANCE_KINDS

__all__ = [
    "BAD",
    "GOOD",
    "POLICIES",
    "UNKNOWN",
    "case_of",
    "local_checks",
    "look_at_market",
    "run",
    "status",
    "train_check",
]


LOCAL_PACKAGES = ("ray", "pyarrow", "numpy", "moto")


def local_checks() -> Iterator[Finding]:
    """Check what jobs on this machine need."""
    from raysm.local.instances import missing_for

    for name in LOCAL_PACKAGES:
        is_there = importlib.util.find_spec(name) is not None
        lacks = bad("not installed", "python3 -m pip install 'raysm[local]'")
        yield replace(good(importlib.metadata.version(name)) if is_there else lacks, name=name)
    yield train_check()
    record = endpoint.answering(home())
    yield replace(good(record.url if record else f"starts when needed (home {home()})"), name="server")
    for kind in INSTANCE_KINDS:
        missing = missing_for(kind)
        can = good(f"instances of kind {kind} can run")
        yield replace(can if missing is None else bad(missing, "", needed=False), name=kind)


def train_check(load: Callable[[], object] = lambda: importlib.import_module("ray.train")) -> Finding:
    """Check that Ray Train can be imported: it needs torch, pandas and others, which the extra ``train`` brings.

    Args:
        load: Imports it.
    """
    try:
        load()
    except ImportError as error:
        text = f"cannot be imported, trainings will fail: {error.__cause__ or error}"  # the cause names the package
        return replace(bad(text, "python3 -m pip install 'raysm[train]'", needed=False), name="ray.train")
    return replace(good("can be imported"), name="ray.train")


REMEDY = "take fewer instances, another type or a region that has them, or change the scenario"


def look_at_market(scenario: Scenario, intent: Intent) -> Iterator[Finding]:
    """Yield price, quota and capacity of each region and type in a scenario, compared with the job.

    Args:
        scenario: The scenario of the home.
        intent: The job; if it names instance types, only these are compared.
    """
    # The type of this machine has neither price nor quota.
    choices = [{name: count for name, count in choice.items() if name != LOCAL_TYPE} for choice in intent.choices]
    is_named = any(choices)
    common = "elsewhere" if scenario.regions else "everywhere"
    home = LOCAL_REGION if LOCAL_REGION in scenario.regions else common
    for region, settings in {**scenario.regions, common: scenario}.items():
        if (settings.market, settings.capacity) == (Market(), Capacity()):
            continue
        named = {
            *settings.market.usd_per_hour,
            *settings.market.quotas,
            *settings.market.spot_quotas,
            *settings.capacity.instances,
        }
        # Types that the job does not name are left out: a market may have hundreds.
        by_choice = [
            [_of_type(region, settings, name, count, is_spot=intent.limits.spot) for name, count in choice.items()]
            for choice in (choices if is_named else [dict.fromkeys(sorted(named), 0)])
        ]
        for finding in one_suffices(by_choice):
            # A job runs in its home's region; only a grid uses the others, if they have capacity.
            yield replace(finding, name="market", needed=finding.needed and region == home)
        chances = "; ".join(_chances(settings.capacity))
        if chances:
            # BAD only if the job could never start; the other faults may or may not happen.
            is_closed = settings.capacity.insufficient >= 1 and is_named
            text = f"{region}: {chances}"
            yield replace(bad(text, REMEDY) if is_closed else good(text), name="market", needed=region == home)


def _of_type(region: str, settings: Scenario, name: str, count: int, *, is_spot: bool) -> Finding:
    price, capacity = settings.market.usd_per_hour.get(name), settings.capacity.instances.get(name)
    quotas = {"": settings.market.quotas.get(name), "spot ": settings.market.spot_quotas.get(name)}
    facts = [
        "no price" if price is None else f"{price:g} USD/h",
        *(f"{market}quota {quota}" for market, quota in quotas.items() if quota is not None),
        "any number of instances" if capacity is None else f"{capacity} instances",
    ]
    text = f"{region}: {name}, {', '.join(facts)}"
    quota = quotas["spot " if is_spot else ""]
    limits: Mapping[str, int | None] = {"quota": quota, "instances there are": capacity}
    short = [what for what, limit in limits.items() if limit is not None and limit < count]
    return bad(f"{text}; the job takes {count}", REMEDY) if short else good(text)


def _chances(capacity: Capacity) -> Iterator[str]:
    if capacity.insufficient:
        yield f"{capacity.insufficient:.0%} of the jobs get no instances"
    if capacity.interruptions_per_hour:
        yield f"a job on spot capacity is interrupted {capacity.interruptions_per_hour:g} times an hour"
    for words in capacity.interrupted_at:
        yield f"a job on spot capacity is interrupted at the line {words!r}"
    if capacity.internal_errors:
        yield f"{capacity.internal_errors:.0%} of the attempts fail with an internal error"
    if capacity.start_delay_s:
        yield f"instances start after {capacity.start_delay_s:g} s"


GOOD, BAD, UNKNOWN = 0, 1, 3
"""Exit codes: no problem; a problem; no known problem, but some checks could not be made."""

POLICIES = {"user": USER, "role": ROLE}
"""The permissions that ``--policy`` can print."""

RUN_INSTANCE_TYPE = "ml.m5.large"
RUN_MAX_S = 900


def run(arguments: Arguments, console: Console, connect: Callable[[Target], Service] = Service) -> int:
    """Print the findings or a policy, send the job of ``--run``, and return the exit code.

    Args:
        arguments: The parsed command line.
        console: Where to print.
        connect: Returns the service of a target.

    Raises:
        InvalidRequest: An option is invalid, or the user refused the job of ``--run``.
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
    found = (
        examine(case_of(settings, options, connect)) if settings.on.kind == AWS.kind else _check_this_machine(options)
    )
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
    # The chosen role, if any: the target below has a stand-in that must not be checked.
    role = settings.table(AWS.kind).get("role")
    # A function, so that the check that calls it turns an error into a finding.
    plan = (lambda: prepared(settings).plan) if ("workload",) in settings else None
    return Case(connect(settings.target(role=NO_ROLE)), intent_of(options), role=role, plan=plan)


def _check_this_machine(options: Mapping[str, Any]) -> Iterator[Finding]:
    yield from local_checks()
    yield from look_at_market(read_scenario(scenario_file(home())), intent_of(options))


def _print(finding: Finding, console: Console) -> None:
    console.print(Text(f"{finding.word:<4}  {finding.name:<14} {finding.text}"), soft_wrap=True)
    if finding.remedy:
        console.print(Text(f"      {'':<14} -> {finding.remedy}"), soft_wrap=True)
