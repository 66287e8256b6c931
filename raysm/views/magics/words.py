"""What ``%raysm`` and ``%%raysm`` understand: a line of text flows in, a checked value flows out. Pure.

Where ipyparallel has a word for an option of ``%%px``, it is understood too:
https://ipyparallel.readthedocs.io/en/latest/tutorial/magics.html
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raysm.errors import InvalidRequest
from raysm.views.magics.options import Option, identifier, nearest, read_options, split

__all__ = [
    "ALL",
    "CELL",
    "CELL_OPTIONS",
    "COMMANDS",
    "CellLine",
    "Command",
    "CommandLine",
    "HEAD",
    "read_cell",
    "read_command",
    "seconds",
    "usage",
]

CELL = "%%raysm"
LINE = "%raysm"
HEAD, ALL = "head", "all"
"""The namespace of the session itself, and those of all instances."""
UNITS_S = {"": 60.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or not all(name.isidentifier() for name in names):
        raise ValueError("names of variables, a,b")
    return names


def _instances(text: str) -> tuple[str, ...]:
    # One that is named twice, or beside all of them, would run the cell twice.
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or (len(names) > 1 and {ALL, HEAD} & {*names}):
        raise ValueError(f"{HEAD}, {ALL}, or names of instances, algo-1,algo-2")
    return names


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise ValueError("a number from 1 on")
    return int(text)


def _seconds(text: str) -> float:
    """Return a time; of a bare number, the minutes that it is."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text)
    if match is None or not float(match[1]):
        raise ValueError("a time, 30m, 90s or 2h; a bare number is minutes")
    return float(match[1]) * UNITS_S[match[2] or ""]


def _usd(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number of USD") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class CellLine:
    """How a cell is to run."""

    session: str | None = None
    """Its session's name, or the variable that holds it; None is the one that is connected."""
    push: tuple[str, ...] = ()
    """Variables of the notebook that are sent before."""
    pull: tuple[str, ...] = ()
    """Variables of the session that are brought afterwards."""
    out: str | None = None
    """The variable that gets the future."""
    on: tuple[str, ...] = ()
    """Instances, or HEAD, or ALL; empty is the head."""
    is_async: bool = False
    """Whether nobody waits for it."""
    is_awaited: bool = False
    """Whether its line says that it is waited for, as it is anyway."""
    is_whole: bool = False
    """Whether the source is the whole cell, with no line of the magic's own before it."""


CELL_OPTIONS = (
    Option(("-s", "--session"), "session", "the session's name, or the variable that holds it", "NAME"),
    Option(("--push",), "push", "variables of the notebook that are sent before", "NAMES", _names),
    Option(("--pull",), "pull", "variables of the session that are brought afterwards", "NAMES", _names),
    Option(("-o", "--out"), "out", "the variable that gets the future", "NAME", identifier),
    Option(("--on", "--targets", "-t"), "on", "head, all, or instances: algo-1,algo-2", "WHERE", _instances),
    Option(("--block", "-b"), "is_awaited", "wait, as is done anyway"),
    Option(("--async", "-a", "--noblock"), "is_async", "do not wait: the future is the cell's value"),
    Option(("--whole",), "is_whole", "the source is the whole cell: what `%raysm on` says"),
)


UNSHOWN = ("is_whole", "is_awaited")
"""What nobody needs to type: `%raysm on` writes the one, the other changes nothing."""


def read_cell(line: str) -> CellLine:
    """Read what stands behind ``%%raysm``.

    Raises:
        InvalidRequest: It says what cannot be; the message says what may be meant.
    """
    words, fields = read_options(split(line, CELL), CELL_OPTIONS, CELL)
    if words:
        is_command = f"; {LINE} {words[0]}, with one %, is a command" if words[0] in COMMANDS else ""
        raise InvalidRequest(f"{CELL} takes options alone, got {words[0]!r}{is_command}; {usage()}")
    cell = CellLine(**fields)
    # ipyparallel takes the last of the two: here a line says one thing.
    if cell.is_async and cell.is_awaited:
        raise InvalidRequest(f"{CELL} --block waits for the cell, and --async does not: leave one of them out")
    # Refused, not ignored: the variable would be missing, or worse, an old one.
    if cell.is_async and cell.pull:
        raise InvalidRequest(
            f"{CELL} --pull brings what there is at the cell's end, which --async does not await: leave --pull out, "
            f"and have it by `{CELL} --pull {','.join(cell.pull)}` once the future is done"
        )
    return cell


@dataclass(frozen=True, slots=True)
class Command:
    """One word of ``%raysm``."""

    summary: str
    """What it does, on one line."""
    words: str = ""
    """What its one word is called; empty: it takes none. In brackets: it may be left out."""
    options: tuple[Option, ...] = ()
    """What else it takes."""

    def usage(self, name: str) -> str:
        """Return its usage."""
        return " ".join([LINE, name, *([self.words] if self.words else []), *(each.usage() for each in self.options)])


PROFILE = Option(("--profile",), "profile", "of raysm.toml: where, and on what", "NAME")

COMMANDS: Mapping[str, Command] = {
    # Its options are those of raysm.Session, by the names that people type.
    "start": Command(
        "start a session, and connect to it",
        "[NAME]",
        (
            Option(("--instances", "-n"), "instances", "how many", "NUMBER", _count),
            Option(("--type",), "instance_type", "SageMaker's word, ml.g5.2xlarge", "TYPE"),
            Option(("--idle",), "idle_timeout_s", "without a call it ends after it", "TIME", _seconds),
            Option(("--detached",), "idle_timeout_detached_s", "the same without any client", "TIME", _seconds),
            Option(("--budget",), "budget_usd", "what it may cost", "USD", _usd),
            PROFILE,
        ),
    ),
    "connect": Command("connect to a session that runs, by its name or the variable that holds it", "NAME", (PROFILE,)),
    "status": Command("show the session: instances, cost, when it ends", "[NAME]"),
    "result": Command("await the latest cell that was sent with --async, and show how it ended"),
    "dashboard": Command("show Ray's dashboard", "[NAME]"),
    "keep": Command("put off the idle end for so long from now", "TIME"),
    "close": Command("end the session, and its job", "[NAME]"),
    "on": Command("run every cell in the session, until `%raysm off`", "[NAME]"),
    "off": Command("run cells here again"),
}
"""All there are. Each is carried out by the method of ``Magics`` that has its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandLine:
    """A command with what it is given."""

    name: str
    """One of ``COMMANDS``."""
    word: str | None
    """Its one word."""
    options: Mapping[str, Any]
    """Its options' values, by field."""


def read_command(line: str) -> CommandLine:
    """Read what stands behind ``%raysm``; nothing is ``status``.

    Raises:
        InvalidRequest: It says what cannot be; the message says what may be meant.
    """
    # Nothing is status, the one command that changes nothing.
    name, *rest = split(line, LINE) or ["status"]
    if name not in COMMANDS:
        raise InvalidRequest(f"{LINE} has no command {name!r}{nearest(name, COMMANDS)}")
    command = COMMANDS[name]
    words, options = read_options(rest, command.options, f"{LINE} {name}")
    _check_words(name, command, words)
    return CommandLine(name=name, word=words[0] if words else None, options=options)


def seconds(text: str) -> float:
    """Return the seconds of ``60``, which is minutes, of ``90s`` and ``2h``.

    Raises:
        InvalidRequest: It is no time.
    """
    try:
        return _seconds(text)
    except ValueError as error:
        raise InvalidRequest(f"{LINE} keep needs {error}, got {text!r}") from None


def usage() -> str:
    """Return how a cell is run, on one line."""
    return " ".join([CELL, *(option.usage() for option in CELL_OPTIONS if option.field not in UNSHOWN)])


def _check_words(name: str, command: Command, words: Sequence[str]) -> None:
    # The usage is the rule: brackets mean the same to people and to this line.
    least = 1 if command.words and not command.words.startswith("[") else 0
    if len(words) < least:
        raise InvalidRequest(f"{LINE} {name} needs {command.words}: {command.usage(name)}")
    if len(words) > (1 if command.words else 0):
        raise InvalidRequest(f"{LINE} {name} does not take {words[-1]!r}: {command.usage(name)}")
