"""What ``raysm sweep`` and ``raysm tune`` take."""

import pytest

from tests.support.commands import refusal

WORDS = ["a.py", "--space", "n=choice:1", "--metric", "m"]


@pytest.mark.parametrize("command", ["sweep", "tune"])
def test_what_a_sweep_needs_is_named(command, capsys):
    assert "--mode min or --mode max\n" in refusal(capsys, command, *WORDS)
    assert "SCRIPT" in refusal(capsys, command, *WORDS[1:])
