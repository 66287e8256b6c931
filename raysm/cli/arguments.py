"""Parse the arguments of a command, run it, and report its errors.

``parse`` reads no file and starts nothing.
"""

import argparse
import io
import itertools
import os
import pkgutil
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence

from rich.text import Text

from raysm import __version__
from raysm.cli.console import (
    Console,
    discard_unread_output,
    is_of_output,
    now_s,
    process_started_s,
    say_last,
)
from raysm.cli.interrupts import INTERRUPTED, OF_THE_PROCESS, REPEATED_S, Interrupted
from raysm.cli.parser import COMMAND, Family, Parser
from raysm.core import features
from raysm.errors import (
    CredentialsExpired,
    InvalidConfig,
    InvalidRequest,
    MissingDependency,
    NoRoom,
    RaysmError,
    did_you_mean,
)

Arguments = argparse.Namespace

OWN: features.Paths = {
    "submit": "raysm.cli.options:add_submit",
    "status": "raysm.cli.job_arguments:add_status",
    "logs": "raysm.cli.job_arguments:add_logs",
    "result": "raysm.cli.job_arguments:add_result",
    "metrics": "raysm.cli.job_arguments:add_metrics",
    "stop": "raysm.cli.job_arguments:add_stop",
    "rm": "raysm.cli.job_arguments:add_rm",
    "token": "raysm.cli.job_arguments:add_token",
    "debug": "raysm.cli.job_arguments:add_debug",
    "config": "raysm.cli.job_arguments:add_config",
    "local": "raysm.local.command_arguments:add_local",
}
"""The commands that belong to no feature: what adds each to the parser, as in
``Feature.commands``."""

VERSION = "--version"
OTHERS = "other commands"
"""The title of commands that name no family."""

OUTPUT_CLOSED = 141
"""128 + SIGPIPE, as shells report it."""


def parse(argv: Sequence[str]) -> Arguments:
    """Parse the command line; what follows the first ``--`` goes to the user's script unchanged."""
    # argparse would drop the -- and parse the rest itself.
    at = list(argv).index("--") if "--" in argv else len(argv)
    ours = argv[:at]
    theirs = argv[at + 1 :]
    parser = build_parser(*ours[:1])
    if not argv:
        # Without the list of commands, which --help prints.
        parser.exit(
            2, f"{parser.description}\n\n{_overview(parser)}\nraysm --help lists every command\n"
        )
    # Not parse_args, which would refuse unknown arguments without the hint about scripts.
    arguments, unread = parser.parse_known_args(ours)
    if unread:
        _refuse_unread(arguments, unread)
    if theirs and not arguments.is_scripted:
        arguments.refuse(f"{arguments.command} takes nothing behind --, got {' '.join(theirs)}")
    arguments.script_args = tuple(theirs)
    arguments.started_s = now_s()
    arguments.has_sent = False
    # Checked last, so that a misspelt option is reported before what is missing because of it.
    if lacks := arguments.lacks(arguments):
        arguments.refuse(lacks)
    return arguments


def _refuse_unread(arguments: Arguments, unread: Sequence[str]) -> None:
    text = shlex.join(unread)
    parser = arguments.refuse.__self__
    # The verb's own parser, ``raysm session start``, has the options and the usage.
    if parser.commands:
        parser = parser.commands[arguments.verb]
    words = [word.partition("=")[0] for word in unread if word.startswith("--")]
    hint = (
        did_you_mean(words[0], parser._option_string_actions, most=2, cutoff=0.7) if words else ""
    )
    if arguments.is_scripted and words[:1] == ["--budget"]:
        hint = "; --max-cost USD caps what a job costs"
    elif words and words[0] in arguments.hints:
        hint = f"; {arguments.hints[words[0]]}"
    elif not hint and arguments.is_scripted:
        hint = (
            "; arguments of the script or command go behind --: "
            f"raysm {arguments.command} … -- {text}"
        )
    parser.error(f"unrecognized arguments: {text}{hint}")


def build_parser(first: str = "") -> Parser:
    """Return the parser of ``raysm``.

    Args:
        first: The first argument of the command line. If it is a command, the parser has only that
            one, and no module of another command is imported; otherwise it has all.
    """
    parser = Parser(
        prog="raysm",
        description="Run one workload on one Ray cluster, "
        "formed of the instances of a SageMaker job or emulated on this machine.",
        usage="raysm COMMAND [options]",
    )
    parser.add_argument(VERSION, action="version", version=f"raysm {__version__}")
    # help: argparse would list all commands as one argument. prog: argparse would use the whole
    # usage line.
    commands = parser.add_subparsers(
        dest=COMMAND, required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="raysm"
    )
    for name, path in _paths(first).items():
        try:
            pkgutil.resolve_name(path)(commands)
        except Exception as error:  # another package's module may raise anything
            if name == first or path.startswith("raysm."):
                raise
            warnings.warn(f"the command {name!r} ({path}) is left out: {error}", stacklevel=2)
    shown = {action.dest: action for action in commands._choices_actions}
    for title, names in families(parser).items():
        parser.add_argument_group(title)._group_actions.extend(shown[name] for name in names)
    parser.epilog = (
        f"{_overview(parser)}\nraysm COMMAND --help shows the options of a command, with examples."
    )
    return parser


def _paths(first: str) -> features.Paths:
    if first == VERSION:
        return {}
    path = OWN.get(first) or features.path_of("commands", first)
    return {first: path} if path else {**features.all_paths("commands"), **OWN}


def families(parser: Parser) -> Mapping[str, Sequence[str]]:
    """Return the names of the commands of ``raysm`` by their titles, as ``--help`` shows them."""
    found: dict[str, list[str]] = {title: [] for title in Family}
    # First raysm's own, because those of features are listed before some of them.
    for name in sorted(parser.commands, key=lambda name: name not in OWN):
        command = parser.commands[name]
        names = found.setdefault(command.family or OTHERS, [])
        at = names.index(command.before) if command.before in names else len(names)
        names.insert(at, name)
    return {title: names for title, names in found.items() if names}


def _overview(parser: Parser) -> str:
    """Return the examples of ``raysm``.

    Of each family, the first line of each command comes first, then their second lines.
    """
    lines = []
    for names in families(parser).values():
        rounds = itertools.zip_longest(*(parser.commands[name].overview for name in names))
        lines += [f"  {line}\n" for line in itertools.chain.from_iterable(rounds) if line]
    return f"examples:\n{''.join(lines)}"


def run(argv: Sequence[str] | None) -> int:
    # Outside of the try block, because argparse reports errors itself and exits with 2.
    arguments = parse(sys.argv[1:] if argv is None else argv)
    if argv is None:
        # The user has waited for this command's imports too.
        arguments.started_s = process_started_s()
    # On stderr, which the user sees even if a pipe reads stdout.
    errors = Console(stderr=True)
    for stream in (sys.stdout, sys.stderr):
        # The name of a file may contain bytes that are not UTF-8; they are escaped.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        OF_THE_PROCESS.raise_if_lost()
        status = pkgutil.resolve_name(arguments.run)(arguments, Console()) or 0
        # Otherwise a full disk would be noticed only by the interpreter's end.
        sys.stdout.flush()
        return status
    except KeyboardInterrupt as error:
        OF_THE_PROCESS.ignore_for(REPEATED_S)
        unsent = "; nothing was sent" if arguments.sends_job and not arguments.has_sent else ""
        say_last(errors, str(error) if isinstance(error, Interrupted) else f"interrupted{unsent}")
        discard_unread_output()
        return INTERRUPTED
    except BrokenPipeError:  # raysm logs NAME | head
        discard_unread_output()
        return OUTPUT_CLOSED if arguments.sends_job else 0
    # 2 as from argparse: nothing was sent, and the same command will fail again.
    except (InvalidRequest, InvalidConfig, MissingDependency, NoRoom) as error:
        errors.print(Text(f"raysm: {error}"), soft_wrap=True)
        return 2
    except (RaysmError, OSError) as error:
        say_last(errors, f"raysm: {_described(error)}")
        if isinstance(error, OSError) and is_of_output(error):
            discard_unread_output()
        return error.exit_status if isinstance(error, CredentialsExpired) else 1


def _described(error: Exception) -> str:
    match error:
        case FileNotFoundError(filename=None) if not _has_working_folder():
            return "the working folder was deleted; change to one that exists: cd"
        case OSError() if is_of_output(error):
            return (
                f"the output cannot be written: {error.strerror}; "
                "the disk or device behind stdout or stderr is full"
            )
    return str(error)


def _has_working_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True
