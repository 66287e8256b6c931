"""How a command line is read: a parser that says what is wrong in one line, with the nearest option."""

import argparse
import difflib
from typing import Any, NoReturn

__all__ = ["BEHIND", "Parser", "add_command"]

BEHIND = "the arguments of a script go behind --, as in: raysm train main.py -- --epochs 10"


class Parser(argparse.ArgumentParser):
    """Says what is wrong, the nearest option and the way to the help, instead of the whole usage."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse an option that nobody knows before anything else is looked at."""
        # Ahead of argparse, which of a misspelt option says only which other one is missing.
        # A parser of commands hands their options on to theirs, and knows none of them itself.
        if self._subparsers is None:
            for text in args or ():
                option = text.partition("=")[0]
                if option.startswith("--") and option not in self._option_string_actions:
                    self.error(self._unknown(option))
        return super().parse_known_args(args, namespace)

    def _unknown(self, option: str) -> str:
        near = difflib.get_close_matches(option, self._option_string_actions, n=1, cutoff=0.75)
        hints = [f"; did you mean {near[0]}?" if near else ""]
        hints += [f" ({BEHIND})"] if self.get_default("is_scripted") else []
        return f"there is no option {option}{''.join(hints)}"

    def error(self, message: str) -> NoReturn:
        """Exit with status 2, one line and the way to the help."""
        self.exit(2, f"{self.prog}: {message}\n{self.prog} --help lists what it takes\n")


def add_command(
    commands: Any,
    name: str,
    text: str,
    *,
    run: str,
    usage: str | None = None,
    is_scripted: bool = False,
    sends_job: bool = False,
) -> argparse.ArgumentParser:
    """Add a command to ``raysm``; its parser is also what says, after the parsing, that something is wrong.

    Args:
        commands: Of the whole command line.
        name: As it is typed.
        text: What it does, in one sentence without its full stop.
        run: ``module:function`` that carries it out, imported only then: ``raysm --help`` answers at once.
        usage: None is argparse's own.
        is_scripted: Whether what stands behind ``--`` is for a script or a command of the user's.
        sends_job: Whether it sends a job, which Ctrl-C then stops.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", usage=usage, allow_abbrev=False
    )
    # What is found wrong after the parsing is said as this command's own, with the way to its help.
    parser.set_defaults(
        refuse=parser.error, run=run, is_scripted=is_scripted, sends_job=sends_job, lacks=_lacks_nothing
    )
    return parser


def _lacks_nothing(arguments: argparse.Namespace) -> str | None:
    return None
