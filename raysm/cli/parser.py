"""The argument parser, and how commands and arguments are added to it."""

import argparse
import enum
from typing import Any, NoReturn

from raysm.core.request.durations import parse_duration
from raysm.errors import InvalidRequest, did_you_mean


class Group(enum.StrEnum):
    """Titles of the options that many commands share, in the order of --help; a command's own options come first."""

    PACKAGES = "packages and variables"
    RECORDS = "project, tags and tracking"
    LIMITS = "limits and repetition"
    WHERE = "where"
    FILES = "options from files"
    ACCOUNT = "account on AWS"
    JOB = "job on AWS"
    NETWORK = "network and encryption on AWS"


class Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        defaults: dict[str, Any] = {"formatter_class": _Formatter, "allow_abbrev": False}
        super().__init__(*args, **defaults | kwargs)

    def short_usage(self) -> str:
        if self.usage:
            return self.usage
        listed = [action for action in self._actions if not isinstance(action, argparse._SubParsersAction)]
        words = [_positional(action) for action in listed if not action.option_strings]
        words += [f"{flags[-1]} {each.metavar}" for each in listed if each.required and (flags := each.option_strings)]
        return " ".join([self.prog, *words, "[options]"])

    def format_help(self) -> str:
        if self._subparsers is None:
            self.usage = self.short_usage()
        titles = list(map(str, Group))
        self._action_groups.sort(key=lambda group: titles.index(group.title) if group.title in titles else -1)
        return super().format_help()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            if hint := did_you_mean(value, action.choices):
                raise argparse.ArgumentError(None, f"there is no command {value!r}{hint}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n{self.prog} --help shows the usage\n")


class _Formatter(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def _positional(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    return {"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …"}.get(str(action.nargs), name)


def titled(parser: argparse.ArgumentParser, title: str) -> Any:
    groups = [group for group in parser._action_groups if group.title == title]
    return groups[0] if groups else parser.add_argument_group(title)


def words_of(spec: str) -> tuple[list[str], str | None]:
    words = spec.split()
    names = [word for word in words if word.startswith("-")]
    return names, next((word for word in words if word not in names), None)


def add(parser: Any, spec: str, text: str, **options: Any) -> None:
    names, value = words_of(spec)
    if value is None:
        parser.add_argument(*names, help=text, **{"action": "store_true"} | options)
    else:
        parser.add_argument(*(names or [value.lower()]), metavar=value, help=text, **options)


def add_command(
    commands: Any,
    name: str,
    text: str,
    *,
    run: str = "",
    usage: str | None = None,
    is_scripted: bool = False,
    sends_job: bool = False,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", usage=usage
    )
    # Commands with verbs of their own would override what a verb sets.
    if run:
        parser.set_defaults(
            refuse=parser.error, run=run, is_scripted=is_scripted, sends_job=sends_job, lacks=lambda arguments: None
        )
    return parser


def seconds(text: str) -> float:
    """Parse a duration; a bare number is in seconds."""
    return _read_duration(text, bare="s")


def seconds_with_unit(text: str) -> float:
    """Parse a duration that needs its unit, where a bare number could be taken for minutes or for seconds."""
    return _read_duration(text, bare=None)


def _read_duration(text: str, bare: str | None) -> float:
    try:
        return parse_duration(text, bare=bare)
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from None
