"""The commands about jobs, asked of a tuning job by its name."""

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from raysm.cli import about_jobs, about_tuning
from raysm.cli.arguments import parse
from raysm.cli.tuning import run
from raysm.client.sweep_result import TrialTable
from raysm.errors import InvalidRequest

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "import argparse\nimport raysm\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--depth', type=int)\nraysm.report(loss=float(parser.parse_args().depth))\n"
    )
    return str(path)


def tuned(script, *argv, space="depth=randint:1:9"):
    run(
        parse(["tune", script, "--space", space, "--metric", "loss", "--mode", "min", *argv]),
        Console(file=io.StringIO(), width=200),
    )


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


def asked(capsys, *argv):
    about_jobs.run(parse(list(argv)), Console(file=io.StringIO(), width=200))
    return capsys.readouterr().out


# A tuning job that is really detached from, looked at, and brought or stopped: its parts are shown by test_handle.
@pytest.mark.long
def test_who_detached_looks_at_it_and_brings_the_best_or_stops_it(script, tmp_path, capsys):
    tuned(script, "--detach", "--search", "grid", "--parallel", "2", space="depth=choice:3,5")
    name = capsys.readouterr().out.strip()
    asked(capsys, "result", name, "--output", str(tmp_path / "out"), "--json")
    assert json.loads((tmp_path / "out" / "trials.json").read_text())["trials"][0]["params"] == {"depth": 3}
    told = json.loads(asked(capsys, "status", name, "--json"))
    assert (told["status"], sorted(trial["value"] for trial in told["trials"])) == ("Completed", [3.0, 5.0])
    assert json.loads(asked(capsys, "stop", name, "--json"))["status"] == "Completed"
    with pytest.raises(InvalidRequest, match=f"{name} is a tuning job, and raysm logs is of jobs: raysm status {name}"):
        asked(capsys, "logs", name)
    sleeping = tmp_path / "sleep.py"
    sleeping.write_text("import time\ntime.sleep(600)\n")
    tuned(str(sleeping), "--detach", "--trials", "2")
    name = capsys.readouterr().out.strip()
    assert json.loads(asked(capsys, "stop", name, "--json"))["status"] == "Stopped"
