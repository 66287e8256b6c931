"""The arguments of the commands that send a job: what each needs, unless a request brings it."""

import pytest

from raysm.cli.arguments import parse
from raysm.cli.sending_arguments import RUNNER


@pytest.mark.parametrize(
    ("words", "lacks"),
    [
        (["similarity"], "the following arguments are required: MATRIX"),
        (["similarity", "m.npy"], "one of the arguments --top-k --threshold --full is required"),
        (["run"], "the following arguments are required: SCRIPT"),
        (["train"], "the following arguments are required: SCRIPT"),
        (["sweep"], "the following arguments are required: SCRIPT"),
        (
            ["sweep", "a.py", "--space", "lr=uniform:0:1", "--metric", "accuracy"],
            "a sweep needs --space NAME=RANGE, --metric NAME and --mode min or --mode max",
        ),
        (["submit"], "the following arguments are required: --request"),
    ],
)
def test_what_a_command_lacks_is_said_as_its_own(words, lacks, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"raysm {words[0]}: {lacks}\nraysm {words[0]} --help lists what it takes\n"


@pytest.mark.parametrize("command", ["similarity", "run", "train", "sweep", "submit"])
def test_a_request_brings_what_is_needed(command):
    arguments = parse([command, "--request", "job.json"])
    assert (arguments.run, arguments.sends_job) == (RUNNER, True)


def test_config_takes_the_options_and_sends_nothing():
    arguments = parse(["config", "--instances", "3", "--set", "limits.spot=true"])
    assert (arguments.instances, arguments.set, arguments.sends_job) == (3, ["limits.spot=true"], False)
