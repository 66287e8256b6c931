"""The commands about jobs that there are: jobs, rm, status, logs, result, metrics, stop, token, debug."""

import json
from dataclasses import asdict

from rich.text import Text

from raysm.cli import about_tuning
from raysm.cli.arguments import Arguments
from raysm.cli.choosing import read_settings
from raysm.cli.console import Console
from raysm.cli.job_values import described
from raysm.cli.measured import print_metrics
from raysm.cli.reading import tell_ended
from raysm.cli.report import brought, print_result
from raysm.cli.submitting import check_output, check_timeout
from raysm.cli.waiting import await_end
from raysm.client.costs.bill import lines
from raysm.client.job.handle import Job, attach, token_of
from raysm.client.job.listing import find_all, find_running
from raysm.client.job.removal import check, descriptions, remove
from raysm.client.service import Service, connect
from raysm.client.tuning.handle import Tuning, attach_tuning
from raysm.client.tunnel.opening import session_commands, switch_remote_debugging
from raysm.contract.names import WORKLOAD_TAG
from raysm.errors import InvalidRequest, JobNotFound, ServiceError
from raysm.request import Target

__all__ = ["run"]

CHANGING = ("stop", "debug")
"""What does something to a job: of several that run under one name, none is taken by chance."""


def run(arguments: Arguments, console: Console, service: Service | None = None) -> None:
    """Do what ``arguments.command`` says, of ``service``; None is the one that the arguments name."""
    service = service or connect(_reading_target(arguments))
    if arguments.command == "jobs":
        # The table of experiments, half of what these commands import, is of no use to the others.
        from raysm.cli.job_table import print_jobs

        print_jobs(arguments, service, console)
        return
    if arguments.command == "rm":
        _remove(arguments, service, console)
        return
    try:
        job = attach(arguments.job, service)
    except JobNotFound:
        tuning = _tuning_named(arguments.job, service)
        if tuning is not None:
            about_tuning.run(arguments, tuning, console)
            return
        # Here alone: the other commands need not load the grids' modules.
        from raysm.grid.opening import grid_names

        if arguments.job in grid_names():
            raise InvalidRequest(
                f"{arguments.job} is a grid, which has a job for each row: raysm grid rows {arguments.job} lists them, "
                f"and raysm {arguments.command} takes the name of one"
            ) from None
        ended = tell_ended(arguments.job) if arguments.is_reading else None
        job = find_running(arguments.job, service, sole=arguments.command in CHANGING, ended=ended)
    of_one = {
        "status": _status,
        "logs": _logs,
        "result": _result,
        "metrics": print_metrics,
        "stop": _stop,
        "token": _token,
        "debug": _debug,
    }
    of_one[arguments.command](arguments, job, console)


def _tuning_named(name: str, service: Service) -> Tuning | None:
    try:
        return attach_tuning(name, service)
    except ServiceError:
        # There is none, or who reads jobs may not read tuning jobs: either way there is no job of this name.
        return None


def _reading_target(arguments: Arguments) -> Target:
    # Reading a job needs no role of its own: the caller's credentials do it.
    return read_settings(arguments).target(role="arn:aws:iam::000000000000:role/unused")


def _remove(arguments: Arguments, service: Service, console: Console) -> None:
    # A job that is named twice would not be there the second time.
    going = list(dict.fromkeys(job for name in arguments.jobs for job in find_all(name, service)))
    every = descriptions(service)
    for job in going:  # all of them are looked at before any is touched
        check(job, every)
    for job in going:
        remove(job, every)
        # State that these jobs alone shared goes with the last of them.
        every = [other for other in every if other.name != job.name]
    if arguments.json:
        print(json.dumps({"removed": [job.name for job in going]}, indent=1))
    else:
        console.print(Text("\n".join(f"removed {job.name}" for job in going)), soft_wrap=True)


def _status(arguments: Arguments, job: Job, console: Console) -> None:
    if arguments.json:
        print(json.dumps(described(job), indent=1))
        return
    console.print(Text(repr(job)), soft_wrap=True)
    for status, begin, end in job.describe().transitions:
        took = f"{(end - begin).total_seconds():8.1f} s" if begin and end else ""
        console.print(Text(f"  {status:<28}{took}"))
    bill = job.cost()
    for label, text in [] if bill is None else lines(bill):
        console.print(Text(f"  {label:<8}{text}"), soft_wrap=True)


def _logs(arguments: Arguments, job: Job, console: Console) -> None:
    if not arguments.json:
        job.logs(follow=arguments.follow, instance=arguments.instance, metrics=arguments.metrics, tail=arguments.tail)
        return
    for line in job.lines(follow=arguments.follow, instance=arguments.instance, tail=arguments.tail):
        # A pipe is written by the block: who follows a job would see its lines late.
        print(json.dumps(asdict(line)), flush=True)


def _result(arguments: Arguments, job: Job, console: Console) -> None:
    check_timeout(arguments.timeout)
    # Before the wait, which may be one of hours.
    if arguments.output is not None:
        check_output(arguments.output)
    if not job.done():
        await_end(job, Console(stderr=True), 0.0 if arguments.no_wait else arguments.timeout)
    result = brought(job, arguments.output, Console(stderr=True) if arguments.json else console)
    print_result(
        console,
        result,
        workload=job.tags.get(WORKLOAD_TAG, ""),
        as_json=arguments.json,
        bill=job.cost(),
    )


def _stop(arguments: Arguments, job: Job, console: Console) -> None:
    status = job.stop()
    if arguments.json:
        print(json.dumps(described(job), indent=1))
    else:
        console.print(Text(f"{job.name}: {status}"))


def _token(arguments: Arguments, job: Job, console: Console) -> None:
    token = token_of(job)
    print(json.dumps({"token": token}) if arguments.json else token)


def _debug(arguments: Arguments, job: Job, console: Console) -> None:
    switch_remote_debugging(job.chain, enabled=not arguments.off)
    shell, dashboard = session_commands(job.name)
    if arguments.json:
        enabled = {"shell": shell, "dashboard": dashboard}
        print(json.dumps({"job": job.name, "remote_debug": not arguments.off} | ({} if arguments.off else enabled)))
        return
    lines = [f"{job.name}: remote debugging is off"]
    if not arguments.off:
        # The agent has to start, and its errors stand in a log stream of its own.
        lines = [f"{job.name}: a shell, once its agent is up:", f"  {shell}", "Ray's dashboard:", f"  {dashboard}"]
    console.print(Text("\n".join(lines)), soft_wrap=True)
