"""The arguments of the commands that tell of places: ``raysm prices`` and ``raysm quotas``."""

import argparse
from typing import Any

from raysm.cli.options import add_reading
from raysm.cli.parser import add_command

__all__ = ["add_prices", "add_quotas", "names"]


def add_prices(commands: Any) -> None:
    """Add ``raysm prices``."""
    command = add_command(
        commands, "prices", "what instances cost an hour, by region, each with its date", run="raysm.cli.prices:run"
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
        run="raysm.cli.quotas:run",
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
