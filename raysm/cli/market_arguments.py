"""The arguments of the commands that tell of places: ``raysm prices`` and ``raysm quotas``."""

import argparse
from typing import Any

from raysm.cli.parser import add_command

__all__ = ["add_prices", "names"]


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
        help="bring AWS's public lists of --regions first; they take no credentials, and tens of MB each",
    )
    command.add_argument("--json", action="store_true", help="as JSON")


def names(text: str) -> list[str]:
    """Return the names of a list with commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of names; write us-east-1,eu-west-1")
    return list(dict.fromkeys(parts))
