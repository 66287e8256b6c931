"""The arguments of ``raysm scale``."""

import argparse
from typing import Any

from raysm.cli.options import SUBMIT
from raysm.cli.parser import Family, add, add_command


def add_scale(commands: Any) -> None:
    command = add_command(
        commands,
        "scale",
        "run the same job with several numbers of instances, and compare their times",
        run="raysm.features.scaling.command:run",
        usage="raysm scale N,N,… [options] -- COMMAND OF RAYSM, WITHOUT --instances",
        is_scripted=True,
        sends_job=True,
        family=Family.RUN,
        before=SUBMIT,
        examples="""\
# the similarity of all rows on one, two and four instances
raysm scale 1,2,4 -- similarity rows.npy --top-k 10
# a training, with its last accuracy in the table
raysm scale 1,3 --metric accuracy -- train train.py --input train=data/ -- --epochs 2""",
    )
    add(command, "SIZES", "numbers of instances, each of which is one job: 1,2,4", type=sizes)
    metric = "show the last value of this metric of each job (default: the first that they report)"
    add(command, "--metric NAME", metric)
    add(command, "--json", "print JSON")
    command.set_defaults(lacks=_find_missing)


def sizes(text: str) -> tuple[int, ...]:
    """Parse numbers of instances; the smallest comes first, since the others are compared to it."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of numbers of instances; write 1,2,4"
        )
    return tuple(sorted({int(part) for part in parts}))


def _find_missing(arguments: argparse.Namespace) -> str | None:
    if arguments.script_args:
        return None
    return "the command to run is missing: raysm scale 1,2,4 -- similarity rows.npy --top-k 10"
