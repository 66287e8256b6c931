"""The arguments of the commands about jobs that were sent: what they did and left, and the ways into them."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.cli.argument_groups import add_entered, add_reading
from raysm.cli.parser import add_command, seconds

__all__ = ["add_about_jobs", "add_entering"]

ABOUT_JOBS = "raysm.cli.about_jobs:run"
ENTERING = "raysm.cli.entering:run"

JOB = "the job's name, or the short one of a session or job that runs"
READ = "the job's name, or the short one: of the session or job that runs, else of the one that ended last"


def add_about_jobs(commands: Any) -> None:
    """Add ``raysm jobs``, and what is asked of one job."""
    jobs = add_command(commands, "jobs", "the latest jobs", run=ABOUT_JOBS)
    jobs.add_argument("--contains", metavar="TEXT", help="only those with this in their names")
    # A screen of them.
    jobs.add_argument("--limit", type=int, default=20, help="at most so many (default 20)")
    jobs.add_argument("--project", help="only those of this project")
    jobs.add_argument("--task", metavar="NAME", help="only runs of this task")
    jobs.add_argument("--status", metavar="STATUS", help="only those that are so: Completed, or Failed,Stopped")
    jobs.add_argument("--since", metavar="TIME", help="only those that were sent since: 2026-11-01, 7d, 12h")
    jobs.add_argument("--grid", metavar="NAME", help="only those of this grid, a row each, in whichever region")
    jobs.add_argument("--trials", action="store_true", help="behind each sweep its trials, as rows of their own")
    jobs.add_argument(
        "--params",
        metavar="NAMES",
        nargs="?",
        const="*",
        help="columns: what they were called with, lr,batch; without names those in which the jobs differ",
    )
    jobs.add_argument(
        "--metrics",
        metavar="NAMES",
        nargs="?",
        const="*",
        help="columns: last values, loss, or loss:min, loss:max, loss:best; without names all",
    )
    # With the equals sign: argparse would take -auc for an option.
    jobs.add_argument("--sort", metavar="COLUMN", help="by lr, loss, cost_usd …; --sort=-auc: the highest first")
    add_reading(jobs)
    remove = add_command(
        commands, "rm", "remove ended jobs of this machine: records, logs, results, checkpoints", run=ABOUT_JOBS
    )
    remove.add_argument("jobs", metavar="JOB", nargs="+", help="a job's name, or a pattern: 'digits-*'")
    add_reading(remove)
    for name, one in OF_ONE_JOB.items():
        command = add_command(commands, name, one.text, run=one.run)
        command.set_defaults(is_reading=one.is_reading)
        command.add_argument("job", metavar="JOB", help=READ if one.is_reading else JOB)
        one.add_own(command)
        add_reading(command)


def _add_nothing(command: argparse.ArgumentParser) -> None:
    pass


def _add_logs(command: argparse.ArgumentParser) -> None:
    command.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    command.add_argument("--instance", metavar="HOST", help="of one instance, algo-2")
    command.add_argument("--tail", type=int, metavar="N", help="only the last N lines; with -f also those that come")
    command.add_argument("--metrics", action="store_true", help="the latest values too, every few seconds")


def _add_result(command: argparse.ArgumentParser) -> None:
    # Both say how long: --no-wait is a timeout of 0.
    waiting = command.add_mutually_exclusive_group()
    waiting.add_argument("--no-wait", action="store_true", help="end with 1 at once where the job still runs")
    waiting.add_argument("--timeout", type=seconds, metavar="TIME", help="wait at most so long for its end: 90s, 2h")
    command.add_argument("--output", type=Path, metavar="DIR", help="where to (default: where it lies)")


def _add_metrics(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--name", action="append", default=[], metavar="NAME", help="of this name, or like val/*; repeatable"
    )
    which = command.add_mutually_exclusive_group()
    which.add_argument("--telemetry", action="store_true", help="of the instances: memory, CPU, network …")
    which.add_argument("--all", action="store_true", help="of the job and of its instances")


def _add_dashboard(command: argparse.ArgumentParser) -> None:
    command.add_argument("--no-open", action="store_true", help="print its address, and open no browser")


def _add_debug(command: argparse.ArgumentParser) -> None:
    command.add_argument("--off", action="store_true", help="switch it off")


@dataclass(frozen=True, slots=True)
class _OfOneJob:
    """A command that is asked of one job."""

    text: str
    """What it does."""
    add_own: Callable[[argparse.ArgumentParser], None] = _add_nothing
    """Adds the arguments that it alone has."""
    run: str = ABOUT_JOBS
    """What carries it out."""
    is_reading: bool = True
    """Whether it only looks, and takes a job that has ended by its short name, too."""


OF_ONE_JOB: Mapping[str, _OfOneJob] = {
    "status": _OfOneJob("how a job is: its state, its times, and what it has cost"),
    "logs": _OfOneJob("what a job's instances wrote", _add_logs),
    "result": _OfOneJob("a job's result, brought here", _add_result),
    "metrics": _OfOneJob("a job's metrics, and how busy its instances were", _add_metrics),
    "dashboard": _OfOneJob(
        "Ray's dashboard of a job that runs, in the browser",
        _add_dashboard,
        run="raysm.cli.dashboard:run",
    ),
    "stop": _OfOneJob("stop a job, after giving it time to save its work", is_reading=False),
    "token": _OfOneJob("a job's token, which Ray asks for", is_reading=False),
    "debug": _OfOneJob(
        "allow SSM sessions into the instances of a job that runs on AWS",
        _add_debug,
        is_reading=False,
    ),
}


def add_entering(commands: Any) -> None:
    """Add ``raysm tunnel`` and ``raysm shell``."""
    tunnel = add_command(
        commands, "tunnel", "a port of this machine that leads to one of an instance, while its job runs", run=ENTERING
    )
    tunnel.add_argument("job", metavar="JOB", help=JOB)
    # Which ports there can be is said by whoever opens the way, for Python's users too.
    tunnel.add_argument("port", metavar="PORT", type=int, help="on the instance's loopback, 8265")
    tunnel.add_argument("--local", type=int, default=0, metavar="PORT", help="of this machine (default: any free one)")
    tunnel.add_argument("--json", action="store_true", help="as JSON")
    add_entered(tunnel)
    shell = add_command(
        commands,
        "shell",
        "a shell in an instance, or a command; its exit code becomes this one's",
        run=ENTERING,
        is_scripted=True,
        usage="raysm shell JOB [options] [-- COMMAND]",
    )
    shell.add_argument("job", metavar="JOB", help=JOB)
    add_entered(shell)
