"""Run ``raysm agents``: print a section for the AGENTS.md of a repository whose jobs raysm runs."""

from pathlib import Path

from raysm import __version__
from raysm.cli.arguments import Arguments, build_parser, families
from raysm.cli.console import Console

TEXT = Path(__file__).with_name("agents.md")
COMMANDS = "<!-- commands -->"
"""Where the text gets the list of commands of the installed raysm and its features."""


def run(arguments: Arguments, console: Console) -> None:
    # print, because console would wrap and color what goes into a file.
    print(section(), end="")


def section() -> str:
    """Return the section, in Markdown."""
    parser = build_parser()
    lines = []
    for title, names in families(parser).items():
        lines.append(f"- {title}:")
        for name in names:
            what = str(parser.commands[name].description)
            lines.append(f"  - `raysm {name}`: {what[0].lower()}{what[1:-1]}")
    text = TEXT.read_text(encoding="utf-8")
    return text.replace(COMMANDS, "\n".join(lines)).replace("VERSION", __version__)
