"""The commands about existing jobs: rm, status, logs, result, metrics, stop, token, debug."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import service_to_read
from raysm.cli.console import Console, say, say_aside
from raysm.cli.display import Display
from raysm.cli.interrupts import Interrupted
from raysm.cli.report import brought, described, print_metrics, print_result
from raysm.cli.sending import check_output, check_timeout
from raysm.core import features
from raysm.core.client.costs.bill import lines
from raysm.core.client.job.handle import Job, attach_in_any_region, token_of
from raysm.core.client.job.listing import find_all, find_job, find_running
from raysm.core.client.job.removal import check, descriptions, remove
from raysm.core.client.logs.stalls import find_stall
from raysm.core.client.logs.stream import JobStream
from raysm.core.client.service import Service
from raysm.core.protocol import events
from raysm.core.protocol.names import WORKLOAD_TAG
from raysm.errors import JobNotFound, NotDone


def find_to_read(name: str, service: Service) -> Job:
    return find_job(name, service, told=tell_chosen(name))


def tell_chosen(name: str) -> Callable[[Job], None]:
    def tell(job: Job) -> None:
        # Many jobs may have this short name. To stderr, because stdout has the answer.
        how = "it has ended" if job.status.is_terminal else "others of them run, too"
        say_aside(f"raysm: {name} is {job.name}, the last job of that name; {how}")

    return tell


def await_end(job: Job, console: Console, timeout_s: float | None) -> None:
    still = f"{job.name} is still {job.status}"
    looks = f"raysm logs -f {job.name} shows what it writes"
    if timeout_s == 0:
        raise NotDone(f"{still}; {looks}, raysm result {job.name} waits for its result")
    # Not monotonic, because it is compared with times from other machines.
    begun_s = time.time()
    with Display(console) as display:
        display.say(
            f"{still}: waiting for its result; {looks}; Ctrl-C stops waiting; the job keeps running"
        )
        try:
            # Waiting sends the follow-up jobs, as ``Job.wait`` does.
            for line in JobStream(job.chain, send=True).follow(timeout_s):
                match events.parse(line.text):
                    # Earlier states are left out; the progress of each phase already includes the
                    # past.
                    case events.State(time_s=time_s) if time_s < begun_s:
                        continue
                    case events.State() | events.Progress():
                        display.line(line.host, line.text)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; {job.name} keeps running") from None


CHANGING = ("stop", "debug")
"""Commands that change a job: if several run under one name, the user has to name one."""

OTHERS = ("run_about_tuning", "run_about_grid")
"""Views for names of something else than a job: they run the command and return True, or return
False."""


def run(arguments: Arguments, console: Console, service: Service | None = None) -> None:
    """Run a command on the jobs of ``service``; None connects to that of the arguments."""
    service = service or service_to_read(arguments)
    if arguments.command == "rm":
        _remove(arguments, service, console)
        return
    try:
        job = attach_in_any_region(service, arguments.job)
    except JobNotFound:
        if _run_about_another(arguments, service, console):
            return
        told = tell_chosen(arguments.job) if arguments.is_reading else None
        job = find_running(arguments.job, service, sole=arguments.command in CHANGING, told=told)
    of_one = {"status": _status, "logs": _logs, "result": _result, "metrics": print_metrics}
    of_one |= {"stop": _stop, "token": _token, "debug": _debug}
    of_one[arguments.command](arguments, job, console)


def _run_about_another(arguments: Arguments, service: Service, console: Console) -> bool:
    found = map(features.offered, OTHERS)
    return any(
        run_about(arguments, service, console) for run_about in found if run_about is not None
    )


def _remove(arguments: Arguments, service: Service, console: Console) -> None:
    # A job that is named twice is removed once.
    going = list(dict.fromkeys(job for name in arguments.job for job in find_all(name, service)))
    # By region: only jobs of one region share state.
    every = {
        region: descriptions(each)
        for region, each in {job.service.region: job.service for job in going}.items()
    }
    for job in going:  # all are checked before any is removed
        check(job, every[job.service.region])
    for job in going:
        remove(job, every[job.service.region])
        # State that only these jobs share is removed with the last of them.
        every[job.service.region] = [
            other for other in every[job.service.region] if other.name != job.name
        ]
    if arguments.json:
        print(json.dumps({"removed": [job.name for job in going]}, indent=1))
    else:
        console.print(Text("\n".join(f"removed {job.name}" for job in going)), soft_wrap=True)


def _status(arguments: Arguments, job: Job, console: Console) -> None:
    if arguments.json:
        print(json.dumps(described(job) | {"stall": find_stall(job.chain) or None}, indent=1))
        return
    console.print(Text(repr(job)), soft_wrap=True)
    description = job.describe()
    if stall := find_stall(job.chain):
        console.print(Text(f"  has stalled: {stall}"), soft_wrap=True)
    for status, begin, end in description.transitions:
        until = end if end or description.status.is_terminal else datetime.now(UTC)
        # This clock may be behind the service's.
        took = f"{max(0.0, (until - begin).total_seconds()):8.1f} s" if begin and until else ""
        took += " so far" if took and not end else ""
        console.print(Text(f"  {status:<28}{took}"))
    bill = job.cost()
    for label, text in [] if bill is None else lines(bill):
        console.print(Text(f"  {label:<8}{text}"), soft_wrap=True)


def _logs(arguments: Arguments, job: Job, console: Console) -> None:
    options: dict[str, Any] = {
        "follow": arguments.follow,
        "instance": arguments.instance,
        "tail": arguments.tail,
    }
    try:
        if not arguments.json:
            job.logs(metrics=arguments.metrics, **options)
            return
        for line in job.lines(**options):
            # Flushed, because a pipe is buffered in blocks.
            print(json.dumps(asdict(line)), flush=True)
    except KeyboardInterrupt:
        now = f"is {job.status}" if job.done() else "keeps running"
        raise Interrupted(f"interrupted; {job.name} {now}") from None


def _result(arguments: Arguments, job: Job, console: Console) -> None:
    check_timeout(arguments.timeout)
    # Before the wait, which may take hours.
    check_output(arguments.output)
    if not job.done():
        await_end(job, Console(stderr=True), 0.0 if arguments.no_wait else arguments.timeout)
    if arguments.what is not None:
        folder = job.download(arguments.what, arguments.output)
        print(json.dumps({"path": str(folder)}) if arguments.json else folder)
        return
    said_to = Console(stderr=True) if arguments.json else console
    result = brought(job, arguments.output, said_to, unverified=arguments.unverified)
    workload = job.tags.get(WORKLOAD_TAG, "")
    print_result(
        console, result, workload=workload, as_json=arguments.json, bill=job.cost(), job=job
    )


def _stop(arguments: Arguments, job: Job, console: Console) -> None:
    if job.cancel():
        say_aside(f"{job.name} is stopping")
    status = job.stop()
    if arguments.json:
        print(json.dumps(described(job), indent=1))
    else:
        console.print(Text(f"{job.name}: {status}"))


def _token(arguments: Arguments, job: Job, console: Console) -> None:
    token = token_of(job)
    print(json.dumps({"token": token}) if arguments.json else token)


def _debug(arguments: Arguments, job: Job, console: Console) -> None:
    features.view("switch_remote_debugging")(job.chain, enabled=not arguments.off)
    shell, dashboard = features.view("session_commands")(job.name)
    if arguments.json:
        enabled = {"shell": shell, "dashboard": dashboard}
        print(
            json.dumps(
                {"job": job.name, "remote_debug": not arguments.off}
                | ({} if arguments.off else enabled)
            )
        )
        return
    # The SSM agent first starts; it logs its errors to a log stream of its own.
    how = f"a shell, once the SSM agent has started:\n  {shell}\nRay's dashboard:\n  {dashboard}"
    say(f"{job.name}: {'remote debugging is off' if arguments.off else how}", console)
