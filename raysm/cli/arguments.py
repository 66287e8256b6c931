"""Parse the command line into a namespace, without reading a file or starting anything."""

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raysm import __version__
from raysm.cli.console import now_s
from raysm.cli.examples import EXAMPLES
from raysm.cli.job_arguments import add_config, add_entering, add_jobs, add_sending, add_sessions
from raysm.cli.machine_arguments import add_demo, add_doctor, add_image, add_local, add_prices, add_quotas
from raysm.cli.parser import Parser
from raysm.errors import did_you_mean
from raysm.features.grid.command_arguments import add_grid

Arguments = argparse.Namespace

EPILOG = """\
examples:
  raysm demo
  raysm similarity vectors.npy --top-k 10 --instances 2 --output out/
  raysm run tune.py --instances 3 -- --trials 10
  raysm train main.py --instances 2 -- --epochs 10
  raysm sweep train.py --space lr=loguniform:1e-4:1e-1 --metric loss --mode min --trials 50 -- --epochs 3
  raysm run train.py --on aws --role arn:aws:iam::…:role/… --image … --instance-type ml.c5.4xlarge --instances 10
  raysm jobs; raysm logs -f NAME; raysm result NAME --output out/
"""

COMMANDS: tuple[Callable[[Any], None], ...] = (
    add_demo,
    add_sending,
    add_config,
    add_jobs,
    add_entering,
    add_sessions,
    add_local,
    add_doctor,
    add_grid,
    add_image,
    add_prices,
    add_quotas,
)

FAMILIES: Mapping[str, Sequence[str]] = {
    "run something": ("demo", "similarity", "run", "train", "sweep", "tune", "submit"),
    "look after jobs": ("jobs", "status", "logs", "result", "metrics", "dashboard", "ui", "stop", "rm"),
    "go into a running job": ("shell", "tunnel", "token", "debug"),
    "keep a cluster for many calls": ("session", "exec"),
    "run a job for each row of a table": ("grid",),
    "set up": ("doctor", "config", "local", "image", "prices", "quotas"),
}
"""The commands as --help shows them."""


def parse(argv: Sequence[str]) -> Arguments:
    """Parse the command line; arguments behind the first ``--`` go to the user's script unchanged."""
    # argparse would drop the -- and parse the rest itself.
    at = list(argv).index("--") if "--" in argv else len(argv)
    ours, theirs = argv[:at], argv[at + 1 :]
    parser = build_parser()
    if not argv:
        # Without the list of commands, which --help prints.
        parser.exit(2, f"{parser.description}\n\n{EPILOG}\nraysm --help lists every command\n")
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
    text, parser = shlex.join(unread), arguments.refuse.__self__
    # The verb's own parser, ``raysm session start``, has the options and the usage.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parser = action.choices[arguments.verb]
    words = [word.partition("=")[0] for word in unread if word.startswith("--")]
    hint = did_you_mean(words[0], parser._option_string_actions, most=2, cutoff=0.7) if words else ""
    if arguments.is_scripted and words[:1] == ["--budget"]:
        hint = "; a job has no budget: --max-runtime limits what it can cost"
    elif arguments.command == "grid" and words[:1] == ["--input"]:
        hint = "; the rows name the inputs: a column input_NAME holds the URI of each row's channel NAME"
    elif not hint and arguments.is_scripted:
        hint = f"; arguments of the script or command go behind --: raysm {arguments.command} … -- {text}"
    parser.error(f"unrecognized arguments: {text}{hint}")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="raysm",
        description="Run one workload on one Ray cluster, formed of the instances of a SageMaker job or "
        "emulated on this machine.",
        epilog=f"{EPILOG}\nraysm COMMAND --help shows the options of a command, with examples.",
        usage="raysm COMMAND [options]",
    )
    parser.add_argument("--version", action="version", version=f"raysm {__version__}")
    # help: argparse would list all commands as one argument. prog: argparse would use the whole usage line.
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="raysm"
    )
    for add in COMMANDS:
        add(commands)
    shown = {action.dest: action for action in commands._choices_actions}
    for title, names in FAMILIES.items():
        parser.add_argument_group(title)._group_actions.extend(shown[name] for name in names)
    for name, command in commands.choices.items():
        _add_examples(f"raysm {name}", command)
    return parser


def _add_examples(name: str, command: argparse.ArgumentParser) -> None:
    nested = [action for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    for action in nested:
        for verb, parser in action.choices.items():
            _add_examples(f"{name} {verb}", parser)
    if name in EXAMPLES:
        lines = EXAMPLES[name].splitlines()
        command.epilog = "\n".join(["examples:", *(f"  {line}" for line in lines)])
