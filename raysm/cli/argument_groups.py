"""Groups of arguments that several commands share: where a job is, and how an answer is printed."""

import argparse
from pathlib import Path
from typing import Any

from raysm.cli.flags import CHANGE, TARGET, add_flags

__all__ = ["add_change", "add_files_of_project", "add_instance", "add_reading", "add_target"]


def add_change(command: Any) -> None:
    """Add ``--set``, for every option that has no flag of its own."""
    command.add_argument(
        CHANGE, action="append", metavar="OPTION=VALUE", help="any option, as in security.isolation=true; repeatable"
    )


def add_target(command: argparse.ArgumentParser) -> None:
    """Add what says where a job goes, or is."""
    # A group of its own in --help: nearly every command has it, and nobody needs to read it twice.
    group = command.add_argument_group("where")
    add_flags(group, TARGET)
    add_files_of_project(group)


def add_files_of_project(group: Any) -> None:
    """Add what says which project file counts."""
    group.add_argument(
        "--project-file",
        type=Path,
        metavar="FILE",
        help="options for all jobs of a project (default: the nearest raysm.toml, here or above)",
    )
    group.add_argument("--config-profile", metavar="NAME", help="one of the project file's profiles, [profile.NAME.…]")


def add_reading(command: argparse.ArgumentParser) -> None:
    """Add what a command takes that only reads: ``--json``, and where the job is."""
    command.add_argument("--json", action="store_true", help="as JSON")
    add_target(command)


def add_instance(command: argparse.ArgumentParser) -> None:
    """Add ``--instance``, into which one enters."""
    # Not --on, which says whether a job is on AWS or here.
    command.add_argument("--instance", metavar="HOST", help="algo-2 (default: the head)")
