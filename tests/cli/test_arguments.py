import argparse

import numpy as np
import pytest

from raysm.cli.arguments import FAMILIES, build_parser, parse
from raysm.cli.config import read_settings
from raysm.cli.sending import prepared
from raysm.core.request import AWS, Local
from raysm.errors import InvalidRequest

ROLE = "arn:aws:iam::123456789012:role/jobs"


def asked_for(argv):
    return prepared(read_settings(parse(argv)))


@pytest.fixture
def request_of(tmp_path, home):
    """Return the request that a command line asks for, with a script ``a.py`` and a matrix ``m.npy`` at hand."""
    (tmp_path / "a.py").write_text("pass")
    np.save(tmp_path / "m.npy", np.eye(3, dtype=np.float32))

    def build(*argv):
        return asked_for([str(tmp_path / text) if text in ("a.py", "m.npy") else text for text in argv]).request

    return build


@pytest.mark.parametrize("kept", [["--top-k", "2"], ["--threshold", "0.5"], ["--full"]], ids=lambda kept: kept[0])
def test_queries_may_look_into_a_matrix_that_is_spread_and_may_be_spread_themselves(request_of, kept):
    argv = ("similarity", "m.npy", *kept, "--queries", "m.npy", "--sharded", "--instances", "2")
    assert {name: channel.distribution for name, channel in request_of(*argv).inputs.items()} == {
        "matrix": "ShardedByS3Key",
        "queries": "FullyReplicated",
    }
    both = request_of(*argv, "--set", "inputs.queries.distribution=ShardedByS3Key")
    assert both.inputs["queries"].distribution == "ShardedByS3Key"


def test_columns_are_chosen_by_repeated_flags_and_by_commas(request_of, tmp_path):
    (tmp_path / "m.csv").write_text('file,row,"a,b",c,d\nx,0,1,2,3\ny,1,4,5,6\n')
    command = ("similarity", str(tmp_path / "m.csv"), "--top-k", "1", "--id-column", "file", "--id-column", "row")
    workload = request_of(*command, "--columns", '"a,b",c', "--columns", "d").workload
    assert (workload.id_columns, workload.columns) == (("file", "row"), ("a,b", "c", "d"))
    assert request_of(*command, "--exclude-columns", "c,d").workload.exclude_columns == ("c", "d")
    (tmp_path / "m.csv").write_text(",a,b\nx,0,1\ny,1,4\n")
    command = ("similarity", str(tmp_path / "m.csv"), "--top-k", "1")
    assert request_of(*command, "--exclude-columns", "").workload.exclude_columns == ("",)
    assert request_of(*command, "--set", "workload.id_column=").workload.id_column == ""


def test_a_scripts_arguments_pass_verbatim_also_those_that_look_like_ours(request_of):
    asked = request_of("run", "a.py", "--instances", "3", "--", "--any", "--args", "--", "--instances", "9")
    assert asked.workload.args == ("--any", "--args", "--", "--instances", "9")
    assert asked.cluster.count == 3


def test_a_training_is_asked_for_as_the_readme_says(request_of):
    asked = request_of(
        "train", "a.py", "--instances", "2", "--workers-per-instance", "4", "--worker-restarts", "3", "--input",
        "train=s3://b/x", "--", "-a", "resnet18", "--epochs", "10", "data/",
    )  # fmt: skip
    assert asked.workload.args == ("-a", "resnet18", "--epochs", "10", "data/")
    assert (asked.workload.workers_per_instance, asked.workload.max_restarts, asked.workload.spawns) == (4, 3, False)
    assert asked.inputs["train"].uri == "s3://b/x"
    assert asked.limits.max_restarts == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "raysm --help lists every command"),
        (["similarity", "m.npy"], "--top-k --threshold --full"),
        (["similarity", "m.npy", "--full", "--price-per-hour", "1"], "--estimate"),
        (["similarity", "m.npy", "--top-k", "many"], "--top-k: invalid int value: 'many'"),
        (["shell", "digits", "hostname"], "raysm shell … -- hostname"),
        (["run", "a.py", "--kms-key", "abc"], "--volume-kms-key or --output-kms-key?\n"),
        (["run", "a.py", "--budget", "1"], "--max-runtime limits"),
        (["similarity", "m.npy", "--topk", "5"], "--topk 5; did you mean --top-k?\n"),
        (["similarty", "m.npy"], "'similarty'; did you mean similarity?\n"),
        (
            ["session", "start", "--instance", "2"],
            "--instances or --instance-type?\nraysm session start --help",
        ),
        (
            ["sweep", "a.py", "--space", "n=choice:1", "--metric", "m"],
            "--mode min or --mode max\n",
        ),
        (["similarity", "m.npy", "--full", "--", "x"], "behind --, got x"),
        (["local", "clean", "--older-than", "soon"], "'soon'"),
        (["local", "clean", "--older-than", f"{'9' * 30}h"], "too long ago"),
    ],
)
def test_wrong_arguments_end_with_2_and_say_what_is_wrong(argv, message, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(argv)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) <= 2 or not argv


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run", "a.py", "--env", "A"], "--env .*'A'"),
        (["run", "a.py", "--env", "A=1", "--env", "A=2"], "--env A=1 and A=2"),
        (
            ["run", "a.py", "--input", "data/my sales.csv"],
            r"--input my-sales='data/my sales\.csv'",
        ),
        (["run", "a.py", "--on", "aws", "--role", ROLE], "--instance-type"),
        (["run", "a.py", "--on", "aws", "--role", "jobs"], "role .*'jobs'"),
        (["run", "a.py", "--subnet", "s", "--output-kms-key", "k"], r"\(from --subnet\)$"),
        (["run", "a.py", "--role", ROLE], "--role .*--on aws"),
    ],
)
def test_a_request_that_cannot_be_is_refused_with_the_value(request_of, argv, message):
    with pytest.raises(InvalidRequest, match=message):
        request_of(*argv)


def test_where_a_job_goes_is_said_by_the_options():
    def target(*argv):
        return read_settings(parse(["run", "a.py", *argv])).target()

    assert target("--instance-kind", "namespace") == Local(instance_kind="namespace")
    assert target("--image", "mine:1") == Local(image="mine:1")
    aws = ["--on", "aws", "--role", ROLE, "--region", "eu-west-1"]
    assert target(*aws, "--image", "mine:1") == AWS(role=ROLE, region="eu-west-1", image="mine:1")


def helps(parser, name="raysm"):
    """Yield every command that has no commands of its own, with its parser."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in nested:
        for verb, command in action.choices.items():
            yield from helps(command, f"{name} {verb}")
    if not nested:
        yield name, parser


def test_each_command_is_shown_once_below_what_it_is_for(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    said = capsys.readouterr().out
    commands = list(dict.fromkeys(name.split()[1] for name, _ in helps(build_parser())))
    assert sorted(name for names in FAMILIES.values() for name in names) == sorted(commands)
    for title in FAMILIES:
        assert f"\n{title}:\n" in said
    assert all(said.count(f"\n  {name} ") == 1 for name in commands)
