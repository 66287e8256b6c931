"""The commands about jobs, asked of a tuning job by its name."""

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from raysm.cli import about_tuning
from raysm.client.sweep_result import TrialTable
from raysm.errors import InvalidRequest
from tests.support.tuning import SageMaker, scripted_tuning, summary


def test_what_is_asked_of_jobs_alone_is_refused_with_the_way_to_those_of_its_trials():
    arguments = SimpleNamespace(command="logs")
    with pytest.raises(InvalidRequest, match="tuned is a tuning job, and raysm logs is of jobs: raysm status tuned"):
        about_tuning.run(arguments, SimpleNamespace(name="tuned"), Console(file=io.StringIO()))


def test_the_status_says_which_direction_is_the_best():
    described = {"HyperParameterTuningJobStatus": "Completed", "BestTrainingJob": {"TrainingJobName": "tuned-003"}}
    tuning = SimpleNamespace(
        name="tuned",
        metric="accuracy",
        mode="max",
        trials=TrialTable([], "accuracy", "max"),
        describe=lambda: described,
    )
    out = io.StringIO()
    about_tuning.run(SimpleNamespace(command="status", json=False), tuning, Console(file=out, width=200))
    assert "best     tuned-003, highest accuracy; raysm result tuned" in out.getvalue()


def test_status_and_stop_print_the_tuning_job_as_json(capsys):
    sagemaker = SageMaker(["InProgress", "InProgress", "Stopped"], [[summary(0, value=0.5)]])
    tuning = scripted_tuning(sagemaker)
    about_tuning.run(SimpleNamespace(command="status", json=True), tuning, Console(file=io.StringIO()))
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], [trial["value"] for trial in told["trials"]]) == ("InProgress", [0.5])
    about_tuning.run(SimpleNamespace(command="stop", json=True), tuning, Console(file=io.StringIO()))
    assert json.loads(capsys.readouterr().out)["status"] == "Stopped"
    assert sagemaker.stopped == ["tuned"]
