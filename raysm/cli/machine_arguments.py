"""The arguments of the commands about this machine, prices and quotas."""

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from raysm.cli.options import COMMON, add_change, add_flags, add_reading
from raysm.cli.parser import add, add_command, seconds_with_unit


def add_prices(commands: Any) -> None:
    text = "list hourly prices of instances by region, with their dates"
    command = add_command(commands, "prices", text, run="raysm.features.account.prices_command:run")
    add(command, "TYPE", "instance type; its cheapest region comes first", nargs="?")
    add(command, "--regions A,B", "only these regions (default: all with a known price)", type=names, default=[])
    add(command, "--refresh", "first fetch the prices of --regions from AWS (needs pricing:GetProducts)")
    add_reading(command)


def add_quotas(commands: Any) -> None:
    text = "list how many instances the account may run by region and type, with their hourly prices"
    command = add_command(commands, "quotas", text, run="raysm.features.grid.quotas_command:run")
    add(command, "TYPE", "instance types (default: all with a quota above 0)", nargs="*")
    add(command, "--regions A,B", "regions to list (default: --region)", type=names, default=[])
    add_reading(command)


def names(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names; write us-east-1,eu-west-1")
    return list(dict.fromkeys(parts))


def add_image(commands: Any) -> None:
    text = "print commands to build, and push to Amazon ECR, an image with everything that jobs need"
    command = add_command(commands, "image", text, run="raysm.features.account.image_command:run")
    add(command, "--region NAME", "the region of the jobs", required=True)
    add(command, "--gpu", "for instances with GPUs")


def add_demo(commands: Any) -> None:
    text = "run a small job on this machine, with data from the package"
    command = add_command(commands, "demo", text, run="raysm.features.similarity.demo_command:run", sends_job=True)
    # Two instances are the smallest cluster.
    add(command, "--instances N", "number of instances (default 2)", type=int, default=2)
    add(command, "--output DIR", "copy the result to this folder", type=Path)


def add_local(commands: Any) -> None:
    text = "start, stop and clean the embedded SageMaker of this machine"
    local = add_command(commands, "local", text, run="raysm.local.command:run")
    verbs = local.add_subparsers(dest="verb", required=True, metavar="up|down|status|clean|interrupt")
    up = add_command(verbs, "up", "start the embedded SageMaker; jobs do this automatically")
    text = "emulate prices, quotas, capacity and faults of AWS from this TOML file, until raysm local down"
    add(up, "--scenario FILE", text)
    add(up, "--export", "print shell commands, for eval, that point boto3, the SageMaker SDK and the AWS CLI at it")
    down = add_command(verbs, "down", "stop the embedded SageMaker; with --force also its active jobs")
    add(down, "--force", "stop it even if jobs are active; they end as Failed")
    status = add_command(verbs, "status", "show whether the embedded SageMaker runs, and its jobs")
    clean = add_command(verbs, "clean", "remove old jobs with their files")
    clean.description = (
        "Remove ended jobs with their records, logs, results and checkpoints; by default those that ended more than "
        "seven days ago. Files that an active job reads stay, and so do results copied with --output."
    )
    # No default here, because --keep alone ignores the age.
    add(clean, "--older-than AGE", "remove jobs that ended longer ago than this: 90s, 30m, 12h, 7d, 1w", type=_age)
    add(clean, "--keep N", "remove all but the N jobs that ended last, however new the others are", type=int)
    add(clean, "--dry-run", "list what would be removed, and remove nothing")
    interrupt = add_command(verbs, "interrupt", "interrupt a spot job, as AWS does")
    add(interrupt, "JOB", "name of a job that was sent with --spot, or the short name (train) of a running one")
    for verb in (up, down, status, clean, interrupt):
        add(verb, "--json", "print JSON")


def _age(text: str) -> timedelta:
    try:
        age = timedelta(seconds=seconds_with_unit(text))
        # Fails before the year 1.
        datetime.now(UTC) - age
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is too long ago; write 1w, 7d, 12h or 30m") from None
    return age


def add_doctor(commands: Any) -> None:
    text = "check that jobs can run, and print how to fix what is missing"
    command = add_command(commands, "doctor", text, run="raysm.features.account.doctor_command:run")
    add_flags(command, COMMON)
    text = "check the job of this request file, .json or .toml, as --dry-run --json prints it; flags override it"
    add(command, "--for FILE", text, dest="request", type=Path)
    text = "print the IAM policy for the user who sends jobs, or for the jobs' role, and check nothing"
    command.add_argument("--policy", choices=("user", "role"), help=text)
    add_change(command)
    add(command, "--run", "after the checks, send one small job and print what its instances have", dest="runs_job")
    add(command, "--yes", "with --run: do not ask before a job that costs money")
    add_reading(command)
