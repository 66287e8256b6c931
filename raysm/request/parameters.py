"""What a workload was called with, as small JSON values: the columns by which experiments are compared.

Pure. What flows in are the arguments of a function or a script, what flows out are texts and numbers by name. They are
kept beside a job's results, so that what looks like a secret, or is large, is named and not told.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

__all__ = ["Parameters", "of_arguments", "of_command_line", "of_fields", "plain", "typed"]

Parameters: TypeAlias = Mapping[str, str | int | float | bool | None]
"""By name."""

# By the name alone: what a value looks like tells nothing certain of it.
SECRET = re.compile(r"passw|secret|token|credential|api_?key|private", re.IGNORECASE)
"""Names of texts that are not told; of numbers (``max_tokens``) they are."""

MOST_CHARACTERS = 200
"""Of one text."""

MOST_PARAMETERS = 100
"""Of one workload: a configuration of a thousand values is a file, not a row of a table."""

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def of_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as parameters: of a mapping its members, ``config.lr``; of others their kind."""
    # Nested ones by dots, as the columns of a table have them.
    pairs = list(_flat("", arguments))
    # The first ones, in the order of the call: a record is read for every row of a table.
    return {name: plain(name, value) for name, value in pairs[:MOST_PARAMETERS]}


def of_fields(value: Any, **texts: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults as parameters.

    Args:
        value: A workload.
        texts: By their names, fields whose own value would be told by its kind alone.
    """
    # Defaults are left out: nobody chose them, and they would fill a table with columns of raysm's own.
    fields = {
        item.name: getattr(value, item.name)
        for item in dataclasses.fields(value)
        if getattr(value, item.name) != item.default
    } | texts
    return of_arguments({name: item for name, item in fields.items() if item is not None})


def of_command_line(args: Iterable[str]) -> dict[str, Any]:
    """Return a script's arguments as parameters: ``--lr 0.1``, ``--lr=0.1`` and ``lr=0.1`` alike; the others by place.

    Args:
        args: ``sys.argv[1:]``.
    """
    named: dict[str, Any] = {}
    left, place = list(args), 0
    while left and len(named) < MOST_PARAMETERS:
        word = left.pop(0)
        name, equals, text = word.partition("=")
        value: str | bool = text
        is_option = word.startswith("-") and not NUMBER.fullmatch(word)
        if is_option and not equals:
            # What follows an option is its value, unless it is an option itself: then the first one is a switch.
            value = left.pop(0) if left and (not left[0].startswith("-") or NUMBER.fullmatch(left[0])) else True
        elif not is_option and not (equals and name.isidentifier()):
            name, value, place = f"argument {place + 1}", word, place + 1
        name = name.lstrip("-") or word
        named[name] = plain(name, typed(value))
    return named


def typed(value: Any) -> Any:
    """Return the number or truth value that a text says; every other value as it is."""
    if not hasattr(value, "strip"):
        return value
    # Not yes and no, nor on and off: as words they may well be meant.
    words = {"true": True, "false": False}
    if NUMBER.fullmatch(value):
        number = float(value)
        # 18 digits fit into 64 bits, which is what tables and databases hold.
        is_whole = re.fullmatch(r"[-+]?\d{1,18}", value)
        return int(value) if is_whole else number if math.isfinite(number) else value
    return words.get(value.lower(), value)


def plain(name: str, value: Any) -> str | int | float | bool | None:
    """Return a value as a table shows it: numbers and short texts as they are, of all else what it is."""
    match value:
        case None | bool() | int():
            return value
        case float():
            # JSON has no NaN and no infinity.
            return value if math.isfinite(value) else str(value)
        case str():
            return "***" if SECRET.search(name) else _short(value)
        case list() | tuple() | set() | frozenset() if _is_short(value):
            return _short(f"[{', '.join(str(plain(name, item)) for item in value)}]")
    shape = getattr(value, "shape", None)
    return f"<{type(value).__name__}{f' {tuple(shape)}' if isinstance(shape, tuple) else ''}>"


def _is_short(values: Any) -> bool:
    return len(values) <= 8 and all(isinstance(item, (str, int, float, bool, type(None))) for item in values)


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(f"{name}.", value)
        else:
            yield name, value
