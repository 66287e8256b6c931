"""The arguments of ``raysm session`` and ``raysm exec``."""

import argparse
from typing import Any

from raysm.cli.options import COMMON, add_change, add_flags, add_reading, add_target
from raysm.cli.parser import Family, add, add_command, seconds, seconds_with_unit

# A string, because the module imports the client of sessions.
RUN = "raysm.features.session.command:run"


def add_session(commands: Any) -> None:
    text = "use a cluster that stays up and answers calls within milliseconds"
    session = add_command(commands, "session", text, run=RUN, family=Family.SESSIONS)
    verbs = session.add_subparsers(
        dest="verb", required=True, metavar="start|list|attach|keep|close"
    )
    start = add_command(
        verbs,
        "start",
        "start a session, which keeps running after this command ends",
        examples="raysm session start --name work --instances 2 --idle-detached 2h --max-cost 20",
    )
    idle = "end the session after this long without a call: 90s, 30m, 2h, or seconds (default 30m)"
    add(start, "--idle TIME", idle, type=seconds)
    add(
        start,
        "--idle-detached TIME",
        "the same while no client is attached (default 5m)",
        type=seconds,
    )
    # The older name of --max-cost.
    start.add_argument("--budget", metavar="USD", type=float, help=argparse.SUPPRESS)
    add(start, "--dry-run", "print the exact API call and send nothing")
    add_flags(start, COMMON)
    add_change(start)
    add_reading(start)
    for name, text in (
        ("list", "list the running sessions and their jobs"),
        ("attach", "show a session's state and open its Python prompt"),
        ("keep", "postpone the idle timeout of a session"),
        ("close", "end a session and its job"),
    ):
        verb = add_command(verbs, name, text)
        if name != "list":
            add(verb, "NAME", "name of the session or of its job")
        if name == "keep":
            add(
                verb,
                "TIME",
                "how long from now: 90s, 60m, 2h; with its unit",
                type=seconds_with_unit,
            )
        add_reading(verb)


def add_exec(commands: Any) -> None:
    command = add_command(
        commands,
        "exec",
        "run a file in a session's namespace",
        run=RUN,
        is_scripted=True,
        usage="raysm exec NAME FILE [options] [-- ARGUMENTS OF THE FILE]",
        family=Family.SESSIONS,
        examples="raysm exec work main.py -- --epochs 3",
    )
    add(command, "NAME", "name of the session")
    # The client reads the file and sends its text; the session does not need the file.
    add(command, "FILE", "Python file on this machine")
    add_target(command)
