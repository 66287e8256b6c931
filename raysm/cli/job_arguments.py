"""The arguments of the commands that send jobs, and of those about jobs and sessions that were sent."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.cli.options import (
    COMMON,
    SCRIPT,
    SIMILARITY,
    SWEEP,
    TRAIN,
    TUNE,
    Flag,
    add_change,
    add_entered,
    add_flags,
    add_reading,
    add_target,
)
from raysm.cli.parser import FILES_GROUP, add_command, seconds, titled

__all__ = ["add_config", "add_entering", "add_jobs", "add_sending", "add_sessions"]

# Strings, because every command imports this module, and the modules that send jobs import boto3.
SENDING = "raysm.cli.sending:run"
JOBS = "raysm.cli.jobs:run"
SESSIONS = "raysm.cli.sessions:run"
ENTERING = "raysm.cli.dashboard:run_entering"

KEPT = 3
"""The number of flags of the similarity that exclude each other: --top-k, --threshold and --full."""

SCRIPT_USAGE = "SCRIPT [options] [-- ARGUMENTS OF THE SCRIPT]"
SWEEP_USAGE = "SCRIPT --space NAME=RANGE --metric NAME --mode min|max [options] [-- OTHER ARGUMENTS]"

JOB = "name of a job, or the short name (digits) of a running job or session"
READ = "name of a job, or a short name (digits): the running job or session, or else the latest ended one"


@dataclass(frozen=True, slots=True)
class _Script:
    """A command that sends a job whose workload is a script of the user's."""

    text: str
    flags: tuple[Flag, ...]
    usage: str = SCRIPT_USAGE
    run: str = SENDING


SCRIPTS: Mapping[str, _Script] = {
    "run": _Script(
        "run a Python script on the head of the cluster; ray.init() in the script joins the cluster", SCRIPT
    ),
    "train": _Script(
        "run a script written for torchrun, unchanged, on all instances; rank 0's model is the result", TRAIN
    ),
    "sweep": _Script(
        "run many trials of a script on one cluster, each with different --NAME VALUE arguments, and keep the best",
        SWEEP,
        SWEEP_USAGE,
    ),
    "tune": _Script(
        "run a sweep as a SageMaker hyperparameter tuning job, with one training job for each trial",
        TUNE,
        SWEEP_USAGE,
        "raysm.cli.tuning:run",
    ),
}


def add_sending(commands: Any) -> None:
    """Add ``raysm similarity``, ``run``, ``train``, ``sweep``, ``tune`` and ``submit``."""
    _add_similarity(commands)
    for name, script in SCRIPTS.items():
        command = add_command(
            commands,
            name,
            script.text,
            run=script.run,
            is_scripted=True,
            sends_job=True,
            # argparse never sees the arguments after --.
            usage=f"raysm {name} {script.usage}",
        )
        # Optional, because a request file may name the script; ``_missing_script`` checks both.
        command.add_argument("script", metavar="SCRIPT", nargs="?", help="the script; inside --source-dir if given")
        command.set_defaults(lacks=_missing_script)
        add_flags(command, script.flags, name)
        if name == "tune":
            command.add_argument(
                "--parallel", type=int, default=1, metavar="N", help="maximum number of concurrent trials (default 1)"
            )
            command.add_argument(
                "--parent",
                action="append",
                default=[],
                metavar="NAME",
                help="an earlier tuning job whose trials the search learns from; repeatable, up to five",
            )
        _add_submitting(command)
    command = add_command(
        commands,
        "submit",
        "submit a job of any workload from a request file: --request job.json",
        run=SENDING,
        sends_job=True,
        # argparse would show --request as optional, as it is for the other commands.
        usage="raysm submit --request FILE [options]",
    )
    command.set_defaults(lacks=lambda arguments: None if arguments.request else _required("--request"))
    _add_submitting(command)


def _add_similarity(commands: Any) -> None:
    command = add_command(
        commands,
        "similarity",
        "compute the exact cosine similarity of every row of a matrix with every other row",
        run=SENDING,
        sends_job=True,
        usage="raysm similarity MATRIX (--top-k K | --threshold T | --full) [options]",
    )
    command.set_defaults(lacks=_missing_of_similarity)
    command.add_argument(
        "matrix",
        metavar="MATRIX",
        nargs="?",
        help=".npy, .npz, .csv, .csv.gz, .parquet, or a folder of them; a path or s3://…",
    )
    add_flags(command.add_mutually_exclusive_group(), SIMILARITY[:KEPT], "similarity")
    add_flags(command, SIMILARITY[KEPT:], "similarity")
    command.add_argument(
        "--sharded",
        action="store_true",
        help="give each instance only its share of MATRIX's files (ShardedByS3Key); for the files of the queries: "
        "--set inputs.queries.distribution=ShardedByS3Key",
    )
    command.add_argument(
        "--estimate",
        action="store_const",
        dest="run",
        # A separate module, because it loads the engines of the similarity.
        const="raysm.cli.estimating:run",
        help="measure a few tiles here, print the expected time and cost, and send nothing",
    )
    command.add_argument(
        "--price-per-hour",
        type=float,
        metavar="USD",
        help="hourly price of one instance for --estimate (default: from the price table)",
    )
    _add_submitting(command)


def _missing_of_similarity(arguments: argparse.Namespace) -> str | None:
    # A request file is checked when it is read, together with the flags.
    if arguments.request is not None:
        return None
    if arguments.matrix is None:
        return _required("MATRIX")
    if all(getattr(arguments, flag.dest) is None for flag in SIMILARITY[:KEPT]):
        return f"one of the arguments {' '.join(flag.name for flag in SIMILARITY[:KEPT])} is required"
    return None


def _missing_script(arguments: argparse.Namespace) -> str | None:
    if arguments.request is not None:
        return None
    if arguments.script is None:
        return _required("SCRIPT")
    if arguments.command in ("sweep", "tune") and None in (arguments.space, arguments.metric, arguments.mode):
        return "a sweep needs --space NAME=RANGE, --metric NAME and --mode min or --mode max"
    return None


def _required(name: str) -> str:
    return f"the following arguments are required: {name}"


def _add_submitting(command: argparse.ArgumentParser) -> None:
    add_flags(command, COMMON)
    command.add_argument("--output", type=Path, metavar="DIR", help="copy the result to this folder")
    command.add_argument("--detach", action="store_true", help="print the job's name and return at once")
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="print the exact API call and send nothing; with --json, print the request, for --request",
    )
    command.add_argument("--json", action="store_true", help="print the result as JSON (with --detach: the job)")
    _add_request(command)
    add_target(command)


def _add_request(command: argparse.ArgumentParser) -> None:
    titled(command, FILES_GROUP).add_argument(
        "--request",
        type=Path,
        metavar="FILE",
        help="read the whole request from a .json or .toml file; flags override it",
    )
    add_change(command)


def add_config(commands: Any) -> None:
    """Add ``raysm config``."""
    command = add_command(
        commands,
        "config",
        "show the options that apply in this folder, and where each was set",
        run="raysm.cli.config:run",
    )
    add_flags(command, COMMON)
    _add_request(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    add_target(command)


def add_jobs(commands: Any) -> None:
    """Add ``raysm jobs``, ``rm``, and the commands about one job."""
    jobs = add_command(commands, "jobs", "list the latest jobs", run=JOBS)
    jobs.add_argument("--contains", metavar="TEXT", help="only jobs with this text in their names")
    jobs.add_argument("--limit", type=int, default=20, metavar="N", help="maximum number of jobs (default 20)")
    jobs.add_argument("--project", help="only jobs of this project")
    jobs.add_argument("--task", metavar="NAME", help="only runs of this task")
    jobs.add_argument("--status", metavar="STATUS", help="only jobs with this status: Completed, or Failed,Stopped")
    jobs.add_argument(
        "--since", metavar="TIME", help="only jobs submitted since a date or within an age: 2026-11-01, 7d, 12h"
    )
    jobs.add_argument(
        "--grid", metavar="NAME", help="only the jobs of this grid, the latest of each row, in all regions"
    )
    jobs.add_argument("--trials", action="store_true", help="list the trials of each sweep below it")
    jobs.add_argument(
        "--params",
        metavar="NAMES",
        nargs="?",
        const="*",
        help="show these parameters as columns: lr,batch; without names, those that differ between jobs",
    )
    jobs.add_argument(
        "--metrics",
        metavar="NAMES",
        nargs="?",
        const="*",
        help="show these metrics as columns: loss (its last value), loss:min, loss:max, loss:best; without names, all",
    )
    # The help shows the equals sign, because argparse would take -auc for an option.
    jobs.add_argument(
        "--sort", metavar="COLUMN", help="sort by lr, loss, cost_usd …; --sort=-auc puts the highest first"
    )
    add_reading(jobs)
    ui = add_command(
        commands,
        "ui",
        "compare all jobs, trials and grid rows in the browser, with MLflow's pages",
        run="raysm.cli.dashboard:run_ui",
    )
    ui.add_argument("--limit", type=int, default=1000, metavar="N", help="maximum number of jobs (default 1000)")
    _add_dashboard(ui)
    add_reading(ui)
    remove = add_command(
        commands, "rm", "remove ended jobs of this machine, with their records, logs, results and checkpoints", run=JOBS
    )
    remove.add_argument("jobs", metavar="JOB", nargs="+", help="name of a job, or a pattern: 'digits-*'")
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
    command.add_argument("-f", "--follow", action="store_true", help="continue until the job has ended")
    command.add_argument("--instance", metavar="HOST", help="only lines of this instance, for example algo-2")
    command.add_argument("--tail", type=int, metavar="N", help="only the last N lines; with -f, new lines follow")
    command.add_argument("--metrics", action="store_true", help="also show the latest metrics every few seconds")


def _add_result(command: argparse.ArgumentParser) -> None:
    # Both say how long to wait: --no-wait is a timeout of 0.
    waiting = command.add_mutually_exclusive_group()
    waiting.add_argument("--no-wait", action="store_true", help="exit with 1 at once if the job still runs")
    waiting.add_argument("--timeout", type=seconds, metavar="TIME", help="wait at most this long for its end: 90s, 2h")
    command.add_argument("--output", type=Path, metavar="DIR", help="copy the result to this folder")


def _add_metrics(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME",
        help="only metrics with this name, or matching a pattern such as val/*; repeatable",
    )
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--telemetry", action="store_true", help="show the metrics of the instances: memory, CPU, network …"
    )
    which.add_argument("--all", action="store_true", help="show the metrics of the job and of its instances")


def _add_dashboard(command: argparse.ArgumentParser) -> None:
    command.add_argument("--no-open", action="store_true", help="print the address without opening a browser")


def _add_debug(command: argparse.ArgumentParser) -> None:
    command.add_argument("--off", action="store_true", help="disallow SSM sessions again")


@dataclass(frozen=True, slots=True)
class _OfOneJob:
    """A command about one job."""

    text: str
    add_own: Callable[[argparse.ArgumentParser], None] = _add_nothing
    run: str = JOBS
    is_reading: bool = True
    """True if it changes nothing: then a short name also finds a job that has ended."""


OF_ONE_JOB: Mapping[str, _OfOneJob] = {
    "status": _OfOneJob("show the state, times and cost of a job"),
    "logs": _OfOneJob("show the output of a job's instances", _add_logs),
    "result": _OfOneJob("fetch a job's result", _add_result),
    "metrics": _OfOneJob("show the metrics of a job, or the utilization of its instances", _add_metrics),
    "dashboard": _OfOneJob(
        "open Ray's dashboard of a running job in the browser",
        _add_dashboard,
        run="raysm.cli.dashboard:run",
    ),
    "stop": _OfOneJob("stop a job, after giving it time to save its work", is_reading=False),
    "token": _OfOneJob("print the token that a job's Ray cluster asks for", is_reading=False),
    "debug": _OfOneJob("allow SSM sessions into the instances of a job that runs on AWS", _add_debug, is_reading=False),
}


def add_entering(commands: Any) -> None:
    """Add ``raysm tunnel`` and ``raysm shell``."""
    tunnel = add_command(
        commands, "tunnel", "forward a port of this machine to a port of an instance while the job runs", run=ENTERING
    )
    tunnel.add_argument("job", metavar="JOB", help=JOB)
    tunnel.add_argument("port", metavar="PORT", type=int, help="port on the instance's loopback, for example 8265")
    tunnel.add_argument(
        "--local", type=int, default=0, metavar="PORT", help="port of this machine (default: any free one)"
    )
    tunnel.add_argument("--json", action="store_true", help="print JSON")
    add_entered(tunnel)
    shell = add_command(
        commands,
        "shell",
        "open a shell in an instance, or run a command there and return its exit code",
        run=ENTERING,
        is_scripted=True,
        usage="raysm shell JOB [options] [-- COMMAND]",
    )
    shell.add_argument("job", metavar="JOB", help=JOB)
    add_entered(shell)


def add_sessions(commands: Any) -> None:
    """Add ``raysm session`` and ``raysm exec``."""
    session = add_command(
        commands, "session", "use a cluster that stays up and answers calls within milliseconds", run=SESSIONS
    )
    verbs = session.add_subparsers(dest="verb", required=True, metavar="start|list|attach|keep|close")
    for name, text in (
        ("start", "start a session, which keeps running after this command ends"),
        ("list", "list the running sessions and their jobs"),
        ("attach", "show a session's state and open its Python prompt"),
        ("keep", "postpone the idle timeout of a session"),
        ("close", "end a session and its job"),
    ):
        verb = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        if name == "start":
            _add_session_start(verb)
            continue
        if name != "list":
            verb.add_argument("name", metavar="NAME", help="name of the session or of its job")
        if name == "keep":
            verb.add_argument("time", type=seconds, metavar="TIME", help="how long from now: 60m, 2h")
        add_reading(verb)
    command = add_command(
        commands,
        "exec",
        "run a file in a session's namespace",
        run=SESSIONS,
        is_scripted=True,
        usage="raysm exec NAME FILE [options] [-- ARGUMENTS OF THE FILE]",
    )
    command.add_argument("name", metavar="NAME", help="name of the session")
    # The client reads the file and sends its text; the session does not need the file.
    command.add_argument("file", metavar="FILE", help="Python file on this machine")
    add_target(command)


def _add_session_start(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--idle", type=seconds, metavar="TIME", help="end the session after this long without a call (default 30m)"
    )
    command.add_argument(
        "--idle-detached", type=seconds, metavar="TIME", help="the same while no client is attached (default 5m)"
    )
    command.add_argument("--budget", type=float, metavar="USD", help="end the session once it has cost this much")
    command.add_argument(
        "--price-per-hour",
        type=float,
        metavar="USD",
        help="hourly price of one instance (default: from the price table)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_flags(command, COMMON)
    add_change(command)
    add_target(command)
