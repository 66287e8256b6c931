"""Tests of ``raysm.features.scaling.command``, on the embedded SageMaker."""

import json

import pytest

from raysm.cli.arguments import parse
from raysm.cli.main import main
from raysm.errors import InvalidRequest
from raysm.features.scaling.command import command_of

REPORTS = """
import sys

import ray
import raysm

ray.init()
nodes = len(ray.nodes())
raysm.report(nodes=nodes)
if "--fails-at" in sys.argv and nodes == int(sys.argv[-1]):
    raise RuntimeError("out of beans")
"""


@pytest.fixture
def script(tmp_path, home, monkeypatch):
    path = tmp_path / "count.py"
    path.write_text(REPORTS)
    monkeypatch.chdir(tmp_path)
    return path.name


def test_each_size_is_one_job_and_the_table_has_them_in_order(script, capsys):
    assert main(["scale", "2,1", "--json", "--", "run", script]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [job["instances"] for job in answer["jobs"]] == [1, 2]
    assert [job["metric"] for job in answer["jobs"]] == [1.0, 2.0]
    assert answer["metric"] == "nodes"
    assert answer["jobs"][1]["efficiency"] == pytest.approx(answer["jobs"][1]["speedup"] / 2)


def test_a_job_that_fails_ends_the_command_after_the_table_of_those_before(script, capsys):
    assert main(["scale", "1,2,3", "--", "run", script, "--", "--fails-at", "2"]) == 1
    printed = capsys.readouterr()
    assert "efficiency" in printed.out
    assert "3 instances" not in printed.out
    assert "out of beans" in printed.err


def test_arguments_behind_the_second_dashes_are_the_scripts():
    arguments = command_of(["run", "a.py", "--project", "p", "--", "--lr", "0.1"], 3)
    assert (arguments.instances, arguments.script_args) == (3, ("--lr", "0.1"))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["train.py", "--lr", "1"], "-- train train.py --lr 1 or -- run train.py"),
        (["run", "a.py", "--instances", "3"], "has --instances"),
        (["run", "a.py", "--detach"], "--detach"),
        (["run", "a.py", "--output", "out"], "raysm result JOB"),
        (["jobs"], "raysm jobs does not send a job"),
    ],
)
def test_a_command_that_is_no_single_measured_job_is_refused(words, why):
    with pytest.raises(InvalidRequest, match=why):
        command_of(words, 2)


@pytest.mark.parametrize("text", ["", "0", "1,", "1,two", "-1"])
def test_what_is_no_list_of_numbers_of_instances_is_refused_with_an_example(text, capsys):
    with pytest.raises(SystemExit):
        parse(["scale", f"{text}", "--", "run", "a.py"])
    assert "1,2,4" in capsys.readouterr().err or text == "-1"
