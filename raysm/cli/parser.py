"""The argument parser: its errors take one line and name the nearest option."""

import argparse
import difflib
import re
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

__all__ = [
    "ACCOUNT_GROUP",
    "FILES_GROUP",
    "GROUPS",
    "JOB_GROUP",
    "LIMITS_GROUP",
    "NETWORK_GROUP",
    "PACKAGES_GROUP",
    "RECORDS_GROUP",
    "WHERE_GROUP",
    "Parser",
    "add_command",
    "seconds",
    "titled",
]

PACKAGES_GROUP = "packages and variables"
RECORDS_GROUP = "project, tags and tracking"
LIMITS_GROUP = "limits and repetition"
WHERE_GROUP = "where"
FILES_GROUP = "options from files"
ACCOUNT_GROUP = "account on AWS"
JOB_GROUP = "job on AWS"
NETWORK_GROUP = "network and encryption on AWS"

GROUPS = (
    PACKAGES_GROUP,
    RECORDS_GROUP,
    LIMITS_GROUP,
    WHERE_GROUP,
    FILES_GROUP,
    ACCOUNT_GROUP,
    JOB_GROUP,
    NETWORK_GROUP,
)
"""Titles of the options that many commands share, in the order of --help; a command's own options come first."""

HABITS = {"-n": "--instances", "-o": "--output", "-k": "--top-k", "-i": "--input", "-e": "--env", "-d": "--detach"}
"""Short options of other programs (mpirun, docker, cc), and raysm's option for each."""

NUMBER = re.compile(r"-\d*\.?\d+(e-?\d+)?")
"""A negative number, which is not an option."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one line with the nearest option or command, instead of the whole usage."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take the arguments of ``argparse.ArgumentParser``."""
        super().__init__(*args, **{"formatter_class": _Formatter} | kwargs)
        # Functions with a better message than argparse's "invalid int value".
        self.register("type", int, _whole)
        self.register("type", float, _number)

    def short_usage(self) -> str:
        """Return the usage with the required arguments only."""
        if self.usage:
            return self.usage
        listed = [action for action in self._actions if not isinstance(action, argparse._SubParsersAction)]
        words = [_positional(action) for action in listed if not action.option_strings]
        words += [
            f"{action.option_strings[-1]} {action.metavar}"
            for action in listed
            if action.required and action.option_strings
        ]
        return " ".join([self.prog, *words, "[options]"])

    def format_help(self) -> str:
        """Return the help: the command's own options first, those for AWS last."""
        if self._subparsers is None:
            self.usage = self.short_usage()
        self._action_groups.sort(key=lambda group: GROUPS.index(group.title) if group.title in GROUPS else -1)
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse an unknown option before anything else is checked."""
        # Checked before argparse, which would only report what is missing because of the misspelt option.
        # A parser with subcommands does not know their options.
        if self._subparsers is None:
            before = ""
            for text in args or ():
                # After an option that takes a value, argparse itself reports that the value is missing.
                if self._is_unknown(text) and (text.startswith("--") or not self._takes_value(before)):
                    self.error(self._unknown(text.partition("=")[0], args))
                before = text
        return super().parse_known_args(args, namespace)

    def _is_unknown(self, text: str) -> bool:
        if text.startswith("--"):
            return text.partition("=")[0] not in self._option_string_actions
        # Short options may be joined (-fq), and a lone dash often means stdin.
        is_letter = len(text) > 1 and text.startswith("-") and not NUMBER.fullmatch(text)
        return is_letter and text[:2] not in self._option_string_actions

    def _takes_value(self, text: str) -> bool:
        action = self._option_string_actions.get(text)
        return action is not None and action.nargs != 0

    def _near(self, option: str) -> list[str]:
        options = self._option_string_actions
        if option.startswith("--"):
            return difflib.get_close_matches(option, options, n=1, cutoff=0.75)
        # -name lacks a dash of --name; -n4 means -n 4.
        is_word = len(option) > 2 and not option[2:].isdecimal()
        words = difflib.get_close_matches(f"-{option}", options, n=1, cutoff=0.75) if is_word else []
        habits = [name for name in options if name == HABITS.get(option[:2])]
        letters = [name for name in options if name.startswith(f"-{option[:2]}")]
        return (words or habits or letters)[:1]

    def _unknown(self, option: str, args: Sequence[str]) -> str:
        near = self._near(option)
        if not self.get_default("is_scripted"):
            return f"there is no option {option}" + (f"; did you mean {near[0]}?" if near else "")
        # First the hint about the script: a missing -- is more common than a misspelt option.
        moved = self._moved_behind(args)
        behind = (
            f"if it is the script's: {moved}"
            if moved
            else f"the arguments of a script go behind --: {self.short_usage()}"
        )
        return f"there is no option {option}; {behind}" + (f"; or did you mean {near[0]}?" if near else "")

    def _moved_behind(self, args: Sequence[str]) -> str | None:
        """Return the command line with the unknown options behind ``--``; None if there is no script."""
        ours: list[str] = []
        theirs: list[str] = []
        has_script = False
        into = ours
        # Whether the next word is the value of the option before it.
        is_value = False
        for text in args:
            if text.startswith("-"):
                into = theirs if self._is_unknown(text) else ours
                is_value = self._takes_value(text)
            else:
                has_script |= into is ours and not is_value
                is_value = False
            into.append(text)
        return f"{self.prog} {shlex.join([*ours, '--', *theirs])}" if has_script else None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [] if action.choices is None else [str(choice) for choice in action.choices]
        near = [] if value in choices else difflib.get_close_matches(str(value), choices, n=2)
        # If none is near, argparse lists all choices.
        if near:
            meant = " or ".join(map(repr, near))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}; did you mean {meant}?")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2; print the error on one line, and how to get help."""
        self.exit(2, f"{self.prog}: {message}\n{self.prog} --help shows the usage\n")


class _Formatter(argparse.HelpFormatter):
    """Keeps the line breaks of texts with several lines, such as examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def titled(parser: argparse.ArgumentParser, title: str) -> Any:
    """Return the parser's group with this title, and create it if needed."""
    groups = [group for group in parser._action_groups if group.title == title]
    return groups[0] if groups else parser.add_argument_group(title)


def _positional(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    return {"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …"}.get(str(action.nargs), name)


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
    """Add a command to ``raysm``; ``refuse`` of its parser also reports errors found after parsing.

    Args:
        commands: The subparsers of ``raysm``.
        name: The command.
        text: What it does, as a sentence without capital letter and full stop.
        run: ``module:function`` that runs it, imported only then, so that ``raysm --help`` is fast.
        usage: The usage line; None is derived from the arguments.
        is_scripted: Pass the arguments after ``--`` to the user's script or command.
        sends_job: The command sends a job, which Ctrl-C stops.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", usage=usage, allow_abbrev=False
    )
    parser.set_defaults(
        refuse=parser.error, run=run, is_scripted=is_scripted, sends_job=sends_job, lacks=_lacks_nothing
    )
    return parser


def _lacks_nothing(arguments: argparse.Namespace) -> str | None:
    return None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def seconds(text: str) -> float:
    """Parse a time: ``90s``, ``30m``, ``2h``, ``1d``, or a number of seconds.

    Raises:
        argparse.ArgumentTypeError: The text is not a time.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    unit = units.get(text[-1:])
    number = text if unit is None else text[:-1]
    try:
        value = float(number) * (unit or 1)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write 90s, 30m, 2h or 1d, or a number of seconds"
        ) from None
    return int(value) if value.is_integer() else value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None
