"""Groups of arguments that several commands share: where a job is, and how an answer is printed."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from raysm.cli.flags import CHANGE, TARGET, Flag, add_flags
from raysm.cli.parser import FILES_GROUP, titled
from raysm.client.settings import TARGETS

__all__ = ["add_change", "add_entered", "add_files_of_project", "add_reading", "add_target"]

INSTANCE = re.compile(r"algo-\d+")
"""How SageMaker names the instances of a job."""


def add_change(command: argparse.ArgumentParser) -> None:
    """Add ``--set``, for every option that has no flag of its own."""
    titled(command, FILES_GROUP).add_argument(
        CHANGE, action="append", metavar="OPTION=VALUE", help="any option, as in security.isolation=true; repeatable"
    )


def add_target(command: argparse.ArgumentParser) -> None:
    """Add what says where a job goes, or is."""
    _add_where(command, TARGET)


def _add_where(command: argparse.ArgumentParser, flags: Sequence[Flag]) -> None:
    add_flags(command, flags)
    add_files_of_project(command)


def add_files_of_project(command: argparse.ArgumentParser) -> None:
    """Add what says which project file counts."""
    group = titled(command, FILES_GROUP)
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


def add_entered(command: argparse.ArgumentParser) -> None:
    """Add what says where a job is, and into which of its instances one enters."""
    # --on takes an instance too, as the functions of Python do: no target is named like one.
    command.add_argument("--instance", metavar="HOST", help="algo-2 (default: the head)")
    where = replace(TARGET[0], takes=str, action=_On, metavar="PLACE", help="local (default) or aws; or an instance")
    _add_where(command, (where, *TARGET[1:]))


class _On(argparse.Action):
    """Takes ``--on``: where the job is, or the name of one of its instances."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        if INSTANCE.fullmatch(values):
            namespace.instance = values
        elif values in TARGETS:
            namespace.on = values
        else:
            parser.error(f"argument --on: {values!r} is neither {' nor '.join(TARGETS)} nor an instance, algo-2")
