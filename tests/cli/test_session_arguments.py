"""The arguments of raysm session and raysm exec."""

import pytest

from raysm.cli.arguments import parse
from raysm.cli.session_arguments import RUNNER


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("30m", 1800.0), ("2h", 7200.0), ("1d", 86400.0)])
def test_a_time_is_a_number_with_its_unit(text, seconds):
    assert parse(["session", "start", "--idle", text]).idle == seconds
    assert parse(["session", "keep", "digits", text]).time == seconds


@pytest.mark.parametrize("text", ["30", "m", "-1m", "1.5h", ""])
def test_what_is_no_time_is_refused_with_what_is(text, capsys):
    with pytest.raises(SystemExit):
        parse(["session", "start", f"--idle={text}"])
    assert f"{text!r} is not a time; write 90s, 30m, 2h or 1d" in capsys.readouterr().err


def test_a_list_names_no_session_and_the_others_do(capsys):
    assert parse(["session", "list"]).verb == "list"
    assert parse(["session", "attach", "digits"]).name == "digits"
    with pytest.raises(SystemExit):
        parse(["session", "close"])
    assert "required: NAME" in capsys.readouterr().err


def test_a_file_has_arguments_of_its_own():
    arguments = parse(["exec", "digits", "a.py", "--", "--json"])
    assert (arguments.name, arguments.file, arguments.script_args) == ("digits", "a.py", ("--json",))
    assert arguments.run == RUNNER
