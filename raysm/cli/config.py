"""``raysm config``: the options that apply here, and the place that chose each of them.

What flows in are the settings of a command line and its files; what flows out is TOML, each value with its origin as
a comment: a project file that says the same.
"""

import dataclasses
import json
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.choosing import project_file, read_settings
from raysm.client.options import default_of
from raysm.client.settings import Key, Settings, schema
from raysm.request import Ports
from raysm.request.codec import to_json

__all__ = ["effective", "run", "toml"]

WIDE = 80
"""Characters of a line whose origin may stand further to the right than the others'."""


def run(arguments: Arguments, console: Console) -> None:
    """Print every option with its value and origin.

    Raises:
        InvalidRequest: A file cannot be read, or says what there is not.
    """
    settings, file = read_settings(arguments), project_file(arguments)
    options = dict(effective(settings))
    if arguments.json:
        shown = {key: {"value": value, "from": origin} for key, (value, origin) in options.items()}
        answer = {"file": None if file is None else str(file), "profile": arguments.config_profile, "options": shown}
        print(json.dumps(answer, indent=1))
        return
    lines = {_line(key, value): origin for key, (value, origin) in options.items()}
    # One long value would push all the origins out of sight.
    width = max(len(line) for line in lines if len(line) < WIDE)
    console.print(Text(f"# project file: {file or 'none (raysm.toml, here or above)'}"), soft_wrap=True)
    for line, origin in lines.items():
        console.print(Text(f"{line:<{width}}  # {origin}"), soft_wrap=True)


def _line(key: str, value: Any) -> str:
    """Return the line of a project file that chooses a value."""
    # TOML has no word for nothing: an option without a value is one that no file names.
    return f"# {key} has no value" if value is None else f"{key} = {toml(value)}"


def toml(value: Any) -> str:
    """Return a value of JSON, but null, as TOML writes it."""
    match value:
        case dict():
            members = ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items() if item is not None)
            return f"{{ {members} }}"
        case list() | tuple():
            return f"[{', '.join(map(toml, value))}]"
        case str():
            # JSON's escapes are TOML's too; but TOML takes no DEL as it is.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def effective(settings: Settings) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Yield each option's path with its value and where that comes from; of targets those of the chosen one."""
    hints = schema(workload=True)
    chosen = settings.on.kind
    tables = {"on": hints["on"], chosen: settings.on} | {
        name: hint for name, hint in hints.items() if not (isinstance(hint, type) and hasattr(hint, "kind"))
    }
    yield "on", (chosen, settings.origin(("on",)))
    for name, hint in tables.items():
        if name not in ("on", "workload"):
            yield from _options(settings, (name,), hint)
    for key, value in settings.values.items():
        if key[0] == "workload":
            yield ".".join(key), (value, settings.origin(key))


def _options(settings: Settings, key: Key, hint: Any) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Yield the options of a table, or the one option."""
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
    yield ".".join(key), (settings.values.get(key, to_json(default_of(key[0]))), settings.origin(key))
