"""The groups of arguments that commands share."""

import argparse

import pytest

from raysm.cli.argument_groups import add_change, add_entered, add_files_of_project, add_reading, add_target


@pytest.mark.parametrize(
    ("add", "words", "expected"),
    [
        (add_change, ["--set", "a=1", "--set", "b=2"], {"set": ["a=1", "b=2"]}),
        (add_target, ["--on", "aws", "--region", "eu-west-1"], {"on": "aws", "region": "eu-west-1"}),
        (add_files_of_project, ["--config-profile", "gpu"], {"config_profile": "gpu"}),
        (add_reading, ["--json", "--on", "local"], {"json": True, "on": "local"}),
        (add_entered, ["--instance", "algo-2", "--region", "eu-west-1"], {"instance": "algo-2", "region": "eu-west-1"}),
        (add_entered, ["--on", "algo-2"], {"instance": "algo-2", "on": None}),
        (add_entered, ["--on", "aws", "--on", "algo-12"], {"instance": "algo-12", "on": "aws"}),
    ],
)
def test_a_group_takes_its_own(add, words, expected):
    parser = argparse.ArgumentParser()
    add(parser)
    arguments = vars(parser.parse_args(words))
    assert expected.items() <= arguments.items()


def test_whoever_only_reads_chooses_no_job():
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_reading(parser)
    assert parser.parse_known_args(["--max-runtime", "5"])[1] == ["--max-runtime", "5"]


def test_what_is_neither_a_place_nor_an_instance_is_refused_with_what_can_be(capsys):
    parser = argparse.ArgumentParser()
    add_entered(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--on", "algo2"])
    assert "--on: 'algo2' is neither local nor aws nor an instance, algo-2" in capsys.readouterr().err
