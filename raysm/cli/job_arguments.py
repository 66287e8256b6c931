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

# Text: every command reads this module, and what sends a job loads boto3's models.
SENDING = "raysm.cli.sending:run"
JOBS = "raysm.cli.jobs:run"
SESSIONS = "raysm.cli.sessions:run"
ENTERING = "raysm.cli.dashboard:run_entering"

KEPT = 3
"""The first flags of the similarity: exactly one of them says what is kept."""

SCRIPT_USAGE = "SCRIPT [options] [-- ARGUMENTS OF THE SCRIPT]"
SWEEP_USAGE = "SCRIPT --space NAME=RANGE --metric NAME --mode min|max [options] [-- OTHER ARGUMENTS]"

JOB = "name of a job, or the short name of a running job or session"
READ = "name of a job, or a short name: of the running job or session, else of the latest one that ended"


@dataclass(frozen=True, slots=True)
class _Script:
    """A command that sends a job whose workload is a script of the user's."""

    text: str
    flags: tuple[Flag, ...]
    usage: str = SCRIPT_USAGE
    run: str = SENDING


SCRIPTS: Mapping[str, _Script] = {
    "run": _Script("run a Python script on the head of the formed cluster, which ray.init() joins", SCRIPT),
    "train": _Script(
        "run a script written for torchrun, unchanged, on all instances; rank 0's model is the result", TRAIN
    ),
    "sweep": _Script(
        "run many trials of a script on one cluster, each with other parameters as --NAME VALUE; keep the best",
        SWEEP,
        SWEEP_USAGE,
    ),
    "tune": _Script(
        "run a sweep as a hyperparameter tuning job: the service starts a training job for each trial",
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
            # argparse never sees what stands behind --.
            usage=f"raysm {name} {script.usage}",
        )
        # Not required: a request's file may name it. ``_missing_script`` looks at both.
        command.add_argument("script", metavar="SCRIPT", nargs="?", help="the script; inside --source-dir if given")
        command.set_defaults(lacks=_missing_script)
        add_flags(command, script.flags, name)
        if name == "tune":
            command.add_argument(
                "--parallel", type=int, default=1, metavar="N", help="trials at a time, at most (default 1)"
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
        "send the job of a request file, whatever its workload: --request job.json",
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
        # Another module: it loads the engines of the similarity.
        const="raysm.cli.estimating:run",
        help="measure a few tiles here, print time and money, and send nothing",
    )
    command.add_argument(
        "--price-per-hour",
        type=float,
        metavar="USD",
        help="price of one instance for --estimate (default: a dated table of a few regions)",
    )
    _add_submitting(command)


def _missing_of_similarity(arguments: argparse.Namespace) -> str | None:
    # What a request lacks is reported when it is read: a flag may also name it.
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
        "--request", type=Path, metavar="FILE", help="a whole request, .json or .toml; flags override it"
    )
    add_change(command)


def add_config(commands: Any) -> None:
    """Add ``raysm config``."""
    command = add_command(
        commands, "config", "show the options that apply here, and where each comes from", run="raysm.cli.config:run"
    )
    add_flags(command, COMMON)
    _add_request(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    add_target(command)


def add_jobs(commands: Any) -> None:
    """Add ``raysm jobs``, ``rm``, and the commands about one job."""
    jobs = add_command(commands, "jobs", "list the latest jobs", run=JOBS)
    jobs.add_argument("--contains", metavar="TEXT", help="only jobs with this text in their names")
    jobs.add_argument("--limit", type=int, default=20, help="at most so many (default 20)")
    jobs.add_argument("--project", help="only jobs of this project")
    jobs.add_argument("--task", metavar="NAME", help="only runs of this task")
    jobs.add_argument("--status", metavar="STATUS", help="only jobs with this status: Completed, or Failed,Stopped")
    jobs.add_argument("--since", metavar="TIME", help="only jobs that were sent since then: 2026-11-01, 7d, 12h")
    jobs.add_argument("--grid", metavar="NAME", help="only the jobs of this grid, one per row, in all its regions")
    jobs.add_argument("--trials", action="store_true", help="list the trials of each sweep below it")
    jobs.add_argument(
        "--params",
        metavar="NAMES",
        nargs="?",
        const="*",
        help="columns with parameters: lr,batch; without names those in which the jobs differ",
    )
    jobs.add_argument(
        "--metrics",
        metavar="NAMES",
        nargs="?",
        const="*",
        help="columns with last values of metrics: loss, or loss:min, loss:max, loss:best; without names all",
    )
    # With the equals sign: argparse would take -auc for an option.
    jobs.add_argument("--sort", metavar="COLUMN", help="sort by lr, loss, cost_usd …; --sort=-auc: highest first")
    add_reading(jobs)
    ui = add_command(
        commands,
        "ui",
        "compare all jobs, trials and rows of grids in the browser, in MLflow's pages",
        run="raysm.cli.dashboard:run_ui",
    )
    ui.add_argument("--limit", type=int, default=1000, metavar="N", help="at most so many jobs (default 1000)")
    _add_dashboard(ui)
    add_reading(ui)
    remove = add_command(
        commands, "rm", "remove ended jobs of this machine: records, logs, results, checkpoints", run=JOBS
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
    command.add_argument("--instance", metavar="HOST", help="only of this instance, algo-2")
    command.add_argument("--tail", type=int, metavar="N", help="only the last N lines; with -f also new ones")
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
        help="only metrics with this name, or matching a pattern, val/*; repeatable",
    )
    which = command.add_mutually_exclusive_group()
    which.add_argument("--telemetry", action="store_true", help="metrics of the instances: memory, CPU, network …")
    which.add_argument("--all", action="store_true", help="metrics of the job and of its instances")


def _add_dashboard(command: argparse.ArgumentParser) -> None:
    command.add_argument("--no-open", action="store_true", help="print the address, and open no browser")


def _add_debug(command: argparse.ArgumentParser) -> None:
    command.add_argument("--off", action="store_true", help="switch it off")


@dataclass(frozen=True, slots=True)
class _OfOneJob:
    """A command about one job."""

    text: str
    add_own: Callable[[argparse.ArgumentParser], None] = _add_nothing
    run: str = JOBS
    is_reading: bool = True
    """Whether it only reads: then a short name also finds a job that has ended."""


OF_ONE_JOB: Mapping[str, _OfOneJob] = {
    "status": _OfOneJob("show a job's state, its times, and what it has cost"),
    "logs": _OfOneJob("show what a job's instances wrote", _add_logs),
    "result": _OfOneJob("fetch a job's result", _add_result),
    "metrics": _OfOneJob("show a job's metrics, and how busy its instances were", _add_metrics),
    "dashboard": _OfOneJob(
        "open Ray's dashboard of a running job in the browser",
        _add_dashboard,
        run="raysm.cli.dashboard:run",
    ),
    "stop": _OfOneJob("stop a job, after giving it time to save its work", is_reading=False),
    "token": _OfOneJob("print a job's token, which Ray asks for", is_reading=False),
    "debug": _OfOneJob("allow SSM sessions into the instances of a job that runs on AWS", _add_debug, is_reading=False),
}


def add_entering(commands: Any) -> None:
    """Add ``raysm tunnel`` and ``raysm shell``."""
    tunnel = add_command(
        commands, "tunnel", "forward a port of this machine to one of an instance, while its job runs", run=ENTERING
    )
    tunnel.add_argument("job", metavar="JOB", help=JOB)
    tunnel.add_argument("port", metavar="PORT", type=int, help="port on the instance's loopback, 8265")
    tunnel.add_argument(
        "--local", type=int, default=0, metavar="PORT", help="port of this machine (default: any free one)"
    )
    tunnel.add_argument("--json", action="store_true", help="print JSON")
    add_entered(tunnel)
    shell = add_command(
        commands,
        "shell",
        "open a shell in an instance, or run a command there; its exit code becomes this command's",
        run=ENTERING,
        is_scripted=True,
        usage="raysm shell JOB [options] [-- COMMAND]",
    )
    shell.add_argument("job", metavar="JOB", help=JOB)
    add_entered(shell)


def add_sessions(commands: Any) -> None:
    """Add ``raysm session`` and ``raysm exec``."""
    session = add_command(commands, "session", "keep a cluster that takes calls in milliseconds", run=SESSIONS)
    verbs = session.add_subparsers(dest="verb", required=True, metavar="start|list|attach|keep|close")
    for name, text in (
        ("start", "start a session, which keeps running after the command has ended"),
        ("list", "list the running sessions with their jobs"),
        ("attach", "show a session's state, and open its Python prompt"),
        ("keep", "postpone the idle timeout of a session"),
        ("close", "end a session, and its job"),
    ):
        verb = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        if name == "start":
            _add_session_start(verb)
            continue
        if name != "list":
            verb.add_argument("name", metavar="NAME", help="name of the session, or of its job")
        if name == "keep":
            verb.add_argument("time", type=seconds, metavar="TIME", help="for how long: 60m, 2h")
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
    # Read here, and sent as text: the session need not have the file.
    command.add_argument("file", metavar="FILE", help="Python source")
    add_target(command)


def _add_session_start(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--idle", type=seconds, metavar="TIME", help="end after this long without a call (default 30m)"
    )
    command.add_argument(
        "--idle-detached", type=seconds, metavar="TIME", help="the same while no client is attached (default 5m)"
    )
    command.add_argument("--budget", type=float, metavar="USD", help="end once it has cost this much")
    command.add_argument(
        "--price-per-hour",
        type=float,
        metavar="USD",
        help="price of one instance (default: a dated table of a few regions)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    add_flags(command, COMMON)
    add_change(command)
    add_target(command)
