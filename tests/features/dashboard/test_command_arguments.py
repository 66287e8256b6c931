"""What ``raysm tunnel`` and ``raysm shell`` take."""

import pytest

from raysm.cli.arguments import parse
from tests.support.commands import refusal


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--instance", "algo-2", "--region", "eu-west-1"],
            {"instance": "algo-2", "region": "eu-west-1"},
        ),
        (["--on", "algo-2"], {"instance": "algo-2", "on": None}),
        (["--on", "aws", "--on", "algo-12"], {"instance": "algo-12", "on": "aws"}),
        (
            ["--instance", "algo-2", "--", "ls", "--json"],
            {"instance": "algo-2", "script_args": ("ls", "--json")},
        ),
    ],
)
def test_an_instance_may_be_named_where_the_place_is(words, expected):
    assert expected.items() <= vars(parse(["shell", "digits", *words])).items()


def test_a_command_without_its_dashes_is_refused_with_them(capsys):
    assert "raysm shell … -- hostname" in refusal(capsys, "shell", "digits", "hostname")
