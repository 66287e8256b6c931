"""The commands of raysm, from its parsers."""

import argparse
import functools
from collections.abc import Iterator

from raysm.cli.arguments import FAMILIES, build_parser

WIDTH = 96
"""Columns of the help that the page shows."""


def commands() -> str:
    """Return what ``--help`` says of every command, by what it is for."""
    parsers = dict(commands_of("raysm", build_parser()))
    parts = []
    for title, verbs in FAMILIES.items():
        parts.append(f"## {title.capitalize()}")
        for name, parser in parsers.items():
            if name.split()[1] in verbs:
                # As wide everywhere, not as the terminal.
                parser.formatter_class = functools.partial(parser.formatter_class, width=WIDTH)
                parts.append(f"### {name}\n\n```\n{parser.format_help().rstrip()}\n```")
    return "\n\n".join(parts)


def commands_of(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the parser of every command that has no commands of its own."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in nested:
        for verb, command in action.choices.items():
            yield from commands_of(f"{name} {verb}", command)
    if not nested:
        yield name, parser
