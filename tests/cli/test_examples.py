"""Examples of the commands: what --help shows is taken as it stands."""

import shlex

import pytest

from raysm.cli.arguments import parse
from raysm.cli.examples import EXAMPLES


@pytest.mark.parametrize(
    ("command", "line"),
    [
        pytest.param(command, line, id=line)
        for command, text in EXAMPLES.items()
        for line in text.splitlines()
        if not line.startswith("# ")
    ],
)
def test_an_example_is_of_its_command_and_taken_as_it_stands(command, line):
    words = shlex.split(line)
    assert words[: len(command.split())] == command.split()
    assert parse(words[1:]).command == words[1]


def test_what_an_example_is_of_is_said_before_it():
    assert not [text for text in EXAMPLES.values() if text.splitlines()[-1].startswith("# ")]
