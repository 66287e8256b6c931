"""What ``raysm session`` and ``raysm exec`` take."""

import pytest

from raysm.cli.arguments import parse
from tests.support.commands import refusal


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["exec", "digits", "a.py", "--", "--json"],
            {"name": "digits", "file": "a.py", "script_args": ("--json",)},
        ),
        (["session", "start", "--idle", "30m"], {"idle": 1800.0}),
        (["session", "start", "--max-cost", "5"], {"max_cost": 5.0}),
        # The older name.
        (["session", "start", "--budget", "5"], {"budget": 5.0}),
        (["session", "keep", "digits", "2h"], {"time": 7200.0}),
    ],
)
def test_what_a_command_takes(words, expected):
    assert expected.items() <= vars(parse(words)).items()


def test_a_misspelt_option_of_a_verb_is_refused_with_the_verbs_own(capsys):
    said = refusal(capsys, "session", "start", "--instance", "2")
    assert "--instances or --instance-type?\nraysm session start --help" in said
