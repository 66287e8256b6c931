"""``raysm doctor``: check what a job needs, print IAM policies, send a small job."""

import importlib
import importlib.metadata
import importlib.util
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import NO_ROLE, read_settings
from raysm.cli.console import now_s, say_aside
from raysm.cli.display import Times
from raysm.cli.report import print_result
from raysm.cli.sending import follow_and_fetch, prepared, send
from raysm.core.client.costs.bill import dollars, most_expensive
from raysm.core.client.costs.prices import usd_per_hour
from raysm.core.client.service import Service
from raysm.core.client.settings import Settings
from raysm.core.client.submit import prepare
from raysm.core.client.targets.local import find_server
from raysm.core.protocol.home import home, private_folder
from raysm.core.request import AWS, Cluster, Limits, Local, Target
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.core.request.programs import script_at
from raysm.core.request.targets import INSTANCE_KINDS
from raysm.errors import InvalidRequest
from raysm.features.account import network_probe, probe
from raysm.features.account.case import Case, Finding, State, bad, good, make_intent
from raysm.features.account.checks import examine
from raysm.features.account.permissions import ROLE, UNKNOWN_REPOSITORY, USER, find_names, policy

LOCAL_PACKAGES = ("ray", "pyarrow", "numpy", "moto", "psutil")


def local_checks() -> Iterator[Finding]:
    for name in LOCAL_PACKAGES:
        is_there = importlib.util.find_spec(name) is not None
        lacks = bad("not installed", "python3 -m pip install 'raysm[local]'")
        yield replace(good(importlib.metadata.version(name)) if is_there else lacks, name=name)
    yield train_check()
    record = find_server(home())
    yield replace(
        good(record.url if record else f"starts when needed (home {home()})"), name="server"
    )
    # The modules of the instances need it.
    if importlib.util.find_spec("psutil") is None:
        return
    from raysm.local.instances import foreign_opt_ml, missing_for

    for kind in INSTANCE_KINDS:
        missing = missing_for(kind)
        foreign = foreign_opt_ml(kind) if missing is None else None
        shared = "" if foreign is None else f", with this machine's /opt/ml: {foreign}"
        can = good(f"instances of kind {kind} can run{shared}")
        yield replace(can if missing is None else bad(missing, "", needed=False), name=kind)


def train_check(
    load: Callable[[], object] = lambda: importlib.import_module("ray.train"),
) -> Finding:
    """Check that ``load`` can import Ray Train.

    Ray Train needs torch, pandas and other packages, which the extra ``train`` installs.
    """
    try:
        load()
    except ImportError as error:
        text = (
            "cannot be imported, trainings will fail: "
            f"{error.__cause__ or error}"
        )  # the cause names the package
        return replace(
            bad(text, "python3 -m pip install 'raysm[train]'", needed=False), name="ray.train"
        )
    return replace(good("can be imported"), name="ray.train")


GOOD = 0
BAD = 1
UNKNOWN = 3
"""Exit codes: no problem; a problem; no known problem, but some checks could not be made."""

POLICIES = {"user": USER, "role": ROLE}
"""The permissions that ``--policy`` can print."""

UNKNOWN_NAMES = {
    "REGION": "--region",
    "ACCOUNT": "credentials, or --role with an ARN",
    "ROLE": "--role",
    "REPOSITORY": "--image or --instance-type",
}
"""The words that stand in a printed policy for names that are not known, with what makes each
known."""

RUN_INSTANCE_TYPE = "ml.m5.large"
RUN_MAX_S = 900
RUN_MAX_USD = 1.0
MAX_PAIRS = 20
"""Pairs in the table of ``--network``; all are in the result."""


def run(
    arguments: Arguments, console: Console, connect: Callable[[Target], Service] = Service
) -> int:
    """Print the findings or a policy, send the job of ``--run``, and return the exit code."""
    settings = read_settings(arguments)
    if arguments.policy is not None:
        if settings.on.kind != AWS.kind:
            raise InvalidRequest("--policy is about an account of AWS", remedy="add --on aws")
        names = find_names(make_case(settings, settings.options(), connect))
        document = json.dumps(policy(POLICIES[arguments.policy], names), indent=1)
        print(document)
        # The region and the account of an unknown image's repository come with the image.
        of_job = document.replace(UNKNOWN_REPOSITORY, "REPOSITORY")
        if unknown := [word for word in UNKNOWN_NAMES if re.search(rf"\b{word}\b", of_job)]:
            sources = ", ".join(f"{word} ({UNKNOWN_NAMES[word]})" for word in unknown)
            say_aside(f"raysm: replace what is not known here, or give it: {sources}")
        return GOOD
    if arguments.runs_job and arguments.json:
        raise InvalidRequest("--run prints lines; drop --json")
    if arguments.measures_network and not arguments.runs_job:
        raise InvalidRequest("--network measures in a job; add --run")
    options = settings.options()
    if arguments.runs_job and "cluster" not in options:
        options["cluster"] = Cluster(
            RUN_INSTANCE_TYPE if settings.on.names_own_types else LOCAL_TYPE, count=2
        )
    if arguments.measures_network:
        check_for_network(options["cluster"], uses_this_python=_uses_this_python(settings))
    if arguments.runs_job:
        options["limits"] = replace(
            options.get("limits") or Limits(), max_runtime_s=RUN_MAX_S, max_restarts=0
        )
    findings = []
    is_aws = settings.on.kind == AWS.kind
    for finding in examine(make_case(settings, options, connect)) if is_aws else local_checks():
        findings.append(finding)
        # Printed one by one, since checks on AWS take seconds each.
        if not arguments.json:
            console.print(
                Text(f"{finding.word:<4}  {finding.name:<14} {finding.text}"), soft_wrap=True
            )
            if finding.remedy:
                console.print(Text(f"      {'':<14} -> {finding.remedy}"), soft_wrap=True)
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    if not arguments.runs_job:
        return status(findings)
    if status(findings) == BAD:
        raise InvalidRequest("no job was sent; fix what is marked BAD above first")
    _run_job(
        connect(settings.target()),
        options,
        console,
        agreed=arguments.yes,
        network=arguments.measures_network,
    )
    return GOOD


def _uses_this_python(settings: Settings) -> bool:
    """Return whether the instances run this machine's Python, as all but containers do here."""
    if settings.on.kind != Local.kind:
        return False
    target = settings.target()
    assert isinstance(target, Local)
    return not INSTANCE_KINDS[target.instance_kind].needs_image


def check_for_network(cluster: Cluster, *, uses_this_python: bool) -> None:
    """Refuse to measure the network of one instance, or without torch."""
    if cluster.size < 2:
        raise InvalidRequest("one instance has no network to measure", remedy="--instances 2")
    if uses_this_python and importlib.util.find_spec("torch") is None:
        raise InvalidRequest(
            "--network needs torch", remedy="python3 -m pip install 'raysm[train]'"
        )


def _run_job(
    service: Service, options: dict[str, Any], console: Console, *, agreed: bool, network: bool
) -> None:
    times = Times(started_s=now_s())
    # A file of zero bytes, which AWS may leave out, and one that makes the channel.
    folder = private_folder(service.home, "doctor")
    (folder / probe.EMPTY).touch()
    (folder / "full").write_text("raysm doctor\n")
    inputs = {**options.get("inputs", {}), probe.CHANNEL: str(folder)}
    own = ("if_done", "regions", "region_wait_s")
    options = {name: value for name, value in options.items() if name not in own}
    ready = prepare(
        script_at(network_probe.__file__ if network else probe.__file__),
        on=service,
        **options | {"name": "doctor", "inputs": inputs},
    )
    if service.target.is_billed:
        costs = most_expensive(ready.request, service.region, cap=ready.cap)
        console.print(Text(f"the job costs {costs}"), soft_wrap=True)
        cluster, limits = ready.request.cluster, ready.request.limits
        price = usd_per_hour(cluster, service, limits.price_per_hour)
        usd = (price or 0.0) * (RUN_MAX_S + cluster.keep_alive_s) / 3600
        if limits.max_cost is not None:
            # The service stops the job before it costs more.
            usd = min(usd, limits.max_cost)
        is_dear = usd > RUN_MAX_USD
        # The instances whose network matters most cost more.
        if is_dear and not network:
            raise InvalidRequest(
                f"a trial may cost at most {dollars(RUN_MAX_USD)}, and this one could cost "
                f"{dollars(usd)}",
                remedy="name a cheaper --instance-type, or fewer --instances",
            )
        if price is None or not agreed or (is_dear and limits.max_cost is None):
            if not sys.stdin.isatty() and is_dear:
                raise InvalidRequest(
                    f"no terminal to ask whether to send a job that could cost {dollars(usd)}: "
                    f"above {dollars(RUN_MAX_USD)} --yes needs a --max-cost",
                    remedy=f"--yes --max-cost {math.ceil(100 * usd) / 100:.2f}",
                )
            if not sys.stdin.isatty():
                raise InvalidRequest(
                    "no terminal to ask whether to send the job: add --yes, which needs a known "
                    "price"
                )
            if input("send this job? [y/N] ").strip().lower() not in ("y", "yes"):
                raise InvalidRequest("no job was sent")
    job = send(ready, console)
    times.sent_s = now_s()
    result = follow_and_fetch(job, console, times)
    print_result(
        console, result, workload=ready.request.workload.kind, times=times, bill=job.cost()
    )
    if network:
        print_network(console, json.loads((result.path / network_probe.RESULT).read_text()))


def print_network(console: Console, found: Mapping[str, Any]) -> None:
    """Print the bandwidths that ``network_probe.measure`` returned, the slowest pairs first."""
    usual = network_probe.usual_bandwidth([pair["bytes_per_s"] for pair in found["pairs"]])
    table = Table(box=None, pad_edge=False)
    table.add_column("instances")
    table.add_column("GB/s", justify="right")
    table.add_column("of the usual", justify="right")
    for pair in found["pairs"][:MAX_PAIRS]:
        share = f"{pair['bytes_per_s'] / usual:.0%}"
        table.add_row(" ".join(pair["instances"]), f"{pair['bytes_per_s'] / 1e9:.3g}", share)
    if len(found["pairs"]) > MAX_PAIRS:
        table.add_row(f"{len(found['pairs']) - MAX_PAIRS} faster pairs")
    console.print(table)
    by = f"{found['gpus']} GPUs of each" if found["gpus"] else "one process of each"
    console.print(
        Text(
            f"all-reduce of all instances ({found['backend']}, {by}): "
            f"{found['all_reduce_bytes_per_s'] / 1e9:.3g} GB/s"
        ),
        soft_wrap=True,
    )
    if found["why_gloo"]:
        console.print(Text(f"gloo, not NCCL, since {found['why_gloo']}"), soft_wrap=True)
    if found["missing"]:
        console.print(
            Text(f"not measured, since they did not join: {', '.join(found['missing'])}"),
            soft_wrap=True,
        )
    console.print(Text(network_probe.verdict(found["pairs"])), soft_wrap=True)


def status(findings: list[Finding]) -> int:
    states = {finding.state for finding in findings if finding.needed}
    if State.BAD in states:
        return BAD
    return UNKNOWN if State.UNKNOWN in states else GOOD


def make_case(
    settings: Settings, options: Mapping[str, Any], connect: Callable[[Target], Service] = Service
) -> Case:
    """Return the case of a job on AWS, as far as files, flags and ``options`` describe it."""
    # The target below has a stand-in that must not be checked.
    role = settings.table(AWS.kind).get("role")
    plan = (lambda: prepared(settings).plan) if ("workload",) in settings else None
    return Case(connect(settings.target(role=NO_ROLE)), make_intent(options), role=role, plan=plan)
