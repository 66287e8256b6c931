"""The arguments of the commands about any job that was sent, and of ``raysm config``."""

from pathlib import Path
from typing import Any

from raysm.cli.options import COMMON, REGIONS, add_flags, add_reading, add_request
from raysm.cli.parser import Family, Parser, add, add_command, seconds

# A string, because these modules import what talks to the service.
JOBS = "raysm.cli.jobs:run"

JOB = "name of a job, or the short name (train) of a running job or session"
READ = (
    "name of a job, or a short name (train): "
    "the running job or session, or else the latest ended one"
)
NO_OPEN = "print the address without opening a browser"


def add_reading_job(
    commands: Any, name: str, text: str, *, run: str = JOBS, job: str = READ, **listed: Any
) -> Parser:
    """Add a command that reads one job; ``add_command`` takes ``listed`` for ``raysm --help``."""
    command = add_command(commands, name, text, run=run, **{"family": Family.JOBS} | listed)
    # A short name also finds a job that has ended.
    command.set_defaults(is_reading=True)
    add(command, "JOB", job)
    add_reading(command)
    return command


def add_status(commands: Any) -> None:
    add_reading_job(commands, "status", "show the state, times and cost of a job")


def add_logs(commands: Any) -> None:
    text = "show the output of a job's instances"
    logs = add_reading_job(commands, "logs", text, examples="raysm logs -f digits --metrics")
    add(logs, "-f --follow", "continue until the job has ended")
    add(logs, "--instance HOST", "only lines of this instance, for example algo-2")
    add(logs, "--tail N", "only the last N lines; with -f, new lines follow", type=int)
    add(logs, "--metrics", "also show the latest metrics every few seconds")


def add_result(commands: Any) -> None:
    result = add_reading_job(
        commands, "result", "fetch a job's result", examples="raysm result digits --output out/"
    )
    # Both say how long to wait: --no-wait is a timeout of 0.
    waiting = result.add_mutually_exclusive_group()
    add(waiting, "--no-wait", "exit with 1 at once if the job still runs")
    add(
        waiting,
        "--timeout TIME",
        "wait at most this long for its end: 90s, 30m, 2h, or seconds",
        type=seconds,
    )
    add(result, "--output DIR", "copy the result to this folder", type=Path)
    text = (
        "copy this to --output, also of a job that failed: the result, $SM_OUTPUT_DATA_DIR, "
        "$RAYSM_STATE, or the logs"
    )
    add(result, "--what model|data|state|logs", text, choices=["model", "data", "state", "logs"])
    text = "unpickle a function's value even if the job's log has no digest of it"
    add(result, "--unverified", text)
    lacking = "--what needs --output DIR, an empty folder"
    result.set_defaults(
        lacks=lambda asked: lacking if asked.what and asked.output is None else None
    )


def add_metrics(commands: Any) -> None:
    metrics = add_reading_job(
        commands,
        "metrics",
        "show the metrics of a job, or the utilization of its instances",
        examples="raysm metrics digits --name 'val/*'",
    )
    text = "only metrics with this name, or matching a pattern such as val/*; repeatable"
    add(metrics, "--name NAME", text, action="append", default=[])
    which = metrics.add_mutually_exclusive_group()
    add(which, "--telemetry", "show the metrics of the instances: memory, CPU, network …")
    add(
        which, "--all", "show the metrics of the job and of its instances; --json alone prints both"
    )


def add_stop(commands: Any) -> None:
    text = "stop a job, after giving it time to save its work"
    add_reading(_add_running(commands, "stop", text, family=Family.JOBS))


def add_rm(commands: Any) -> None:
    remove = add_command(
        commands,
        "rm",
        (
            "remove ended jobs of this machine (AWS keeps its own), with their records, "
            "logs, results and checkpoints"
        ),
        run=JOBS,
        family=Family.JOBS,
        examples="raysm rm digits-20261122-101112-0a1b2c3d",
    )
    add(remove, "JOB", "name of a job, or a pattern: 'digits-*'", nargs="+")
    add_reading(remove)


def add_token(commands: Any) -> None:
    text = "print the token that a job's Ray cluster asks programs for"
    add_reading(_add_running(commands, "token", text, family=Family.ENTER))


def add_debug(commands: Any) -> None:
    debug = _add_running(
        commands,
        "debug",
        "allow SSM sessions into the instances of a job that runs on AWS",
        family=Family.ENTER,
        examples="raysm debug digits --on aws",
    )
    add(debug, "--off", "disallow SSM sessions again")
    add_reading(debug)


def _add_running(
    commands: Any, name: str, text: str, *, family: Family, examples: str = ""
) -> Parser:
    command = add_command(commands, name, text, run=JOBS, family=family, examples=examples)
    # A short name finds only a job that runs.
    command.set_defaults(is_reading=False)
    add(command, "JOB", JOB)
    return command


def add_config(commands: Any) -> None:
    command = add_command(
        commands,
        "config",
        "show the options that apply in this folder, and where each was set",
        run="raysm.cli.config:run",
        family=Family.SETUP,
        examples="raysm config",
    )
    add_flags(command, (*COMMON, *REGIONS))
    add_request(command)
    add_reading(command)
