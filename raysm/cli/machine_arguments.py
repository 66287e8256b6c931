"""The arguments of the commands about this machine, prices and quotas."""

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from raysm.cli.options import COMMON, add_change, add_flags, add_reading
from raysm.cli.parser import add_command

__all__ = ["add_demo", "add_doctor", "add_local", "add_prices", "add_quotas", "names"]


def add_prices(commands: Any) -> None:
    """Add ``raysm prices``."""
    command = add_command(
        commands,
        "prices",
        "list hourly prices of instances by region, with their dates",
        run="raysm.cli.market:run_prices",
    )
    command.add_argument("type", metavar="TYPE", nargs="?", help="instance type; its cheapest region comes first")
    command.add_argument(
        "--regions", type=names, default=[], metavar="A,B", help="only these regions (default: all with a known price)"
    )
    command.add_argument(
        "--refresh",
        action="store_true",
        help="first fetch the prices of --regions from AWS (needs pricing:GetProducts)",
    )
    add_reading(command)


def add_quotas(commands: Any) -> None:
    """Add ``raysm quotas``."""
    command = add_command(
        commands,
        "quotas",
        "list how many instances the account may run by region and type, with their hourly prices",
        run="raysm.cli.market:run_quotas",
    )
    command.add_argument("type", metavar="TYPE", nargs="*", help="instance types (default: all with a quota above 0)")
    command.add_argument(
        "--regions", type=names, default=[], metavar="A,B", help="regions to list (default: the target's region)"
    )
    add_reading(command)


def names(text: str) -> list[str]:
    """Parse a comma-separated list of names."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names; write us-east-1,eu-west-1")
    return list(dict.fromkeys(parts))


def add_demo(commands: Any) -> None:
    """Add ``raysm demo``."""
    command = add_command(
        commands,
        "demo",
        "run a small job on this machine, with data from the package",
        run="raysm.cli.demo:run",
        sends_job=True,
    )
    # Two instances are the smallest cluster.
    command.add_argument("--instances", type=int, default=2, metavar="N", help="number of instances (default 2)")
    command.add_argument("--output", type=Path, metavar="DIR", help="copy the result to this folder")


def add_local(commands: Any) -> None:
    """Add ``raysm local``."""
    local = add_command(
        commands,
        "local",
        "start, stop and clean the embedded SageMaker of this machine",
        run="raysm.cli.local_server:run",
    )
    verbs = local.add_subparsers(dest="verb", required=True, metavar="up|down|status|clean|interrupt")
    for name, text in (
        ("up", "start the embedded SageMaker; jobs do this automatically"),
        ("down", "stop the embedded SageMaker; with --force also its active jobs"),
        ("status", "show whether the embedded SageMaker runs, and its jobs"),
    ):
        verb = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        if name == "up":
            verb.add_argument(
                "--scenario",
                metavar="FILE",
                help="emulate prices, quotas, capacity and faults of AWS from this TOML file, until raysm local down",
            )
            verb.add_argument(
                "--export",
                action="store_true",
                help="print shell commands, for eval, that point boto3, the SageMaker SDK and the AWS CLI at it",
            )
        if name == "down":
            verb.add_argument(
                "--force", action="store_true", help="stop it even if jobs are active; they end as Failed"
            )
        verb.add_argument("--json", action="store_true", help="as JSON")
    clean = verbs.add_parser(
        "clean",
        help="remove old jobs with their files",
        description="Remove ended jobs with their records, logs, results and checkpoints; by default those that ended "
        "more than seven days ago. Files that an active job reads stay, and so do results copied with --output.",
        allow_abbrev=False,
    )
    # No default here, because --keep alone ignores the age.
    clean.add_argument(
        "--older-than", type=_age, metavar="AGE", help="remove jobs that ended longer ago than this: 7d, 12h, 30m"
    )
    clean.add_argument("--keep", type=int, metavar="N", help="keep the N jobs that ended last")
    clean.add_argument("--dry-run", action="store_true", help="list what would be removed, and remove nothing")
    clean.add_argument("--json", action="store_true", help="as JSON")
    interrupt = verbs.add_parser(
        "interrupt",
        help="interrupt a spot job, as AWS does",
        description="Interrupt a spot job, as AWS does.",
        allow_abbrev=False,
    )
    interrupt.add_argument("job", metavar="JOB", help="the job's name")
    interrupt.add_argument("--json", action="store_true", help="as JSON")


def _age(text: str) -> timedelta:
    # No months, whose length differs.
    units = {"d": "days", "h": "hours", "m": "minutes"}
    number, unit = text[:-1], units.get(text[-1:])
    # int() would also accept a sign, blanks and 1_000.
    if unit is None or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an age; write 7d, 12h or 30m")
    try:
        age = timedelta(**{unit: int(number)})
        # Fails before the year 1. int() fails for thousands of digits.
        datetime.now(UTC) - age
    except (OverflowError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text[:20]!r} is longer ago than dates go back; write 7d, 12h or 30m"
        ) from None
    return age


def add_doctor(commands: Any) -> None:
    """Add ``raysm doctor``."""
    command = add_command(
        commands, "doctor", "check that jobs can run, and print how to fix what is missing", run="raysm.cli.doctor:run"
    )
    add_flags(command, COMMON)
    command.add_argument(
        "--for",
        dest="request",
        type=Path,
        metavar="FILE",
        help="check the job of this request file, .json or .toml, as --dry-run --json prints it; flags override it",
    )
    command.add_argument(
        "--policy",
        choices=("user", "role"),
        help="print the IAM policy for the user who sends jobs, or for the jobs' role, and check nothing",
    )
    add_change(command)
    command.add_argument(
        "--run",
        dest="runs_job",
        action="store_true",
        help="after the checks, send one small job and print what its instances have",
    )
    command.add_argument("--yes", action="store_true", help="with --run: do not ask before a job that costs money")
    add_reading(command)
