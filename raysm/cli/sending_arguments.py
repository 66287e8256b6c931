"""The arguments that all commands share that send a job, and those of ``raysm submit``."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from raysm.cli.options import COMMON, Flag, add_change, add_flags, add_target
from raysm.cli.parser import Family, Group, Parser, add, add_command, titled
from raysm.core.request.workload import Workload

SENDING = "raysm.cli.sending:run"
"""What runs most commands that send a job."""

SUBMIT = "submit"
"""The last command of its family: others are listed before it."""

SCRIPT_USAGE = "[SCRIPT] [options] [-- ARGUMENTS OF THE SCRIPT, OR A COMMAND]"


def add_submit(commands: Any) -> None:
    command = add_command(
        commands,
        SUBMIT,
        "submit a job of any workload from a request file: --request job.json",
        run=SENDING,
        sends_job=True,
        # argparse would show --request as optional, as it is for the other commands.
        usage="raysm submit --request FILE [options]",
        family=Family.RUN,
        examples="""\
# job.json is the output of --dry-run --json of any command that sends a job
raysm submit --request job.json --output out/""",
    )
    command.set_defaults(
        lacks=lambda arguments: None if arguments.request else required("--request")
    )
    add_sending(command)


def add_script_command(
    commands: Any,
    name: str,
    text: str,
    workload: type[Workload],
    flags: Iterable[Flag],
    *,
    run: str = SENDING,
    usage: str = SCRIPT_USAGE,
    examples: str,
    overview: Iterable[str] = (),
) -> Parser:
    """Add a command that sends a user's script; ``add_sending`` adds the rest of its arguments."""
    command = add_command(
        commands,
        name,
        text,
        run=run,
        is_scripted=True,
        sends_job=True,
        # argparse never sees the arguments after --.
        usage=f"raysm {name} {usage}",
        family=Family.RUN,
        before=SUBMIT,
        examples=examples,
        overview=overview,
    )
    # Optional, because a request file may name the script; ``missing_script`` checks both.
    add(
        command,
        "SCRIPT",
        "the script; inside --source-dir if given; without it, a command follows --",
        nargs="?",
    )
    command.set_defaults(lacks=missing_script)
    add_flags(command, flags, workload)
    return command


def add_sending(command: argparse.ArgumentParser) -> None:
    """Add what every command takes that sends a job; its own arguments are added first."""
    add_flags(command, COMMON)
    add(command, "--output DIR", "copy the result to this folder", type=Path)
    add(command, "--detach", "print the job's name and return at once")
    text = "send nothing and print the API call; with --json, the request that --request reads"
    add(command, "--dry-run", text)
    add(command, "--json", "print the result as JSON (with --detach: the job)")
    add_request(command)
    add_target(command)


def add_request(command: argparse.ArgumentParser) -> None:
    text = "read the whole request from a .json or .toml file; flags override it"
    add(titled(command, Group.FILES), "--request FILE", text, type=Path)
    add_change(command)


def missing_script(arguments: argparse.Namespace) -> str | None:
    """Return what is missing for a command with a script; a request file is checked when it is read."""
    if arguments.request is not None or arguments.script is not None or arguments.script_args:
        return None
    return required("SCRIPT")


def required(name: str) -> str:
    return f"the following arguments are required: {name}"
