"""What the flags of a command line choose: the layer of options above those of every file."""

import argparse
import re
import tomllib
import types
import typing
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from raysm.cli.flags import CHANGE, TARGETS_OWN, Flag
from raysm.client.settings import TARGETS, Key, Layer, check_values, hint_of, nested, schema
from raysm.errors import InvalidRequest
from raysm.request.codec import hints_of

__all__ = ["flag_layer"]


def flag_layer(arguments: argparse.Namespace, on: str) -> Layer:
    """Return what the flags of a command line choose.

    Args:
        arguments: The parsed ones, and which flags the command has.
        on: Where the job goes, as far as other places say it.

    Raises:
        InvalidRequest: A value is malformed, or belongs to another target.
    """
    # What target a flag is of depends on where the job goes, and that may be said by a flag beside it.
    on = arguments.on or on
    values: dict[Key, Any] = {}
    names: dict[Key, str] = {}
    for flag in arguments.flags:
        value = getattr(arguments, flag.dest)
        if value is not None:
            chosen = dict(_choices(flag, value, on))
            values |= chosen
            names |= dict.fromkeys(chosen, flag.name)
    for text in getattr(arguments, "set", None) or ():
        key, value = _changed(text)
        values[key], names[key] = value, CHANGE

    def origin(key: Key) -> str:
        return next((name for chosen, name in names.items() if chosen[: len(key)] == key or key == chosen), "a flag")

    # Checked as the tables of a file are, so that a message has the flag where it would have the line.
    return Layer(values=check_values(nested(values), schema(workload=True), origin), origin=origin)


def _choices(flag: Flag, value: Any, on: str) -> Iterator[tuple[Key, Any]]:
    key = flag.key
    if key[0] == TARGETS_OWN:
        key = (_target_of(flag, on), key[1])
    if flag.metavar is None or "=" not in flag.metavar:
        yield key, value
        return
    for name, text in _named(value, flag).items():
        # Of a channel its URI alone: what a file says of it beside that still applies.
        yield ((*key, name, "uri") if key == ("inputs",) else (*key, name)), text


def _target_of(flag: Flag, on: str) -> str:
    """Return the table of the target that a flag is of: the chosen one's."""
    having = [name for name, kind in TARGETS.items() if flag.key[1] in hints_of(kind)]
    if on not in having:
        raise InvalidRequest(f"{flag.name} belongs to --on {having[0]}")
    return on


NOUNS = {
    "inputs": "channel",
    "environment": "variable",
    "hyperparameters": "hyperparameter",
    "tags": "tag",
    "workload.space": "parameter",
}


def _named(texts: list[str], flag: Flag) -> dict[str, str]:
    """Return the values of a repeated NAME=VALUE flag by their names."""
    values: dict[str, str] = {}
    noun = NOUNS[flag.path]
    for text in texts:
        name, equals, content = text.partition("=")
        # A variable may be empty on purpose; a channel or a tag without content is a slip.
        if not (name and equals and (content or noun == "variable")):
            example = (
                f"; for example {flag.name} {_channel_of(text)}={text}" if noun == "channel" and not equals else ""
            )
            raise InvalidRequest(f"{flag.name} takes {flag.metavar}, got {text!r}{example}")
        # Else the last one would win without a word.
        if name in values:
            raise InvalidRequest(f"the {noun} {name!r} is given twice: {flag.name} {name}={values[name]} and {text}")
        values[name] = content
    return values


def _channel_of(path: str) -> str:
    """Return a name for the channel of an input, from its path."""
    return re.sub(r"[^A-Za-z0-9]+", "-", PurePath(path).stem).strip("-") or "data"


def _changed(text: str) -> tuple[Key, Any]:
    """Return the option and the value of a ``--set OPTION=VALUE``; what is no text is written as in TOML."""
    path, equals, value = text.partition("=")
    key = tuple(path.strip().split("."))
    if not (path and equals):
        raise InvalidRequest(f"{CHANGE} takes OPTION=VALUE, as in {CHANGE} cluster.volume_gb=100, got {text!r}")
    try:
        data: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        data = value  # ml.m5.large needs no quotes here
    return key, value if _is_text(key) and not isinstance(data, str) else data


def _is_text(key: Key) -> bool:
    """Whether the option takes text alone: then 10 is "10"."""
    try:
        hint = hint_of(key)
    except (KeyError, TypeError):  # said later, with the nearest one
        return False
    return hint is str or (isinstance(hint, types.UnionType) and set(typing.get_args(hint)) == {str, types.NoneType})
