"""Tests of ``raysm.features.sweep.tuning_command``."""

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.sweep.tuning_command import _follow, run, run_about
from tests.support.tuning import SageMaker, scripted_tuning, summary

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
    asked = call(
        capsys,
        script,
        *limits,
        "--stop",
        "median",
        "--seed",
        "7",
        "--parent",
        "first",
        "--parent",
        "second",
    )
    config = asked["HyperParameterTuningJobConfig"]
    assert config["ResourceLimits"] == {
        "MaxNumberOfTrainingJobs": 30,
        "MaxParallelTrainingJobs": 4,
        "MaxRuntimeInSeconds": 600,
    }
    assert (config["Strategy"], config["TrainingJobEarlyStoppingType"], config["RandomSeed"]) == (
        "Bayesian",
        "Auto",
        7,
    )
    assert asked["TrainingJobDefinition"]["StoppingCondition"] == {"MaxRuntimeInSeconds": 900}
    parents = [
        parent["HyperParameterTuningJobName"]
        for parent in asked["WarmStartConfig"]["ParentHyperParameterTuningJobs"]
    ]
    assert parents == ["first", "second"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--set", "workload.concurrency=2"], "concurrency=2"),
        (["--kind", "processing"], "training jobs"),
        (["--max-restarts", "2"], "max_restarts=2"),
        (["--if-done", "skip"], "--if-done skip"),
        (["--resume"], "--resume .* --parent NAME"),
    ],
    ids=["concurrency", "kind", "restarts", "if-done", "resume"],
)
def test_what_the_service_cannot_do_is_refused_before_anything_is_sent(script, argv, message):
    with pytest.raises(InvalidRequest, match=message):
        ran(script, "--dry-run", *argv)


def test_following_prints_each_trial_as_it_ends():
    out = io.StringIO()
    pages = [
        [
            summary(0, value=0.5),
            summary(1, "Failed", FailureReason="AlgorithmError: typo\nTraceback"),
        ]
    ]
    _follow(scripted_tuning(SageMaker(pages=pages)), Console(file=out, width=200))
    first, second = out.getvalue().splitlines()
    assert first.startswith("trial 0 done, loss 0.5 (lr=0.5, depth=None), tuned-001-abc")
    assert second.endswith("tuned-002-abc: AlgorithmError: typo")


def test_ctrl_c_stops_a_tuning_job_that_costs_nothing():
    sagemaker = SageMaker(["InProgress"], [[summary(0, value=0.5)]])
    sagemaker.list_training_jobs_for_hyper_parameter_tuning_job = interrupted
    with pytest.raises(KeyboardInterrupt):
        _follow(scripted_tuning(sagemaker), Console(file=io.StringIO(), width=200))
    assert sagemaker.stopped == ["tuned"]


def interrupted(**request):
    raise KeyboardInterrupt


@pytest.mark.long
def test_the_embedded_sagemaker_says_what_to_run_instead(script):
    with pytest.raises(ServiceError, match="CreateHyperParameterTuningJob"):
        ran(script, "--trials", "2")


def test_what_is_asked_of_jobs_alone_is_refused_with_the_way_to_those_of_its_trials():
    arguments = SimpleNamespace(command="logs")
    with pytest.raises(InvalidRequest, match="raysm logs .*raysm status tuned"):
        run_about(arguments, SimpleNamespace(name="tuned"), Console(file=io.StringIO()))


def test_status_names_the_best_and_its_direction_and_is_printed_as_json_as_stop_is(capsys):
    best = {"TrainingJobName": "tuned-001-abc"}
    sagemaker = SageMaker(
        ["InProgress"] * 3 + ["Stopped"], [[summary(0, value=0.5)]], BestTrainingJob=best
    )
    tuning, out = scripted_tuning(sagemaker), io.StringIO()
    run_about(SimpleNamespace(command="status", json=False), tuning, Console(file=out, width=200))
    assert "best     tuned-001-abc, lowest loss; raysm result tuned" in out.getvalue()
    run_about(SimpleNamespace(command="status", json=True), tuning, Console(file=io.StringIO()))
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], [trial["value"] for trial in told["trials"]]) == ("InProgress", [0.5])
    run_about(SimpleNamespace(command="stop", json=True), tuning, Console(file=io.StringIO()))
    assert json.loads(capsys.readouterr().out)["status"] == "Stopped"
    assert sagemaker.stopped == ["tuned"]
