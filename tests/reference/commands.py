"""The page of the command line, from its parsers."""

import argparse

from raysm.cli import arguments, main
from tests.reference.docstrings import cell, code, read, sentence, table

SHARED_BY = 3
"""Options that so many commands take alike stand once; but for ``--json``, which says of each what it prints."""


def pages():
    """Return the page by its path below ``docs/reference``."""
    commands = dict(_commands("raysm", arguments.build_parser()))
    shared = _shared(commands)
    parts = [
        "# Commands",
        "Every command with its options; `raysm COMMAND --help` says the same. What several commands take alike stands "
        "at the end.",
        table(
            ["command", "what it does"],
            [[f"[{name}](#{_anchor(name)})", cell(_told(command))] for name, command in commands.items()],
        ),
    ]
    for name, command in commands.items():
        titles = [title for title, (takers, _) in shared.items() if name in takers]
        elsewhere = {_key(action) for title in titles for action in shared[title][1]}
        own = [action for action in _actions(command) if _key(action) not in elsewhere]
        parts += [f"## {name}", _told(command), f"```text\n{_usage(name, command)}\n```", _table(own)]
        parts += [" ".join(f"[{title}](#{_anchor(title)})." for title in titles)]
    for title, (takers, actions) in shared.items():
        parts += [f"## {title}", f"Of {_listed(takers)}.", _table(actions)]
    parts += ["## Exit status", read(main.main).returns]
    return {"commands.md": "\n\n".join(part for part in parts if part) + "\n"}


def _shared(commands):
    """Return by title the commands that share options, and these."""
    takers = {}
    for name, command in commands.items():
        for group in command._action_groups:
            for action in group._group_actions:
                if action.option_strings and action.dest not in ("help", "json"):
                    takers.setdefault(_key(action), (group.title, [], action))[1].append(name)
    shared = {}
    for title, names, action in takers.values():
        if len(names) >= SHARED_BY:
            by_default = "Options of " + _listed([name.removeprefix("raysm ") for name in names])
            heading = by_default if title == "options" else title[0].upper() + title[1:]
            shared.setdefault(heading, (names, []))[1].append(action)
    return shared


def _told(command):
    text = sentence(command.description)
    return text[0].upper() + text[1:].rstrip(".") + "."


def _usage(name, command):
    """Return what has to be given; what may be given is in the tables."""
    if command.usage:
        return command.usage
    required = [
        "(" + " | ".join(_shown(action) for action in group._group_actions) + ")"
        for group in command._mutually_exclusive_groups
        if group.required
    ]
    given = [
        _shown(action) + (" …" if action.nargs == "+" else "")
        for action in _actions(command)
        if not action.option_strings
    ]
    return " ".join([name, *given, *required, "[options]"])


def _commands(name, parser):
    """Yield the parser of every command that has no commands of its own."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in nested:
        for verb, command in action.choices.items():
            yield from _commands(f"{name} {verb}", command)
    if not nested:
        yield name, parser


def _actions(command):
    return [action for action in command._actions if not isinstance(action, argparse._HelpAction)]


def _key(action):
    choices = tuple(action.choices or ())
    return tuple(action.option_strings), action.dest, action.metavar, action.help, str(action.default), choices


def _listed(names):
    return ", ".join(names[:-1]) + f" and {names[-1]}"


def _anchor(title):
    return title.lower().replace(" ", "-").replace(",", "")


def _table(actions):
    rows = [[code(_shown(action)), cell(action.help or "")] for action in actions]
    return table(["option", "meaning"], rows) if rows else ""


def _shown(action):
    """Return how an option is given: ``-f, --follow``, ``--on local|aws``, ``SCRIPT``."""
    value = action.metavar or ("|".join(action.choices) if action.choices else (action.dest.upper()))
    if not action.option_strings:
        return value
    # Of an option that takes several words each has a name of its own.
    value = " ".join(value) if isinstance(value, tuple) else value
    flags = ", ".join(action.option_strings)
    return flags if action.nargs == 0 else f"{flags} {value}"
