"""The page of the command line, from its parsers."""

import argparse

from raysm.cli import arguments, main
from raysm.cli.examples import EXAMPLES
from raysm.cli.parser import GROUPS
from tests.reference.docstrings import cell, code, read, sentence, table

LEAST_SHARE = 0.5
"""A command that takes less of a group of options has them in its own table."""


def pages():
    commands = dict(commands_of("raysm", arguments.build_parser()))
    shared = _shared(commands)
    families = {
        title: [name for verb in verbs for name in commands if name.split()[1] == verb]
        for title, verbs in arguments.FAMILIES.items()
    }
    parts = [
        "# Commands",
        "Each command with examples and with its own options; `raysm COMMAND --help` says the same. What several take "
        "alike stands [at the end](#what-several-commands-take), and is linked from each.",
        *(_contents(title, {name: commands[name] for name in names}) for title, names in families.items()),
        "**And:** [what several commands take](#what-several-commands-take), [exit status](#exit-status).",
    ]
    for title, names in families.items():
        parts += [f"## {_capital(title)}"]
        for name in names:
            parts += _command(name, commands[name], shared)
    parts += ["## What several commands take"]
    for title, takers in shared.items():
        parts += [f"### {_capital(title)}", _table(takers, lambda one, by=takers: _but(one, by, commands))]
    parts += ["## Exit status", read(main.main).returns]
    return {"commands.md": "\n\n".join(part for part in parts if part) + "\n"}


def _contents(title, commands):
    rows = [[f"[{name}](#{anchor(name)})", cell(told(command).split(". ")[0])] for name, command in commands.items()]
    return table([_capital(title), ""], rows)


def _command(name, command, shared):
    titles = [title for title, takers in shared.items() if any(name in names for names in takers.values())]
    elsewhere = {action for title in titles for action, names in shared[title].items() if name in names}
    own = [action for action in _actions(command) if _Same(action) not in elsewhere]
    yield f"### {name}"
    yield told(command)
    yield f"```text\n{EXAMPLES[name]}\n```" if name in EXAMPLES else ""
    yield f"`{command.short_usage()}`"
    yield _table([_Same(action) for action in own])
    yield "It takes too: " + ", ".join(f"[{title}](#{anchor(title)})" for title in titles) + "." if titles else ""


class _Same:
    """An option; equal to another command's that is said in the same words."""

    def __init__(self, action):
        self.action = action
        choices = tuple(action.choices or ())
        self._key = (*action.option_strings, action.dest, action.metavar, action.help, str(action.default), choices)

    def __eq__(self, other):
        return self._key == other._key

    def __hash__(self):
        return hash(self._key)


def _shared(commands):
    """Return, by the title of a group, its options with the commands that take each."""
    shared = {title: {} for title in GROUPS}
    for name, command in commands.items():
        for group in command._action_groups:
            for action in group._group_actions if group.title in GROUPS else ():
                shared[group.title].setdefault(_Same(action), []).append(name)
    for title, takers in shared.items():
        # What one command says in words of its own stays with it.
        common = {action: names for action, names in takers.items() if len(names) > 2}
        few = {name for name in commands if sum(name in names for names in common.values()) < LEAST_SHARE * len(common)}
        shared[title] = {action: [name for name in names if name not in few] for action, names in common.items()}
    return shared


def _but(option, takers, commands):
    """Return which commands alone take an option of a group, or which do not, whichever is less to say."""
    every = list(dict.fromkeys(name for names in takers.values() for name in names))
    # Another command's option of this name may be said in words of its own, in its own table.
    lacking = [name for name in every if option.action.option_strings[0] not in commands[name]._option_string_actions]
    if not lacking:
        return ""
    having = [name for name in every if name not in lacking]
    word, listed = ("not", lacking) if len(lacking) < len(having) else ("only", having)
    return f" ({word} {', '.join(name.removeprefix('raysm ') for name in listed)})"


def told(command):
    return _capital(sentence(command.description)).rstrip(".") + "."


def _capital(text):
    return text[0].upper() + text[1:]


def commands_of(name, parser):
    """Yield the parser of every command that has no commands of its own."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in nested:
        for verb, command in action.choices.items():
            yield from commands_of(f"{name} {verb}", command)
    if not nested:
        yield name, parser


def _actions(command):
    return [action for action in command._actions if not isinstance(action, argparse._HelpAction)]


def anchor(title):
    return title.lower().replace(" ", "-").replace(",", "")


def _table(options, note=lambda option: ""):
    rows = [[code(_shown(one.action)), cell((one.action.help or "") + note(one))] for one in options]
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
