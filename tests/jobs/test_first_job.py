"""The first hour, whole, on the embedded SageMaker: every job ends as it has to, and every question has its line."""

import json
import sys

import pytest
from rich.console import Console

from raysm.cli import first_job
from raysm.cli.arguments import parse
from raysm.cli.choosing import read_settings
from raysm.client import endpoint
from raysm.client.first_job.trials import TRIALS
from tests.support.homes import serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

GRACE_S = "5"
"""From SIGTERM to SIGKILL: one of the jobs takes all of it."""


def test_every_job_of_the_first_hour_ends_as_it_has_to(tmp_path, capsys):
    with serving(tmp_path / "home") as home:
        endpoint.ensure(home, command=(sys.executable, "-m", "raysm.local.server", "--stop-grace-s", GRACE_S))
        output = tmp_path / "out"
        words = ("doctor", "--first-job", "--output", str(output), "--set", f"local.home={home}")
        arguments = parse(words)
        code = first_job.run(arguments, read_settings(arguments), Console(width=400))
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert printed.count("\n  ok: ") == len(TRIALS)
    page = (output / "answers.md").read_text()
    # Of what only SageMaker itself tells, billed seconds among it, the embedded one says what it plays.
    assert "not seen" not in page
    for trial in TRIALS:
        assert json.loads((output / trial.name / "description.json").read_text())
        assert (output / trial.name / "log.txt").stat().st_size
    calls = {path.name.split("-", 2)[2] for path in (output / "calls").iterdir()}
    assert {"sagemaker-CreateTrainingJob.json", "sagemaker-StopTrainingJob.json", "logs-GetLogEvents.json"} <= calls
    assert {"algo-1.json", "algo-2.json"} <= {path.name for path in (output / "training").iterdir()}
