"""The arguments of the commands about jobs, and what carries each of them out."""

import pkgutil

import pytest

from raysm.cli import job_arguments
from raysm.cli.arguments import parse


@pytest.mark.parametrize("name", job_arguments.OF_ONE_JOB)
def test_each_command_of_one_job_names_it_and_what_carries_it_out(name):
    arguments = parse([name, "digits-1", "--json"])
    assert (arguments.command, arguments.job, arguments.json) == (name, "digits-1", True)
    assert callable(pkgutil.resolve_name(arguments.run))
    assert not arguments.sends_job


def test_the_own_arguments_of_a_command_are_its_own(capsys):
    assert parse(["logs", "a", "-f"]).follow
    assert parse(["debug", "a", "--off"]).off
    assert parse(["result", "a", "--timeout", "5"]).timeout == 5.0
    with pytest.raises(SystemExit):
        parse(["status", "a", "--off"])
    assert "there is no option --off" in capsys.readouterr().err


def test_a_table_has_all_columns_where_none_is_named():
    assert parse(["jobs", "--params"]).params == "*"
    assert parse(["jobs", "--metrics", "loss:min"]).metrics == "loss:min"


def test_what_is_run_in_an_instance_stands_behind_two_dashes(capsys):
    arguments = parse(["shell", "a", "--instance", "algo-2", "--", "ls", "-l", "--json"])
    assert (arguments.instance, arguments.script_args) == ("algo-2", ("ls", "-l", "--json"))
    with pytest.raises(SystemExit):
        parse(["tunnel", "a", "8265", "--", "ls"])
    assert "tunnel takes nothing behind --, got ls" in capsys.readouterr().err
