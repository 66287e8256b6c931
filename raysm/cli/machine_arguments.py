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
        "what instances cost an hour, by region, each with its date",
        run="raysm.cli.market:run_prices",
    )
    command.add_argument("type", metavar="TYPE", nargs="?", help="of an instance; its cheapest region comes first")
    command.add_argument("--regions", type=names, default=[], metavar="A,B", help="these alone (default: all at hand)")
    command.add_argument(
        "--refresh",
        action="store_true",
        help="fetch AWS's prices of --regions first (pricing:GetProducts)",
    )
    add_reading(command)


def add_quotas(commands: Any) -> None:
    """Add ``raysm quotas``."""
    command = add_command(
        commands,
        "quotas",
        "what fits: how many instances the account may have by region and type, and what an hour of one costs",
        run="raysm.cli.market:run_quotas",
    )
    command.add_argument("type", metavar="TYPE", nargs="*", help="of an instance (default: all that may be used)")
    command.add_argument("--regions", type=names, default=[], metavar="A,B", help="(default: the target's own)")
    add_reading(command)


def names(text: str) -> list[str]:
    """Return the names of a list with commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names; write us-east-1,eu-west-1")
    return list(dict.fromkeys(parts))


def add_demo(commands: Any) -> None:
    """Add ``raysm demo``."""
    command = add_command(
        commands,
        "demo",
        "a whole job on this machine, on data that raysm carries",
        run="raysm.cli.demo:run",
        sends_job=True,
    )
    # Two: the least that shows a cluster.
    command.add_argument("--instances", type=int, default=2, metavar="N", help="number of instances (default 2)")
    command.add_argument("--output", type=Path, metavar="DIR", help="where the result goes (default: where it lies)")


def add_local(commands: Any) -> None:
    """Add ``raysm local``."""
    local = add_command(commands, "local", "the embedded SageMaker of this machine", run="raysm.cli.local_server:run")
    verbs = local.add_subparsers(dest="verb", required=True, metavar="up|down|status|clean|interrupt")
    for name, text in (
        ("up", "start the embedded SageMaker (jobs do that by themselves)"),
        ("down", "end the embedded SageMaker; with --force its active jobs too"),
        ("status", "whether the embedded SageMaker runs, and which jobs it has"),
    ):
        verb = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        if name == "up":
            verb.add_argument(
                "--scenario",
                metavar="FILE",
                help="what AWS does to jobs and a laptop does not, as TOML; it holds until raysm local down",
            )
            verb.add_argument(
                "--export",
                action="store_true",
                help="print shell commands that point boto3, the SageMaker SDK and the AWS CLI at it; for eval",
            )
        if name == "down":
            verb.add_argument("--force", action="store_true", help="also while jobs are active: they end as Failed")
        verb.add_argument("--json", action="store_true", help="as JSON")
    clean = verbs.add_parser(
        "clean",
        help="remove old jobs with what they left",
        description="Remove jobs that have ended, with their records, logs, results and checkpoints: those older than "
        "seven days where nothing else is said. What an active job reads stays, and what was brought by --output.",
        allow_abbrev=False,
    )
    # No default here: with --keep alone no age counts.
    clean.add_argument("--older-than", type=_age, metavar="AGE", help="only those that ended so long ago: 7d, 12h, 30m")
    clean.add_argument("--keep", type=int, metavar="N", help="all but the N that ended last")
    clean.add_argument("--dry-run", action="store_true", help="say what would go, and remove nothing")
    clean.add_argument("--json", action="store_true", help="as JSON")
    interrupt = verbs.add_parser(
        "interrupt", help="interrupt a spot job, as AWS does", description="interrupt a spot job", allow_abbrev=False
    )
    interrupt.add_argument("job", metavar="JOB", help="the job's name")
    interrupt.add_argument("--json", action="store_true", help="as JSON")


def _age(text: str) -> timedelta:
    # No weeks and no months: of the latter nobody agrees how long they are.
    units = {"d": "days", "h": "hours", "m": "minutes"}
    number, unit = text[:-1], units.get(text[-1:])
    # int alone would take a sign, blanks and 1_000 too.
    if unit is None or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an age; write 7d, 12h or 30m")
    try:
        age = timedelta(**{unit: int(number)})
        # Before the year 1 nothing can have ended; nor does int take more than some thousands of digits.
        datetime.now(UTC) - age
    except (OverflowError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text[:20]!r} is longer ago than dates go back; write 7d, 12h or 30m"
        ) from None
    return age


def add_doctor(commands: Any) -> None:
    """Add ``raysm doctor``."""
    command = add_command(
        commands, "doctor", "check that jobs can run here, and how to fix what is missing", run="raysm.cli.doctor:run"
    )
    add_flags(command, COMMON)
    command.add_argument(
        "--for",
        dest="request",
        type=Path,
        metavar="FILE",
        help="check this one job: a whole request, .json or .toml, as --dry-run --json prints one; flags win over it",
    )
    command.add_argument(
        "--policy",
        choices=("user", "role"),
        help="print the IAM policy of the user who sends jobs, or of the jobs' role, and check nothing",
    )
    add_change(command)
    command.add_argument(
        "--run", dest="runs_job", action="store_true", help="then send one small job, and print what its instances have"
    )
    command.add_argument("--yes", action="store_true", help="with --run: do not ask before a job that costs money")
    add_reading(command)
