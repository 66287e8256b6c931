"""The arguments of ``raysm doctor``, ``image`` and ``prices``."""

from pathlib import Path
from typing import Any

from raysm.cli.options import COMMON, add_change, add_flags, add_reading
from raysm.cli.parser import Family, add, add_command, names


def add_doctor(commands: Any) -> None:
    command = add_command(
        commands,
        "doctor",
        "check that jobs can run, and print how to fix what is missing",
        run="raysm.features.account.doctor_command:run",
        family=Family.SETUP,
        before="config",
        examples="""\
# check this machine
raysm doctor
# check an AWS account for one kind of job
raysm doctor --on aws --role arn:aws:iam::123456789012:role/jobs \
--instance-type ml.g5.12xlarge --instances 4""",
    )
    add_flags(command, COMMON)
    text = (
        "check the job of this request file, .json or .toml, as --dry-run --json prints it; "
        "flags override it"
    )
    add(command, "--for FILE", text, dest="request", type=Path)
    text = (
        "print the IAM policy for the user who sends jobs, or for the jobs' role, and check nothing"
    )
    command.add_argument("--policy", choices=("user", "role"), help=text)
    add_change(command)
    add(
        command,
        "--run",
        "after the checks, send one small job and print what its instances have",
        dest="runs_job",
    )
    add(
        command,
        "--network",
        "with --run: measure the network between the instances instead",
        dest="measures_network",
    )
    add(
        command,
        "--yes",
        "with --run: do not ask before a job that costs money; above 1 USD, with --network, add "
        "--max-cost",
    )
    add_reading(command)


def add_image(commands: Any) -> None:
    command = add_command(
        commands,
        "image",
        "print commands to build, and push to Amazon ECR, an image with everything that jobs need",
        run="raysm.features.account.image_command:run",
        family=Family.SETUP,
        examples="raysm image --region eu-west-1 --gpu",
    )
    add(command, "--region NAME", "the region of the jobs", required=True)
    add(command, "--gpu", "for instances with GPUs")


def add_prices(commands: Any) -> None:
    command = add_command(
        commands,
        "prices",
        "list hourly prices of instances by region, with their dates",
        run="raysm.features.account.prices_command:run",
        family=Family.SETUP,
        examples="raysm prices ml.g5.2xlarge --regions us-east-1,eu-west-1 --refresh",
    )
    add(command, "TYPE", "instance type; its cheapest region comes first", nargs="?")
    add(
        command,
        "--regions A,B",
        "only these regions (default: all with a known price)",
        type=names,
        default=[],
    )
    add(
        command,
        "--refresh",
        "first fetch the prices of --regions from AWS (needs pricing:GetProducts)",
    )
    add_reading(command)
