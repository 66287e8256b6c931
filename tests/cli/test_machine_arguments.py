"""The arguments of the commands about this machine."""

import argparse
from datetime import timedelta

import pytest

from raysm.cli.arguments import parse
from raysm.cli.machine_arguments import add_demo


def test_a_demo_sends_a_job_and_the_others_do_not():
    assert add_demo.__doc__
    sends = {words[0]: parse(words).sends_job for words in (["demo"], ["local", "up"], ["doctor"])}
    assert sends == {"demo": True, "local": False, "doctor": False}


@pytest.mark.parametrize(("text", "days"), [("7d", 7.0), ("12h", 0.5), ("36m", 0.025)])
def test_an_age_is_a_number_with_its_unit(text, days):
    assert parse(["local", "clean", "--older-than", text]).older_than == timedelta(days=days)


@pytest.mark.parametrize("text", ["7", "d", "-7d", "1_0d", "7w", ""])
def test_what_is_no_age_is_refused_with_what_is(text, capsys):
    with pytest.raises(SystemExit):
        parse(["local", "clean", f"--older-than={text}"])
    assert f"{text!r} is not an age; write 7d, 12h or 30m" in capsys.readouterr().err


def test_the_doctor_checks_a_request_of_a_file():
    arguments = parse(["doctor", "--for", "job.json", "--policy", "role"])
    assert isinstance(arguments, argparse.Namespace)
    assert (str(arguments.request), arguments.policy) == ("job.json", "role")
