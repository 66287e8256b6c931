"""The arguments of the commands about any job, the options of all jobs, and the examples of all commands."""

import dataclasses
import shlex
import typing

import pytest

from raysm.cli.arguments import build_parser, parse
from raysm.core.client.options import SubmitKeywords
from raysm.core.client.settings import OWN, TARGETS, schema
from raysm.core.request import JobRequest

pytestmark = pytest.mark.smoke


def test_every_keyword_of_submit_is_an_option_of_files_and_of_the_command_line():
    keywords = set(typing.get_type_hints(SubmitKeywords))
    assert set(schema(workload=True)) - set(TARGETS) == keywords | {"workload"}
    assert keywords - {field.name for field in dataclasses.fields(JobRequest)} - {"on"} == set(OWN)


def examples(name, parser):
    """Yield the command lines that --help of a command and of its verbs shows, each with the words of its command."""
    for line in parser.examples.splitlines():
        if not line.startswith("# "):
            yield name, line
    for verb, nested in parser.commands.items():
        yield from examples(f"{name} {verb}", nested)


@pytest.mark.parametrize(
    ("command", "line"),
    [pytest.param(name, line, id=line) for name, line in examples("raysm", build_parser())],
)
def test_an_example_is_of_its_command_and_taken_as_it_stands(command, line):
    words = shlex.split(line)
    assert words[: len(command.split())] == command.split()
    assert parse(words[1:]).command == words[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["result", "a", "--timeout", "5"], {"timeout": 5.0}),
        (["logs", "-f", "a", "--tail", "3"], {"follow": True, "tail": 3}),
    ],
)
def test_what_a_command_takes(words, expected):
    assert expected.items() <= vars(parse(words)).items()
