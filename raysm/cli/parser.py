"""The argument parser, and how commands and arguments are added to it."""

import argparse
import enum
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from raysm.core.request.durations import parse_duration
from raysm.errors import InvalidRequest, did_you_mean

COMMAND = "command"
"""The attribute of parsed arguments that has the name of the command."""


class Family(enum.StrEnum):
    """Titles of the commands in ``raysm --help``, in their order; other titles come after them."""

    RUN = "run something"
    JOBS = "look after jobs"
    ENTER = "go into a running job"
    SESSIONS = "keep a cluster for many calls"
    ROWS = "run a job for each row of a table"
    SETUP = "set up"


class Group(enum.StrEnum):
    """Titles of the options that many commands share, in the order of --help.

    A command's own options come first.
    """

    PACKAGES = "packages and variables"
    RECORDS = "project, tags and tracking"
    LIMITS = "limits and repetition"
    WHERE = "where"
    FILES = "options from files"
    ACCOUNT = "account on AWS"
    JOB = "job on AWS"
    NETWORK = "network and encryption on AWS"


class Parser(argparse.ArgumentParser):
    family: str = ""
    """The title of this command in ``raysm --help``."""
    before: str = ""
    """The command of the family that this one stands before; if there is none, it stands last."""
    overview: tuple[str, ...] = ()
    """Lines for the examples of ``raysm`` itself; most commands have none."""
    examples: str = ""
    """Command lines for ``--help``, the most common use first; a line that begins with # describes
    those below it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        defaults: dict[str, Any] = {"formatter_class": _Formatter, "allow_abbrev": False}
        super().__init__(*args, **defaults | kwargs)

    def short_usage(self) -> str:
        if self.usage:
            return self.usage
        listed = [
            action for action in self._actions if not isinstance(action, argparse._SubParsersAction)
        ]
        words = [_positional(action) for action in listed if not action.option_strings]
        words += [
            f"{flags[-1]} {each.metavar}"
            for each in listed
            if each.required and (flags := each.option_strings)
        ]
        return " ".join([self.prog, *words, "[options]"])

    @property
    def commands(self) -> Mapping[str, "Parser"]:
        """The parsers of its own commands by name.

        For ``raysm session`` they are those of ``start``, ``list`` and so on.
        """
        nested = [
            action for action in self._actions if isinstance(action, argparse._SubParsersAction)
        ]
        return nested[0].choices if nested else {}

    def format_help(self) -> str:
        if self._subparsers is None:
            self.usage = self.short_usage()
        titles = list(map(str, Group))
        self._action_groups.sort(
            key=lambda group: titles.index(group.title) if group.title in titles else -1
        )
        return super().format_help()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            hint = did_you_mean(value, action.choices)
            # A command has few verbs, which the message of argparse lists.
            if hint or action.dest == COMMAND:
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
    family: str = "",
    before: str = "",
    examples: str = "",
    overview: Iterable[str] = (),
) -> Parser:
    """Add a command to those of ``raysm``, or a verb to those of a command, and return its parser.

    Args:
        commands: What ``add_subparsers`` has returned.
        name: The name of the command or verb.
        text: What it does, for ``--help``.
        run: The function that runs it, ``module:function``: its modules are imported only then. A
            verb has none.
        usage: The first line of its help, if it does not follow from the arguments.
        is_scripted: Whether it takes arguments of a user's program after ``--``.
        sends_job: Whether it sends a job and follows it.
        family: Title of the command in ``raysm --help``.
        before: The command of that family before which it is listed there.
        examples: Its examples; see ``Parser.examples``.
        overview: Its lines among the examples of ``raysm`` itself.
    """
    parser: Parser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", usage=usage
    )
    parser.family = family
    parser.before = before
    parser.overview = tuple(overview)
    parser.examples = examples
    if examples:
        parser.epilog = "\n".join(["examples:", *(f"  {line}" for line in examples.splitlines())])
    # Verbs must not override what their command sets.
    if run:
        parser.set_defaults(
            refuse=parser.error,
            run=run,
            is_scripted=is_scripted,
            sends_job=sends_job,
            workload=None,
            lacks=lambda arguments: None,
            own_options=lambda arguments: {},
            hints={},
        )
    return parser


def names(text: str) -> list[str]:
    """Parse a list of names, ``a,b``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of names; write us-east-1,eu-west-1"
        )
    return list(dict.fromkeys(parts))


def seconds(text: str) -> float:
    """Parse a duration; a bare number is in seconds."""
    return _read_duration(text, bare="s")


def seconds_with_unit(text: str) -> float:
    """Parse a duration that needs its unit: a bare number might be minutes or seconds."""
    return _read_duration(text, bare=None)


def _read_duration(text: str, bare: str | None) -> float:
    try:
        return parse_duration(text, bare=bare)
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from None
