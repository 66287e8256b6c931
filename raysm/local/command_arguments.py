"""The arguments of ``raysm local``."""

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any

from raysm.cli.parser import Family, add, add_command, seconds_with_unit


def add_local(commands: Any) -> None:
    text = "start, stop and clean the embedded SageMaker of this machine"
    local = add_command(commands, "local", text, run="raysm.local.command:run", family=Family.SETUP)
    verbs = local.add_subparsers(
        dest="verb", required=True, metavar="up|down|status|clean|interrupt"
    )
    text = "start the embedded SageMaker; jobs do this automatically"
    up = add_command(verbs, "up", text, examples="raysm local up --scenario bad-day.toml")
    text = (
        "emulate prices, quotas, capacity and faults of AWS from this TOML file, until raysm local "
        "down"
    )
    add(up, "--scenario FILE", text)
    add(
        up,
        "--export",
        "print shell commands, for eval, that point boto3, the SageMaker SDK and the AWS CLI at it",
    )
    down = add_command(
        verbs, "down", "stop the embedded SageMaker; with --force also its active jobs"
    )
    add(down, "--force", "stop it even if jobs are active; they end as Failed")
    status = add_command(verbs, "status", "show whether the embedded SageMaker runs, and its jobs")
    text = "remove old jobs with their files"
    clean = add_command(
        verbs, "clean", text, examples="raysm local clean --older-than 12h --dry-run"
    )
    clean.description = (
        "Remove ended jobs with their records, logs, results and checkpoints; by default those "
        "that ended more than seven days ago. Files that an active job reads stay, and so do "
        "results copied with --output."
    )
    # No default here, because --keep alone ignores the age.
    add(
        clean,
        "--older-than AGE",
        "remove jobs that ended longer ago than this: 90s, 30m, 12h, 7d, 1w",
        type=_age,
    )
    add(
        clean,
        "--keep N",
        "remove all but the N jobs that ended last, however new the others are",
        type=int,
    )
    add(clean, "--dry-run", "list what would be removed, and remove nothing")
    interrupt = add_command(verbs, "interrupt", "interrupt a spot job, as AWS does")
    add(
        interrupt,
        "JOB",
        "name of a job that was sent with --spot, or the short name (train) of a running one",
    )
    for verb in (up, down, status, clean, interrupt):
        add(verb, "--json", "print JSON")


def _age(text: str) -> timedelta:
    try:
        age = timedelta(seconds=seconds_with_unit(text))
        # Fails before the year 1.
        datetime.now(UTC) - age
    except OverflowError:
        raise argparse.ArgumentTypeError(
            f"{text[:20]!r} is too long ago; write 1w, 7d, 12h or 30m"
        ) from None
    return age
