import pytest

from raysm.cli.arguments import build_parser, families, parse
from raysm.cli.config import read_settings
from raysm.cli.parser import Family
from raysm.core.request import AWS, Local
from raysm.errors import InvalidRequest
from tests.support import commands

ROLE = "arn:aws:iam::123456789012:role/jobs"


@pytest.fixture
def request_of(tmp_path, home):
    """Return the request that a command line asks for, with a script ``a.py`` at hand."""
    (tmp_path / "a.py").write_text("pass")

    def build(*argv):
        return commands.request_of(
            *(str(tmp_path / text) if text == "a.py" else text for text in argv)
        )

    return build


def test_a_scripts_arguments_pass_verbatim_also_those_that_look_like_ours(request_of):
    asked = request_of(
        "run", "a.py", "--instances", "3", "--", "--any", "--args", "--", "--instances", "9"
    )
    assert asked.workload.args == ("--any", "--args", "--", "--instances", "9")
    assert asked.cluster.count == 3


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "raysm --help lists every command"),
        (["nothing-like-it"], "there is no command 'nothing-like-it'\n"),
        (["submit"], "--request"),
        (["logs", "digits", "--tail", "many"], "--tail: invalid int value: 'many'"),
        (["logs", "digits", "--tall", "5"], "--tall 5; did you mean --tail?\n"),
        (["logs", "digits", "--", "x"], "behind --, got x"),
        (["run", "a.py", "--kms-key", "abc"], "--volume-kms-key or --output-kms-key?\n"),
        (["run", "a.py", "--budget", "1"], "--max-cost USD caps"),
        (["similarty", "m.npy"], "'similarty'; did you mean similarity?\n"),
    ],
)
def test_wrong_arguments_end_with_2_and_say_what_is_wrong(argv, message, capsys):
    said = commands.refusal(capsys, *argv)
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


def test_each_command_is_shown_once_below_what_it_is_for(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    said = capsys.readouterr().out
    parser = build_parser()
    shown = families(parser)
    assert sorted(name for names in shown.values() for name in names) == sorted(parser.commands)
    assert list(shown) == list(Family)
    for title in shown:
        assert f"\n{title}:\n" in said
    assert all(said.count(f"\n  {name} ") == 1 for name in parser.commands)


def test_a_command_is_listed_before_the_one_that_it_names():
    shown = families(build_parser())
    assert shown[Family.JOBS] == [
        "jobs",
        "status",
        "logs",
        "result",
        "metrics",
        "dashboard",
        "ui",
        "stop",
        "rm",
    ]


@pytest.mark.parametrize("name", ["status", "similarity", "local"])
def test_of_one_command_only_its_own_parser_is_built(name):
    assert list(build_parser(name).commands) == [name]
