"""What ``raysm local`` takes."""

from datetime import timedelta

import pytest

from raysm.cli.arguments import parse
from tests.support.commands import refusal


@pytest.mark.parametrize(("text", "days"), [("7d", 7.0), ("12h", 0.5), ("36m", 0.025)])
def test_an_age_is_a_number_with_its_unit(text, days):
    assert parse(["local", "clean", "--older-than", text]).older_than == timedelta(days=days)


@pytest.mark.parametrize(
    ("text", "message"), [("soon", "'soon'"), (f"{'9' * 30}h", "too long ago")]
)
def test_another_age_is_refused(text, message, capsys):
    assert message in refusal(capsys, "local", "clean", "--older-than", text)
