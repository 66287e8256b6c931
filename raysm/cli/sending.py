"""The commands that send a job: prepare it, send it, follow it and fetch its result."""

import importlib.util
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich.console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import read_settings
from raysm.cli.console import Console, is_of_output, now_s, say, say_aside, say_last
from raysm.cli.display import Display, Times
from raysm.cli.interrupts import (
    OF_THE_PROCESS,
    REPEATED_S,
    STOPPING_S,
    Interrupted,
    Interrupts,
    interruptible,
)
from raysm.cli.report import brought, described, print_result
from raysm.core.client.costs.bill import dollars, most_expensive
from raysm.core.client.costs.ledger import Ledger
from raysm.core.client.job.handle import Job, attach
from raysm.core.client.logs.pending import Silence, reasons_told
from raysm.core.client.options import default_of
from raysm.core.client.regions import InRegions
from raysm.core.client.results.result import Result, check_folder
from raysm.core.client.service import connect
from raysm.core.client.settings import Settings, absolute, packaged_options
from raysm.core.client.storage.s3 import file_path
from raysm.core.client.submit import Prepared, prepare, prepare_in_regions
from raysm.core.client.targets.local import find_server
from raysm.core.protocol.names import WORKLOAD_TAG, counted
from raysm.core.request import Cluster
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest, JobFailed, JobNotFound, RaysmError

MAX_PER_CORE = 4
"""A core can start a few emulated instances, which mostly wait; with more, their starts delay each
other."""


def cluster(settings: Settings) -> Cluster:
    is_typed = any(("cluster", name) in settings for name in ("instance_type", "groups"))
    if settings.on.names_own_types and not is_typed:
        raise InvalidRequest(
            f"--on {settings.on.kind} needs --instance-type, ml.c5.4xlarge for example"
        )
    return settings.options().get("cluster") or Cluster()


def prepared(settings: Settings) -> Prepared:
    return prepare(settings.workload(), on=settings.target(), **_options_of_job(settings))


def _options_of_job(settings: Settings) -> dict[str, Any]:
    # Called only for its check: its message names the flag.
    cluster(settings)
    options = packaged_options(settings)
    # ``run`` looks for a finished job itself, to print that nothing was started.
    for name in ("if_done", "regions", "region_wait_s"):
        options.pop(name, None)
    return options


def _in_regions(settings: Settings) -> InRegions[Prepared] | None:
    options = settings.options()
    if not options.get("regions"):
        if settings.origin(("region_wait_s",)) == "--region-wait":
            raise InvalidRequest("--region-wait belongs to --regions A,B")
        return None
    return prepare_in_regions(
        settings.workload(),
        on=settings.target(),
        regions=options["regions"],
        wait_s=options.get("region_wait_s"),
        **_options_of_job(settings),
    )


def crowding(ready: Prepared, cores: int) -> str | None:
    """Return a warning if a job has far more instances than this machine can run, else None."""
    count = ready.request.cluster.size
    if ready.service.target.is_billed or count <= MAX_PER_CORE * cores:
        return None
    return (
        f"{count} instances share the {cores} core{'s' if cores > 1 else ''} of this machine, "
        "and each of them starts its own Ray processes: "
        f"it may take long until all have joined; --instances {2 * cores} is a good number here"
    )


def facts(ready: Prepared) -> list[tuple[str, str, str]]:
    """Return what raysm chose for the job and what it costs: image, source and price.

    Each fact is (verb, label, fact).
    """
    rows = [("run in", "image", ready.image)]
    if ready.source is not None:
        rows.append(("send", "sent", ready.source.summary))
    rows.append(("install", "packages", ready.packages))
    is_billed = ready.service.target.is_billed
    limits = ready.request.limits
    if is_billed or ready.cap is not None:
        costs = most_expensive(ready.request, ready.service.region, cap=ready.cap)
        rows.append(("cost", "cost", costs))
    elif limits.max_cost is not None:
        costs = (
            f"nothing: this machine bills nothing, so max_cost={limits.max_cost:g} does not limit "
            "the job; --price-per-hour USD tries the limit out"
        )
        rows.append(("cost", "cost", costs))
    rows.append(("count", "today", _today(ready)))
    return [(verb, label, fact) for verb, label, fact in rows if fact]


def _today(ready: Prepared) -> str:
    """Return what a job takes of its user's cap for a day; empty without cap or bill."""
    entry = ready.ledger_entry()
    cap_usd = ready.request.limits.max_cost_per_day
    if entry is None or cap_usd is None:
        return ""
    ledger = Ledger(ready.service.home)
    ledger.settle(ready.service)
    today = ledger.day()
    return (
        f"up to {dollars(entry.most_usd_of_day)} of the {dollars(cap_usd)} that your jobs may cost "
        f"today (UTC); {counted(today.jobs, 'other job')} may cost {dollars(today.usd)}"
    )


def print_plan(ready: Prepared, text: str | None = None) -> None:
    """Print the API call of a job that is not sent, or ``text``.

    What raysm chose and what it costs is printed to stderr.
    """
    print(ready.plan.json() if text is None else text)
    for verb, _, fact in facts(ready):
        say_aside(f"would {verb} {fact}")


def as_request(ready: Prepared, settings: Settings) -> dict[str, Any]:
    """Return a prepared job in the form of ``--request``, with all options including defaults.

    Inputs are the given paths and not their places in the bucket. Paths are absolute.
    """
    options = settings.options()
    # Without ``name=ready.task`` the job's name, which contains a time, would become the name of
    # the next task.
    request = replace(ready.request, name=ready.task, inputs=options.get("inputs", {}))
    kind = settings.on.kind
    where = {name: item for name, item in to_json(ready.service.target).items() if name != "kind"}
    # These options are not fields of a JobRequest.
    beside = {name: options.get(name, default_of(name)) for name in ("wheels", "if_done", "resume")}
    beside |= {name: options[name] for name in ("regions", "region_wait_s") if name in options}
    return absolute({"on": kind, kind: where} | to_json(beside) | to_json(request), Path.cwd())


def what_sending_does(ready: Prepared) -> str:
    channels = ", ".join(upload.channel for upload in ready.uploads)
    return (
        f"uploading {channels} to s3://{ready.service.bucket.name}"
        if channels
        else "sending the job"
    )


def check_timeout(timeout_s: float | None) -> None:
    if timeout_s is not None and timeout_s < 0:
        raise InvalidRequest(f"--timeout must be at least 0 seconds, got {timeout_s:g}")


def check_output(output: Path | None) -> None:
    if output is None:
        return
    check_folder(output)
    try:
        # Try to write, because os.access reports every folder as writable to root.
        missing = [folder for folder in (output, *output.absolute().parents) if not folder.exists()]
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
        # If the command fails later, no empty folder is left.
        for folder in missing:
            folder.rmdir()
    except OSError as error:
        raise InvalidRequest(
            f"--output {output} cannot be written: {error.strerror}; name another folder"
        ) from error


def send(ready: Prepared | InRegions[Prepared], console: rich.console.Console) -> Job:
    with interruptible() as interrupts:
        try:
            interrupts.raise_if_lost()
            job = ready.send()
            interrupts.raise_if_lost()
            OF_THE_PROCESS.is_held = True
            return job
        except KeyboardInterrupt:
            sent = ready.current if isinstance(ready, InRegions) else ready
            name = sent.request.name
            # The service may have created the job before it was interrupted.
            interrupts.ignore_for(STOPPING_S)
            try:
                job = attach(name, sent.service)
            except JobNotFound:
                raise KeyboardInterrupt from None
            except RaysmError as error:
                raise Interrupted(
                    f"interrupted; raysm status {name} tells whether it was sent: {error}"
                ) from None
            if isinstance(ready, InRegions) and ready.is_leaving:
                raise Interrupted(
                    f"interrupted; {name} in {job.service.region} is {job.status}, "
                    "and no other job was sent"
                ) from None
            raise Interrupted(end_showing(job, console, interrupts)) from None


def follow(job: Job, display: Display, first: Sequence[str] = ()) -> None:
    """Show the job's lines until it has ended.

    On this machine Ctrl-C stops the job; on AWS it only ends the display.

    A stdout that cannot be written counts as Ctrl-C: the reader of a pipe has gone, or its disk is
    full.
    """
    with interruptible() as interrupts:
        try:
            interrupts.raise_if_lost()
            for text in first:
                display.say(text)
            with reasons_told(job, display.say) as on_line:
                for line in job.lines(follow=True):
                    on_line(line.text)
                    # An interrupt waits for the end of the line: an interrupted console would print
                    # it again.
                    with interrupts.held():
                        display.line(line.host, line.text)
        except KeyboardInterrupt:
            raise Interrupted(end_showing(job, display.console, interrupts)) from None
        except OSError as error:
            # Nobody would see the rest, nor how to stop the job.
            if isinstance(error, BrokenPipeError) or is_of_output(error):
                say_last(display.console, end_showing(job, display.console, interrupts))
            raise


def follow_and_fetch(
    job: Job,
    console: rich.console.Console,
    times: Times,
    first: Sequence[str] = (),
    output: Path | None = None,
) -> Any:
    """Follow a job until it has ended, fetch its result and note the times.

    ``first`` is printed before the job's lines.
    """
    with Display(console) as display:
        # The dashboard needs it, and the extra ``local`` does not bring it.
        if importlib.util.find_spec("aiohttp"):
            display.way_in = job.service.target.way_to_dashboard(job.name)
        follow(job, display, (f"job {job.name}", *first))
    times.formed_s = display.formed_s
    times.done_s = display.done_s
    times.is_billed = job.service.target.is_billed
    times.installing_s = display.installing_s
    try:
        with Silence(say_aside, lambda: "waiting: bringing the result"):
            result = brought(job, output, console)
    except JobFailed as error:
        traceback = error.remote_traceback.splitlines()
        if not traceback or not display.has_shown(traceback):
            raise
        # The display has already shown the traceback.
        raise RaysmError("\n".join(filter(None, [error.headline, error.remedy]))) from error
    times.ended_s = now_s()
    times.described = job.describe()
    return result


def end_showing(job: Job, console: rich.console.Console, interrupts: Interrupts) -> str:
    """Stop a job of this machine and wait for its end, unless it runs on AWS.

    Returns:
        A line that says how the job is now.
    """
    if job.service.target.is_billed:
        return (
            f"{job.name} keeps running: raysm logs -f {job.name} --on aws …, "
            f"or raysm stop {job.name} --on aws …"
        )
    # Until the service has been asked to stop it, further signals must not interrupt that.
    interrupts.ignore_for(STOPPING_S)
    say_last(
        console,
        f"stopping {job.name}: it has time to save its work; to leave before its end, Ctrl-C again",
    )
    try:
        job.cancel()
        interrupts.ignore_for(REPEATED_S)
        ended = f"{job.stop()}".lower()
    except KeyboardInterrupt:
        interrupts.ignore_for(STOPPING_S)
        return f"left {job.name}, which is {job.status}; raysm status {job.name} shows its end"
    state = job.describe().answer.get("CheckpointConfig", {}).get("S3Uri")
    if job.status == "Completed":
        return f"{ended}; raysm result {job.name} brings its result"
    has_saved = state is not None and any(path.is_file() for path in file_path(state).rglob("*"))
    resume = "; the same command with --resume continues with what it saved" if has_saved else ""
    return f"{ended}{job.left_at_stop()}{resume}; raysm rm {job.name} removes it"


def run(arguments: Arguments, console: rich.console.Console) -> int | None:
    """Send the requested job and follow it, or print it with ``--dry-run``.

    Returns:
        1 if a part of it failed.
    """
    times = Times(started_s=arguments.started_s)
    check_output(arguments.output)
    with Silence(say_aside, lambda: "waiting: reading the options and the inputs"):
        settings = read_settings(arguments)
        service = connect(settings.target())
        # Now, because preparing the first job of a machine and starting its server take seconds.
        if not (arguments.dry_run or service.target.is_billed or find_server(service.home)):
            say_aside(
                "waiting: preparing the job, and starting the embedded SageMaker of this machine"
            )
        choice = _in_regions(settings)
        ready = prepared(settings) if choice is None else choice.current
    if arguments.output is not None:
        # Checked again now that the job's name is known: the result of another task must not be
        # replaced.
        check_folder(arguments.output, ready.request.name)
    warning = crowding(ready, os.cpu_count() or 1)
    if warning is not None:
        # To stderr, because --json prints only its document on stdout.
        say_aside(f"raysm: {warning}")
    if arguments.dry_run:
        # --request accepts the printed request; the plan is the API call.
        print_plan(
            ready, json.dumps(as_request(ready, settings), indent=1) if arguments.json else None
        )
        if choice is not None:
            regions = ", ".join(each.service.region for each in choice.prepared)
            say_aside(f"would try the regions {regions}, one after the other")
        return None
    # Looked up here instead of in send(), so that the display can say that nothing was started.
    skips = settings.options().get("if_done") == "skip"
    done = (choice or ready).finished() if skips else None
    # With --json, stdout has only the result.
    shown = Console(stderr=True) if arguments.json else console
    # Before it is sent, because it counts among the jobs of the day then.
    lines_of = {
        each.service.region: [f"{label} {fact}" for _, label, fact in facts(each)]
        for each in ([ready] if choice is None else choice.prepared)
        if done is None
    }
    told = f"waiting: {what_sending_does(ready)}"
    with Silence(say_aside, lambda: (choice and choice.waits_for) or told):
        job = done or send(choice or ready, shown)
    lines = lines_of.get(job.service.region, [])
    if choice is not None:
        lines.insert(0, f"region {job.service.region}")
    arguments.has_sent = True
    times.sent_s = now_s()
    if arguments.detach:
        for line in lines:
            say_aside(line)
        print(json.dumps(described(job), indent=1) if arguments.json else job.name)
        return None
    if done is not None and done.done():
        shown.print(
            Text(f"already done by {job.name}; nothing was started"),
            soft_wrap=True,
            highlight=False,
        )
        result = brought(job, arguments.output, shown)
    else:
        result = follow_and_fetch(job, shown, times, lines, arguments.output)
    print_result(
        console,
        result,
        workload=job.tags.get(WORKLOAD_TAG, ""),
        as_json=arguments.json,
        times=None if done is not None else times,
        bill=None if done is not None else job.cost(),
        job=job,
    )
    if choice is not None and not arguments.json:
        instances = " + ".join(f"{count} x {kind}" for kind, count in job.instances)
        say(f"ran on {instances} in {job.service.region}", console)
    return int(result.is_partial) if isinstance(result, Result) else None
