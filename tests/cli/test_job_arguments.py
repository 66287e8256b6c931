"""The arguments of the commands that send jobs, and of those about jobs and sessions."""

import pkgutil

import pytest

from raysm.cli.arguments import parse
from raysm.cli.job_arguments import OF_ONE_JOB


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
def test_a_missing_argument_is_reported_by_the_command(words, lacks, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"raysm {words[0]}: {lacks}\nraysm {words[0]} --help lists what it takes\n"


@pytest.mark.parametrize("command", ["similarity", "run", "train", "sweep", "tune", "submit"])
def test_a_request_brings_what_is_needed(command):
    arguments = parse([command, "--request", "job.json"])
    assert arguments.sends_job
    assert callable(pkgutil.resolve_name(arguments.run))


def test_config_takes_the_options_and_sends_nothing():
    arguments = parse(["config", "--instances", "3", "--set", "limits.spot=true"])
    assert (arguments.instances, arguments.set, arguments.sends_job) == (3, ["limits.spot=true"], False)


@pytest.mark.parametrize("name", OF_ONE_JOB)
def test_each_command_about_one_job_names_it(name):
    arguments = parse([name, "digits-1", "--json"])
    assert (arguments.command, arguments.job, arguments.json) == (name, "digits-1", True)
    assert callable(pkgutil.resolve_name(arguments.run))
    assert not arguments.sends_job


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["logs", "a", "-f"], {"follow": True}),
        (["debug", "a", "--off"], {"off": True}),
        (["result", "a", "--timeout", "5"], {"timeout": 5.0}),
        (["jobs", "--params"], {"params": "*"}),
        (["jobs", "--metrics", "loss:min"], {"metrics": "loss:min"}),
        (
            ["shell", "a", "--instance", "algo-2", "--", "ls", "--json"],
            {"instance": "algo-2", "script_args": ("ls", "--json")},
        ),
        (["exec", "digits", "a.py", "--", "--json"], {"name": "digits", "file": "a.py", "script_args": ("--json",)}),
        (["session", "list"], {"verb": "list"}),
        (["session", "attach", "digits"], {"name": "digits"}),
        (["session", "start", "--idle", "30m"], {"idle": 1800.0}),
        (["session", "keep", "digits", "2h"], {"time": 7200.0}),
    ],
)
def test_what_a_command_takes(words, expected):
    assert expected.items() <= vars(parse(words)).items()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "a", "--off"], "there is no option --off"),
        (["tunnel", "a", "8265", "--", "ls"], "tunnel takes nothing behind --, got ls"),
        (["session", "close"], "required: NAME"),
        (["session", "start", "--idle=m"], "'m' is not a time; write 90s, 30m, 2h or 1d"),
    ],
)
def test_what_a_command_refuses(words, said, capsys):
    with pytest.raises(SystemExit):
        parse(words)
    assert said in capsys.readouterr().err
