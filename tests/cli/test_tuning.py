"""``raysm tune``: what it asks the service for, what it refuses, and a tuning job that really runs."""

import io
import json

import pytest
from rich.console import Console

import raysm
from raysm.cli.arguments import parse
from raysm.cli.tuning import run
from raysm.errors import InvalidRequest
from raysm.request.codec import to_json

pytestmark = pytest.mark.usefixtures("home")

TRAIN = """
import argparse
import raysm
parser = argparse.ArgumentParser()
parser.add_argument("--depth", type=int)
raysm.report(loss=float(parser.parse_args().depth))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return str(path)


def ran(script, *argv, space="depth=randint:1:9"):
    out = io.StringIO()
    run(
        parse(["tune", script, "--space", space, "--metric", "loss", "--mode", "min", *argv]),
        Console(file=out, width=200),
    )
    return out.getvalue()


def call(capsys, script, *argv):
    ran(script, "--dry-run", *argv)
    return json.loads(capsys.readouterr().out)


def test_limits_search_and_warm_start_are_those_of_the_flags(script, capsys):
    limits = ["--trials", "30", "--parallel", "4", "--time-budget", "600", "--max-runtime", "900"]
    asked = call(capsys, script, *limits, "--stop", "median", "--seed", "7", "--parent", "first", "--parent", "second")
    config = asked["HyperParameterTuningJobConfig"]
    assert config["ResourceLimits"] == {
        "MaxNumberOfTrainingJobs": 30,
        "MaxParallelTrainingJobs": 4,
        "MaxRuntimeInSeconds": 600,
    }
    assert (config["Strategy"], config["TrainingJobEarlyStoppingType"], config["RandomSeed"]) == ("Bayesian", "Auto", 7)
    assert asked["TrainingJobDefinition"]["StoppingCondition"] == {"MaxRuntimeInSeconds": 900}
    parents = [
        parent["HyperParameterTuningJobName"] for parent in asked["WarmStartConfig"]["ParentHyperParameterTuningJobs"]
    ]
    assert parents == ["first", "second"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--stop", "asha"], "stop='asha' is not the service's"),
        (["--parallel", "0"], "parallel must be a whole number of at least 1, got 0"),
        (["--time-budget", "60"], "time_budget_s is at least 120 for the service, got 60"),
        (["--set", "workload.concurrency=2"], "concurrency=2 is of trials on one cluster"),
        (["--kind", "processing"], "trials are training jobs"),
        (["--max-restarts", "2"], "max_restarts=2 is of a job that raysm follows"),
        (["--if-done", "skip"], "--if-done skip is of jobs"),
        (["--resume"], "--resume is of jobs: .* --parent NAME"),
        ([word for number in range(6) for word in ("--parent", f"p{number}")], "ParentHyperParameterTuningJobs"),
    ],
    ids=["stop", "parallel", "time", "concurrency", "kind", "restarts", "if-done", "resume", "parents"],
)
def test_what_the_service_cannot_do_is_refused_before_anything_is_sent(script, argv, message):
    with pytest.raises(InvalidRequest, match=message):
        ran(script, "--dry-run", *argv)


def test_a_request_that_is_no_sweep_is_said_to_be_none(script, tmp_path):
    request = tmp_path / "job.json"
    request.write_text(
        json.dumps({"workload": to_json(raysm.Similarity(top_k=3)), "inputs": {"matrix": {"uri": "s3://m"}}})
    )
    with pytest.raises(InvalidRequest):
        run(parse(["tune", "--request", str(request), "--dry-run"]), Console(file=io.StringIO()))


def test_a_sweeps_own_limit_of_trials_at_a_time_is_no_flag_here(script, capsys):
    with pytest.raises(SystemExit):
        parse(["tune", script, "--space", "a=choice:1", "--metric", "m", "--mode", "min", "--concurrency", "2"])
    assert "there is no option --concurrency" in capsys.readouterr().err


@pytest.mark.long
def test_it_tells_of_each_trial_and_brings_what_the_best_one_left(script, tmp_path, capsys):
    out = tmp_path / "out"
    asked = ["--search", "grid", "--parallel", "2", "--output", str(out), "--json"]
    text = ran(script, *asked, space="depth=choice:3,5")
    told = json.loads(capsys.readouterr().out)
    assert sorted((trial["depth"], trial["value"], trial["status"]) for trial in told["trials"]) == [
        (3, 3.0, "done"),
        (5, 5.0, "done"),
    ]
    assert json.loads((out / "trials.json").read_text())["trials"][0]["params"] == {"depth": 3}
    assert text == ""
