"""The arguments of ``raysm session`` and ``raysm exec``."""

import argparse
from typing import Any

from raysm.cli.argument_groups import add_change, add_reading, add_target
from raysm.cli.flags import COMMON, add_flags
from raysm.cli.parser import add_command

__all__ = ["add_sessions"]

RUNNER = "raysm.cli.sessions:run"


def add_sessions(commands: Any) -> None:
    """Add ``raysm session`` and ``raysm exec``."""
    session = add_command(commands, "session", "a cluster that stays, and takes calls in milliseconds", run=RUNNER)
    verbs = session.add_subparsers(dest="verb", required=True, metavar="start|list|attach|keep|close")
    for name, text in (
        ("start", "start a session; it goes on when the command has ended"),
        ("list", "the sessions that run, with their jobs"),
        ("attach", "how a session is, and its Python at a prompt"),
        ("keep", "put off the idle end of a session"),
        ("close", "end a session, and its job"),
    ):
        verb = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        if name == "start":
            _add_start(verb)
            continue
        if name != "list":
            verb.add_argument("name", metavar="NAME", help="as it was named, or its job's name")
        if name == "keep":
            verb.add_argument("time", type=_seconds, metavar="TIME", help="for how long: 60m, 2h")
        add_reading(verb)
    command = add_command(
        commands,
        "exec",
        "a file, run in a session's namespace",
        run=RUNNER,
        is_scripted=True,
        usage="raysm exec NAME FILE [options] [-- ARGUMENTS OF THE FILE]",
    )
    command.add_argument("name", metavar="NAME", help="of the session")
    # Read here, and sent as text: the session need not have the file.
    command.add_argument("file", metavar="FILE", help="Python source")
    add_target(command)


def _add_start(command: argparse.ArgumentParser) -> None:
    command.add_argument("--idle", type=_seconds, metavar="TIME", help="end after so long without a call (default 30m)")
    command.add_argument(
        "--idle-detached", type=_seconds, metavar="TIME", help="the same while no client is attached (default 5m)"
    )
    command.add_argument("--budget", type=float, metavar="USD", help="end when it has cost so much")
    command.add_argument(
        "--price-per-hour", type=float, metavar="USD", help="of one instance (default: a dated table of a few regions)"
    )
    command.add_argument("--json", action="store_true", help="as JSON")
    add_flags(command, COMMON)
    add_change(command)
    add_target(command)


def _seconds(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = text[:-1], units.get(text[-1:])
    if unit is None or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 90s, 30m, 2h or 1d")
    return float(int(number) * unit)
