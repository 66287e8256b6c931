"""The options of a command, merged from project file, profile, request file and flags.

``raysm config`` prints them, each with its origin.
"""

import argparse
import dataclasses
import json
import re
import shlex
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.console import say_aside
from raysm.cli.options import CHANGE, TARGETS_OWN, Flag
from raysm.core.client.options import default_of
from raysm.core.client.service import Service, connect
from raysm.core.client.settings import (
    TARGETS,
    Key,
    Layer,
    Project,
    Settings,
    check_values,
    find_project_file,
    hint_of,
    nested,
    read_request,
    schema,
)
from raysm.core.request import Ports
from raysm.core.request.codec import hints_of, to_json
from raysm.core.request.workload import ScriptWorkload, Workload
from raysm.errors import InvalidRequest


def flag_layer(arguments: argparse.Namespace, on: str) -> Layer:
    # --image belongs to the chosen target, and a flag may choose that.
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
        key, value = _parse_set(text)
        values[key] = value
        names[key] = CHANGE

    def origin(key: Key) -> str:
        return next(
            (name for chosen, name in names.items() if chosen[: len(key)] == key or key == chosen),
            "a flag",
        )

    # Checked like the tables of a file: a message names the flag instead of the line.
    return Layer(values=check_values(nested(values), schema(workload=True), origin), origin=origin)


def _choices(flag: Flag, value: Any, on: str) -> Iterator[tuple[Key, Any]]:
    key = flag.key
    if key[0] == TARGETS_OWN:
        targets = [name for name, kind in TARGETS.items() if key[1] in hints_of(kind)]
        if on not in targets:
            remedy = (
                "a job of this machine is found in any region by its name"
                if key[1] == "region"
                else ""
            )
            raise InvalidRequest(f"{flag.name} belongs to --on {targets[0]}", remedy=remedy)
        key = (on, key[1])
    if flag.metavar is None or "=" not in flag.metavar:
        yield key, value
        return
    named = _parse_named(value, flag)
    if key == ("metrics",):
        yield key, [{"name": name, "regex": regex} for name, regex in named.items()]
        return
    for name, text in named.items():
        # Only the URI of a channel: its other options from a file still apply.
        yield ((*key, name, "uri") if key == ("inputs",) else (*key, name)), text


def _parse_named(texts: list[str], flag: Flag) -> dict[str, str]:
    values: dict[str, str] = {}
    noun = flag.noun or flag.path.removesuffix("s")
    for text in texts:
        name, equals, content = text.partition("=")
        # A variable and a hyperparameter may be empty; an empty channel or tag is a mistake.
        if not (name and equals and (content or noun in ("variable", "hyperparameter"))):
            channel = re.sub(r"[^A-Za-z0-9]+", "-", PurePath(text).stem).strip("-") or "data"
            example = (
                f"; for example {flag.name} {channel}={shlex.quote(text)}"
                if noun == "channel" and not equals
                else ""
            )
            raise InvalidRequest(f"{flag.name} takes {flag.metavar}, got {text!r}{example}")
        # Otherwise the last one would win silently.
        if name in values:
            raise InvalidRequest(
                f"the {noun} {name!r} is given twice: {flag.name} {name}={values[name]} and {text}"
            )
        values[name] = content
    return values


def _parse_set(text: str) -> tuple[Key, Any]:
    path, equals, value = text.partition("=")
    key = tuple(path.strip().split("."))
    if not (path and equals):
        raise InvalidRequest(
            f"{CHANGE} takes OPTION=VALUE, as in {CHANGE} cluster.volume_gb=100, got {text!r}"
        )
    try:
        data: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        data = value  # ml.m5.large needs no quotes here
    return key, value if _is_text(key) and not isinstance(data, str) else data


def _is_text(key: Key) -> bool:
    """Return whether the option takes text only: then 10 means "10"."""
    try:
        hint = hint_of(key)
    except (KeyError, TypeError):  # reported later, with the nearest option
        return False
    return hint is str or (
        isinstance(hint, types.UnionType) and set(typing.get_args(hint)) == {str, types.NoneType}
    )


NO_ROLE = "arn:aws:iam::000000000000:role/none"
"""A stand-in: a target needs a role, but planning and reading do not use it."""


def read_settings(arguments: Arguments, *files: Layer) -> Settings:
    layers = [*_file_layers(arguments), *files]
    # Merged once without flags: a flag that several targets have, such as --image, sets that of the
    # files' target.
    flags = flag_layer(arguments, Settings(layers).on.kind)
    return Settings([*layers, _workload_layer(arguments), flags])


def service_to_read(arguments: Arguments) -> Service:
    """Return the service of a command that only reads jobs, and therefore needs no role."""
    return connect(read_settings(arguments).target(role=NO_ROLE))


def project_file(arguments: Arguments) -> Path | None:
    named: Path | None = arguments.project_file
    return named if named is not None else find_project_file(Path.cwd(), Path.home())


def _file_layers(arguments: Arguments) -> list[Layer]:
    file = project_file(arguments)
    profile = arguments.config_profile
    if file is None and profile is not None:
        raise InvalidRequest(
            f"--config-profile {profile}: there is no raysm.toml in {Path.cwd()} or above it"
        )
    if file is not None and arguments.project_file is None and arguments.command != "config":
        # The user has not named it. To stderr, because programs read the answer of many commands on
        # stdout.
        say_aside(f"raysm: options of {file}")
    layers = [] if file is None else Project.read(file).chosen(profile)
    # Commands that only read jobs have no --request.
    request = getattr(arguments, "request", None)
    return layers if request is None else [*layers, read_request(request)]


def _workload_layer(arguments: Arguments) -> Layer:
    values: dict[Key, object] = {}
    kind: type[Workload] | None = arguments.workload
    if kind is not None:
        values["workload", "kind"] = kind.kind
    script = getattr(arguments, "script", None)
    if script is not None:
        values["workload", "script"] = script
    args = list(arguments.script_args)
    # With a request file, which names the script, they are its arguments.
    if (
        issubclass(kind or Workload, ScriptWorkload)
        and script is None
        and arguments.request is None
        and args
    ):
        values |= {
            ("workload", "command"): True,
            ("workload", "script"): args.pop(0),
            ("workload", "args"): args,
        }
    elif args:
        values["workload", "args"] = args
    return Layer(
        values=values | arguments.own_options(arguments),
        origin=lambda key: f"raysm {arguments.command}",
    )


WIDE = 80


def run(arguments: Arguments, console: Console) -> None:
    settings = read_settings(arguments)
    file = project_file(arguments)
    options = dict(effective(settings))
    if arguments.json:
        shown = {key: {"value": value, "from": origin} for key, (value, origin) in options.items()}
        answer = {
            "file": None if file is None else str(file),
            "profile": arguments.config_profile,
            "options": shown,
        }
        print(json.dumps(answer, indent=1))
        return
    lines = {
        # TOML has no null, so an option without a value is a comment.
        f"# {key} has no value" if value is None else f"{key} = {toml(value)}": origin
        for key, (value, origin) in options.items()
    }
    # One long value would move all origins out of sight.
    width = max(len(line) for line in lines if len(line) < WIDE)
    console.print(
        Text(f"# project file: {file or 'none (raysm.toml, here or above)'}"), soft_wrap=True
    )
    for line, origin in lines.items():
        console.print(Text(f"{line:<{width}}  # {origin}"), soft_wrap=True)


def toml(value: Any) -> str:
    match value:
        case dict():
            members = ", ".join(
                f"{json.dumps(key)} = {toml(item)}"
                for key, item in value.items()
                if item is not None
            )
            return f"{{ {members} }}"
        case list() | tuple():
            return f"[{', '.join(map(toml, value))}]"
        case str():
            # TOML has JSON's escapes, and also requires DEL to be escaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def effective(settings: Settings) -> Iterator[tuple[str, tuple[Any, str]]]:
    hints = schema(workload=True)
    chosen = settings.on.kind
    tables = {"on": hints["on"], chosen: settings.on} | {
        name: hint
        for name, hint in hints.items()
        if not (isinstance(hint, type) and hasattr(hint, "kind"))
    }
    yield "on", (chosen, settings.origin(("on",)))
    for name, hint in tables.items():
        if name not in ("on", "workload"):
            yield from _options(settings, (name,), hint)
    for key, value in settings.values.items():
        if key[0] == "workload":
            yield ".".join(key), (value, settings.origin(key))


def _options(settings: Settings, key: Key, hint: Any) -> Iterator[tuple[str, tuple[Any, str]]]:
    if dataclasses.is_dataclass(hint) and hint is not Ports:
        for field in dataclasses.fields(hint):
            inner = (*key, field.name)
            default = None if field.default is dataclasses.MISSING else to_json(field.default)
            yield ".".join(inner), (settings.values.get(inner, default), settings.origin(inner))
        return
    if typing.get_origin(hint) is Mapping or hint is Ports:
        for inner in (chosen for chosen in settings.values if chosen[: len(key)] == key):
            yield ".".join(inner), (settings.values[inner], settings.origin(inner))
        return
    yield (
        ".".join(key),
        (settings.values.get(key, to_json(default_of(key[0]))), settings.origin(key)),
    )
