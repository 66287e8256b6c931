"""The commands of raysm, from its parsers."""

import functools
from collections.abc import Iterator

from raysm.cli.arguments import build_parser, families
from raysm.cli.parser import Parser

WIDTH = 96
"""Columns of the help that the page shows."""

FIRST = (
    "jobs",
    "ui",
    "rm",
    "status",
    "logs",
    "result",
    "metrics",
    "dashboard",
    "token",
    "debug",
    "tunnel",
    "config",
    "local",
)
"""The commands that the page shows in another order than ``raysm --help``, before the others of
their families."""


def commands() -> str:
    """Return what ``--help`` says of every command, by what it is for."""
    raysm = build_parser()
    parts = []
    for title, names in families(raysm).items():
        parts.append(f"## {title.capitalize()}")
        for name in sorted(
            names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)
        ):
            for words, parser in commands_of(f"raysm {name}", raysm.commands[name]):
                # As wide everywhere, not as the terminal.
                parser.formatter_class = functools.partial(parser.formatter_class, width=WIDTH)
                parts.append(f"### {words}\n\n```\n{parser.format_help().rstrip()}\n```")
    return "\n\n".join(parts)


def commands_of(name: str, parser: Parser) -> Iterator[tuple[str, Parser]]:
    """Yield the parser of every command that has no commands of its own."""
    for verb, command in parser.commands.items():
        yield from commands_of(f"{name} {verb}", command)
    if not parser.commands:
        yield name, parser
