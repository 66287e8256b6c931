"""The arguments of the commands that send jobs, and of those about jobs and sessions that were sent."""

import argparse
from collections.abc import Mapping
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
from raysm.cli.parser import Group, add, add_command, seconds, seconds_with_unit, titled

# Strings, because every command imports this module, and the modules that send jobs import boto3.
SENDING = "raysm.cli.sending:run"
JOBS = "raysm.cli.jobs:run"
SESSIONS = "raysm.features.session.command:run"
ENTERING = "raysm.features.dashboard.command:run_entering"

KEPT = 3
"""The number of flags of the similarity that exclude each other: --top-k, --threshold and --full."""

SCRIPT_USAGE = "[SCRIPT] [options] [-- ARGUMENTS OF THE SCRIPT, OR A COMMAND]"
SWEEP_USAGE = "[SCRIPT] --space NAME=RANGE --metric NAME --mode min|max [options] [-- OTHER ARGUMENTS, OR A COMMAND]"

JOB = "name of a job, or the short name (train) of a running job or session"
READ = "name of a job, or a short name (train): the running job or session, or else the latest ended one"
NO_OPEN = "print the address without opening a browser"

# By command: what it does, its flags, and its usage.
SCRIPTS: Mapping[str, tuple[str, tuple[Flag, ...], str]] = {
    "run": (
        "run a script or a command on the head of the cluster; ray.init() in a Python script joins the cluster",
        SCRIPT,
        SCRIPT_USAGE,
    ),
    "train": (
        "run a script written for torchrun, or a command, unchanged, on all instances; rank 0's model is the result",
        TRAIN,
        SCRIPT_USAGE,
    ),
    "sweep": (
        "run many trials of a script or a command on one cluster, each with different --NAME=VALUE arguments (an _ in "
        "NAME becomes a -), and keep the best",
        SWEEP,
        SWEEP_USAGE,
    ),
    "tune": (
        "run a sweep as a SageMaker hyperparameter tuning job, with one training job for each trial",
        TUNE,
        SWEEP_USAGE,
    ),
}


def add_sending(commands: Any) -> None:
    _add_similarity(commands)
    for name, (text, flags, usage) in SCRIPTS.items():
        command = add_command(
            commands,
            name,
            text,
            run="raysm.features.sweep.tuning_command:run" if name == "tune" else SENDING,
            is_scripted=True,
            sends_job=True,
            # argparse never sees the arguments after --.
            usage=f"raysm {name} {usage}",
        )
        # Optional, because a request file may name the script; ``_missing_script`` checks both.
        add(command, "SCRIPT", "the script; inside --source-dir if given; without it, a command follows --", nargs="?")
        command.set_defaults(lacks=_missing_script)
        add_flags(command, flags, name)
        if name == "tune":
            add(command, "--parallel N", "maximum number of concurrent trials (default 1)", type=int, default=1)
            text = "an earlier tuning job whose trials the search learns from; repeatable, up to five"
            add(command, "--parent NAME", text, action="append", default=[])
        _add_submitting(command)
    text = "submit a job of any workload from a request file: --request job.json"
    # argparse would show --request as optional, as it is for the other commands.
    usage = "raysm submit --request FILE [options]"
    command = add_command(commands, "submit", text, run=SENDING, sends_job=True, usage=usage)
    command.set_defaults(lacks=lambda arguments: None if arguments.request else _required("--request"))
    _add_submitting(command)


def _add_similarity(commands: Any) -> None:
    text = "compute the exact cosine similarity of every row of a matrix with every other row"
    usage = "raysm similarity MATRIX (--top-k K | --threshold T | --full) [options]"
    command = add_command(commands, "similarity", text, run=SENDING, sends_job=True, usage=usage)
    command.set_defaults(lacks=_missing_of_similarity)
    add(command, "MATRIX", ".npy, .npz, .csv(.gz), .parquet, or a folder; a path, s3://… or job:NAME/model", nargs="?")
    # The workload refuses several of --top-k, --threshold and --full, and says what to do instead.
    add_flags(command, SIMILARITY, "similarity")
    text = (
        "give each instance only its share of MATRIX's files (ShardedByS3Key); for the files of the queries: "
        "--set inputs.queries.distribution=ShardedByS3Key"
    )
    add(command, "--sharded", text)
    text = "measure a few tiles here, print the expected time and cost, and send nothing"
    # A separate module, because it loads the engines of the similarity.
    add(
        command,
        "--estimate",
        text,
        action="store_const",
        dest="run",
        const="raysm.features.similarity.estimate_command:run",
    )
    text = "hourly price of one instance for --estimate (default: from the price table)"
    add(command, "--price-per-hour USD", text, type=float)
    _add_submitting(command)


def _missing_of_similarity(arguments: argparse.Namespace) -> str | None:
    if arguments.price_per_hour is not None and arguments.run == SENDING:
        return "--price-per-hour is the price for --estimate; add it, or drop the price"
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
    if arguments.script is None and not arguments.script_args:
        return _required("SCRIPT")
    if arguments.command in ("sweep", "tune"):
        needed = {"space": "--space NAME=RANGE", "metric": "--metric NAME", "mode": "--mode min or --mode max"}
        missing = [text for name, text in needed.items() if getattr(arguments, name) is None]
        return f"a sweep needs {', '.join(missing)}" if missing else None
    return None


def _required(name: str) -> str:
    return f"the following arguments are required: {name}"


def _add_submitting(command: argparse.ArgumentParser) -> None:
    add_flags(command, COMMON)
    add(command, "--output DIR", "copy the result to this folder", type=Path)
    add(command, "--detach", "print the job's name and return at once")
    text = "send nothing and print the API call; with --json, the request that --request reads"
    add(command, "--dry-run", text)
    add(command, "--json", "print the result as JSON (with --detach: the job)")
    _add_request(command)
    add_target(command)


def _add_request(command: argparse.ArgumentParser) -> None:
    text = "read the whole request from a .json or .toml file; flags override it"
    add(titled(command, Group.FILES), "--request FILE", text, type=Path)
    add_change(command)


def add_config(commands: Any) -> None:
    text = "show the options that apply in this folder, and where each was set"
    command = add_command(commands, "config", text, run="raysm.cli.config:run")
    add_flags(command, COMMON)
    _add_request(command)
    add_reading(command)


def add_jobs(commands: Any) -> None:
    jobs = add_command(commands, "jobs", "list the latest jobs", run=JOBS)
    add(jobs, "--contains TEXT", "only jobs with this text in their names")
    add(jobs, "--limit N", "maximum number of jobs (default 20)", type=int, default=20)
    add(jobs, "--project PROJECT", "only jobs of this project")
    add(jobs, "--task NAME", "only runs of this task")
    add(jobs, "--status STATUS", "only jobs with this status: Completed, or Failed,Stopped")
    add(jobs, "--since TIME", "only jobs submitted since a date or within an age: 2026-11-01, 7d, 12h, 1w")
    add(jobs, "--grid NAME", "only the jobs of this grid, the latest of each row, in all regions")
    add(jobs, "--trials", "below each sweep list its trials, below each session its calls that report metrics")
    text = "show these parameters as columns: lr,batch; without names, those that differ between jobs"
    add(jobs, "--params NAMES", text, nargs="?", const="*")
    text = "show these metrics as columns: loss (its last value), loss:min, loss:max; without names, all"
    add(jobs, "--metrics NAMES", text, nargs="?", const="*")
    # The help shows the equals sign, because argparse would take -auc for an option.
    add(jobs, "--sort COLUMN", "sort by lr, loss, cost_usd …; --sort=-auc puts the highest first")
    add_reading(jobs)
    text = "compare all jobs, trials, sessions' calls and grid rows in the browser, with MLflow's pages"
    ui = add_command(commands, "ui", text, run="raysm.features.experiments.ui_command:run")
    add(ui, "--limit N", "maximum number of jobs (default 1000)", type=int, default=1000)
    add(ui, "--no-open", NO_OPEN)
    add_reading(ui)
    text = "remove ended jobs of this machine (AWS keeps its own), with their records, logs, results and checkpoints"
    remove = add_command(commands, "rm", text, run=JOBS)
    add(remove, "JOB", "name of a job, or a pattern: 'digits-*'", nargs="+")
    add_reading(remove)
    _add_reading_one_job(commands)
    for name, text in (
        ("stop", "stop a job, after giving it time to save its work"),
        ("token", "print the token that a job's Ray cluster asks programs for"),
        ("debug", "allow SSM sessions into the instances of a job that runs on AWS"),
    ):
        command = add_command(commands, name, text, run=JOBS)
        command.set_defaults(is_reading=False)
        add(command, "JOB", JOB)
        if name == "debug":
            add(command, "--off", "disallow SSM sessions again")
        add_reading(command)


def _add_reading_one_job(commands: Any) -> None:
    def command(name: str, text: str, run: str = JOBS, job: str = READ) -> argparse.ArgumentParser:
        parser = add_command(commands, name, text, run=run)
        # A short name also finds a job that has ended.
        parser.set_defaults(is_reading=True)
        add(parser, "JOB", job)
        add_reading(parser)
        return parser

    command("status", "show the state, times and cost of a job")
    logs = command("logs", "show the output of a job's instances")
    add(logs, "-f --follow", "continue until the job has ended")
    add(logs, "--instance HOST", "only lines of this instance, for example algo-2")
    add(logs, "--tail N", "only the last N lines; with -f, new lines follow", type=int)
    add(logs, "--metrics", "also show the latest metrics every few seconds")
    result = command("result", "fetch a job's result")
    # Both say how long to wait: --no-wait is a timeout of 0.
    waiting = result.add_mutually_exclusive_group()
    add(waiting, "--no-wait", "exit with 1 at once if the job still runs")
    add(waiting, "--timeout TIME", "wait at most this long for its end: 90s, 30m, 2h, or seconds", type=seconds)
    add(result, "--output DIR", "copy the result to this folder", type=Path)
    text = (
        "copy this to --output, also of a job that failed: the result, $SM_OUTPUT_DATA_DIR, $RAYSM_STATE, or the logs"
    )
    add(result, "--what model|data|state|logs", text, choices=["model", "data", "state", "logs"])
    text = "unpickle a function's value even if the job's log has no digest of it"
    add(result, "--unverified", text)
    lacking = "--what needs --output DIR, an empty folder"
    result.set_defaults(lacks=lambda asked: lacking if asked.what and asked.output is None else None)
    metrics = command("metrics", "show the metrics of a job, or the utilization of its instances")
    text = "only metrics with this name, or matching a pattern such as val/*; repeatable"
    add(metrics, "--name NAME", text, action="append", default=[])
    which = metrics.add_mutually_exclusive_group()
    add(which, "--telemetry", "show the metrics of the instances: memory, CPU, network …")
    add(which, "--all", "show the metrics of the job and of its instances; --json alone prints both")
    text = "open Ray's dashboard of a running job in the browser"
    dashboard = command("dashboard", text, run="raysm.features.dashboard.command:run", job=JOB)
    add(dashboard, "--no-open", NO_OPEN)


def add_entering(commands: Any) -> None:
    text = "forward a port of this machine to a port of an instance while the job runs"
    tunnel = add_command(commands, "tunnel", text, run=ENTERING)
    add(tunnel, "JOB", JOB)
    add(tunnel, "PORT", "port on the instance's loopback, for example 8265", type=int)
    add(tunnel, "--local PORT", "port of this machine (default: any free one)", type=int, default=0)
    add(tunnel, "--json", "print JSON")
    add_entered(tunnel)
    text = "open a shell in an instance, or run a command there and return its exit code"
    usage = "raysm shell JOB [options] [-- COMMAND]"
    shell = add_command(commands, "shell", text, run=ENTERING, is_scripted=True, usage=usage)
    add(shell, "JOB", JOB)
    add_entered(shell)


def add_sessions(commands: Any) -> None:
    text = "use a cluster that stays up and answers calls within milliseconds"
    session = add_command(commands, "session", text, run=SESSIONS)
    verbs = session.add_subparsers(dest="verb", required=True, metavar="start|list|attach|keep|close")
    start = add_command(verbs, "start", "start a session, which keeps running after this command ends")
    idle = "end the session after this long without a call: 90s, 30m, 2h, or seconds (default 30m)"
    add(start, "--idle TIME", idle, type=seconds)
    add(start, "--idle-detached TIME", "the same while no client is attached (default 5m)", type=seconds)
    add(start, "--budget USD", "end the session once it has cost this much", type=float)
    text = "hourly price of one instance (default: from the price table)"
    add(start, "--price-per-hour USD", text, type=float)
    add(start, "--dry-run", "print the exact API call and send nothing")
    add_flags(start, COMMON)
    add_change(start)
    add_reading(start)
    for name, text in (
        ("list", "list the running sessions and their jobs"),
        ("attach", "show a session's state and open its Python prompt"),
        ("keep", "postpone the idle timeout of a session"),
        ("close", "end a session and its job"),
    ):
        verb = add_command(verbs, name, text)
        if name != "list":
            add(verb, "NAME", "name of the session or of its job")
        if name == "keep":
            add(verb, "TIME", "how long from now: 90s, 60m, 2h; with its unit", type=seconds_with_unit)
        add_reading(verb)
    text, usage = "run a file in a session's namespace", "raysm exec NAME FILE [options] [-- ARGUMENTS OF THE FILE]"
    command = add_command(commands, "exec", text, run=SESSIONS, is_scripted=True, usage=usage)
    add(command, "NAME", "name of the session")
    # The client reads the file and sends its text; the session does not need the file.
    add(command, "FILE", "Python file on this machine")
    add_target(command)
