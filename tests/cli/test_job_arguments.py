"""The arguments of the commands that send jobs, and of those about jobs and sessions."""

import argparse
import dataclasses
import shlex
import typing
from datetime import timedelta

import pytest

from raysm.cli.arguments import parse
from raysm.cli.examples import EXAMPLES
from raysm.cli.options import add_entered
from raysm.core.client.options import SubmitKeywords
from raysm.core.client.settings import OWN, TARGETS, schema
from raysm.core.request import JobRequest

pytestmark = pytest.mark.smoke


def test_every_keyword_of_submit_is_an_option_of_files_and_of_the_command_line():
    keywords = set(typing.get_type_hints(SubmitKeywords))
    assert set(schema(workload=True)) - set(TARGETS) == keywords | {"workload"}
    assert keywords - {field.name for field in dataclasses.fields(JobRequest)} - {"on"} == set(OWN)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--instance", "algo-2", "--region", "eu-west-1"], {"instance": "algo-2", "region": "eu-west-1"}),
        (["--on", "algo-2"], {"instance": "algo-2", "on": None}),
        (["--on", "aws", "--on", "algo-12"], {"instance": "algo-12", "on": "aws"}),
    ],
)
def test_an_instance_may_be_named_where_the_place_is(words, expected):
    parser = argparse.ArgumentParser()
    add_entered(parser)
    assert expected.items() <= vars(parser.parse_args(words)).items()


@pytest.mark.parametrize(("text", "days"), [("7d", 7.0), ("12h", 0.5), ("36m", 0.025)])
def test_an_age_is_a_number_with_its_unit(text, days):
    assert parse(["local", "clean", "--older-than", text]).older_than == timedelta(days=days)


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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["result", "a", "--timeout", "5"], {"timeout": 5.0}),
        (["jobs", "--metrics", "loss:min"], {"metrics": "loss:min"}),
        (
            ["shell", "a", "--instance", "algo-2", "--", "ls", "--json"],
            {"instance": "algo-2", "script_args": ("ls", "--json")},
        ),
        (["exec", "digits", "a.py", "--", "--json"], {"name": "digits", "file": "a.py", "script_args": ("--json",)}),
        (["session", "start", "--idle", "30m"], {"idle": 1800.0}),
        (["session", "keep", "digits", "2h"], {"time": 7200.0}),
    ],
)
def test_what_a_command_takes(words, expected):
    assert expected.items() <= vars(parse(words)).items()
