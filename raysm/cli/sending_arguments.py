"""The arguments of the commands that send a job of the user's, and of ``raysm config``, which shows what they take."""

import argparse
from pathlib import Path
from typing import Any

from raysm.cli.argument_groups import add_change, add_target
from raysm.cli.flags import COMMON, SCRIPT, SIMILARITY, SWEEP, TRAIN, TUNE, add_flags
from raysm.cli.parser import FILES_GROUP, add_command, titled

__all__ = ["add_config", "add_run", "add_similarity", "add_submit", "add_sweep", "add_train", "add_tune"]

# A text: this module is read by every command, and what sends loads boto3's models.
RUNNER = "raysm.cli.sending:run"

KEPT = 3
"""Flags of the similarity, the first ones: exactly one of them says what is kept."""


def add_similarity(commands: Any) -> None:
    """Add ``raysm similarity``."""
    command = add_command(
        commands,
        "similarity",
        "the exact cosine similarity of every row of a matrix with every other row",
        run=RUNNER,
        sends_job=True,
        usage="raysm similarity MATRIX (--top-k K | --threshold T | --full) [options]",
    )
    command.set_defaults(lacks=_lacks_of_similarity)
    command.add_argument(
        "matrix",
        metavar="MATRIX",
        # A request's file may name it instead.
        nargs="?",
        help=".npy, .npz, .csv, .csv.gz, .parquet, or a folder of them; a path or s3://…",
    )
    # Not required here, since a request's file may choose it: ``_lacks_of_similarity`` looks at both.
    modes = command.add_mutually_exclusive_group()
    add_flags(modes, SIMILARITY[:KEPT], "similarity")
    add_flags(command, SIMILARITY[KEPT:], "similarity")
    command.add_argument(
        "--sharded",
        action="store_true",
        help="give each instance its share of MATRIX's files alone (ShardedByS3Key); of the queries' files: --set "
        "inputs.queries.distribution=ShardedByS3Key",
    )
    command.add_argument(
        "--estimate", action="store_true", help="measure a few tiles here, print the time and money, and send nothing"
    )
    command.add_argument(
        "--price-per-hour",
        type=float,
        metavar="USD",
        help="of one instance, for --estimate (default: a dated table of a few regions)",
    )
    _add_submitting(command)


def add_run(commands: Any) -> None:
    """Add ``raysm run``."""
    command = add_command(
        commands,
        "run",
        "a Python script, run on the head of the formed cluster; ray.init() joins it",
        run=RUNNER,
        is_scripted=True,
        sends_job=True,
        # argparse cannot know of the part behind --, which it never sees.
        usage="raysm run SCRIPT [options] [-- ARGUMENTS OF THE SCRIPT]",
    )
    _add_script(command)
    command.set_defaults(lacks=_lacks_of_script)
    add_flags(command, SCRIPT, "run")
    _add_submitting(command)


def add_train(commands: Any) -> None:
    """Add ``raysm train``."""
    command = add_command(
        commands,
        "train",
        "a script written for torchrun, as it is, on all instances; rank 0's model is the result",
        run=RUNNER,
        is_scripted=True,
        sends_job=True,
        usage="raysm train SCRIPT [options] [-- ARGUMENTS OF THE SCRIPT]",
    )
    _add_script(command)
    command.set_defaults(lacks=_lacks_of_script)
    add_flags(command, TRAIN, "train")
    _add_submitting(command)


def add_sweep(commands: Any) -> None:
    """Add ``raysm sweep``."""
    command = add_command(
        commands,
        "sweep",
        "many trials of a script, each with other parameters as --NAME VALUE, on one cluster; the best is the result",
        run=RUNNER,
        is_scripted=True,
        sends_job=True,
        usage="raysm sweep SCRIPT --space NAME=RANGE --metric NAME --mode min|max [options] [-- OTHER ARGUMENTS]",
    )
    _add_script(command)
    command.set_defaults(lacks=_lacks_of_sweep)
    add_flags(command, SWEEP, "sweep")
    _add_submitting(command)


def add_tune(commands: Any) -> None:
    """Add ``raysm tune``."""
    command = add_command(
        commands,
        "tune",
        "a sweep whose trials the service launches, a training job each: a hyperparameter tuning job",
        run="raysm.cli.tuning:run",
        is_scripted=True,
        sends_job=True,
        usage="raysm tune SCRIPT --space NAME=RANGE --metric NAME --mode min|max [options] [-- OTHER ARGUMENTS]",
    )
    _add_script(command)
    command.set_defaults(lacks=_lacks_of_sweep)
    add_flags(command, TUNE, "tune")
    command.add_argument("--parallel", type=int, default=1, metavar="N", help="trials at a time, at most (default 1)")
    command.add_argument(
        "--parent",
        action="append",
        default=[],
        metavar="NAME",
        help="an earlier tuning job, from which the search learns before it begins; repeatable, up to five",
    )
    _add_submitting(command)


def add_submit(commands: Any) -> None:
    """Add ``raysm submit``."""
    command = add_command(
        commands,
        "submit",
        "a whole request of a file, whatever its workload: --request job.json",
        run=RUNNER,
        sends_job=True,
        # argparse would show --request as optional, which it is for the other commands.
        usage="raysm submit --request FILE [options]",
    )
    command.set_defaults(lacks=_lacks_of_submit)
    _add_submitting(command)


def add_config(commands: Any) -> None:
    """Add ``raysm config``."""
    command = add_command(
        commands, "config", "the options that apply here, and where each of them comes from", run="raysm.cli.config:run"
    )
    add_flags(command, COMMON)
    _add_files(command)
    command.add_argument("--json", action="store_true", help="as JSON")
    add_target(command)


def _add_script(command: argparse.ArgumentParser) -> None:
    # Not required, as MATRIX is not: a request's file may name it.
    command.add_argument(
        "script", metavar="SCRIPT", nargs="?", help="the script; inside --source-dir where that is given"
    )


def _add_submitting(command: argparse.ArgumentParser) -> None:
    add_flags(command, COMMON)
    command.add_argument("--output", type=Path, metavar="DIR", help="where the result goes (default: where it lies)")
    command.add_argument("--detach", action="store_true", help="print the job's name and leave it to itself")
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="print the exact call and send nothing; with --json the request, for --request",
    )
    command.add_argument("--json", action="store_true", help="the result as JSON (with --detach: the job)")
    _add_files(command)
    add_target(command)


def _add_files(command: argparse.ArgumentParser) -> None:
    titled(command, FILES_GROUP).add_argument(
        "--request", type=Path, metavar="FILE", help="a whole request, .json or .toml; flags win over it"
    )
    add_change(command)


# What a command lacks where no request brings it: argparse knows only what is always needed.


def _lacks_of_similarity(arguments: argparse.Namespace) -> str | None:
    # What a request lacks is said when it is read: a flag may also name it.
    if arguments.request is not None:
        return None
    if arguments.matrix is None:
        return _required("MATRIX")
    if all(getattr(arguments, flag.dest) is None for flag in SIMILARITY[:KEPT]):
        return f"one of the arguments {' '.join(flag.name for flag in SIMILARITY[:KEPT])} is required"
    return None


def _lacks_of_script(arguments: argparse.Namespace) -> str | None:
    return _required("SCRIPT") if arguments.request is None and arguments.script is None else None


def _lacks_of_sweep(arguments: argparse.Namespace) -> str | None:
    # Without a script that is said first: all else is about it.
    needed = (arguments.space, arguments.metric, arguments.mode)
    if arguments.request is None and arguments.script is not None and None in needed:
        return "a sweep needs --space NAME=RANGE, --metric NAME and --mode min or --mode max"
    return _lacks_of_script(arguments)


def _lacks_of_submit(arguments: argparse.Namespace) -> str | None:
    return _required("--request") if arguments.request is None else None


def _required(name: str) -> str:
    return f"the following arguments are required: {name}"
