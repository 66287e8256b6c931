"""The first hour, whole, on the embedded SageMaker: every job ends as it has to, and every question has its line."""

import json
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from raysm.cli import first_job
from raysm.cli.arguments import parse
from raysm.cli.choosing import read_settings
from raysm.client import endpoint
from raysm.client.first_job.trials import TRIALS
from raysm.contract.home import scenario_file
from tests.support.homes import serving
from tests.support.hostile import soon_over

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

GRACE_S = "5"
"""From SIGTERM to SIGKILL: one of the jobs takes all of it."""

WAIT_S = 5.0
"""For those who never come."""


def trials_of(kind):
    """Return the jobs of the first hour, of which none waits long for what there cannot be.

    The hostile account lets nobody in; processes have no names by which they could reach each other.
    """
    vain = {"namespace": "visited", "process": "isolated"}[kind]
    return [replace(trial, wait_s=WAIT_S) if trial.mode == vain else trial for trial in TRIALS]


# Both kinds of instance, and both kinds of account: what a namespace shows beyond a process it shows in a bad hour too,
# and that it can be entered, the session of test_hostile.
@pytest.mark.parametrize(
    ("kind", "scenario"),
    [
        ("process", None),
        # As an account may really be: what a person would see in a bad hour.
        pytest.param("namespace", soon_over(), marks=pytest.mark.namespace, id="hostile"),
    ],
)
def test_every_job_of_the_first_hour_ends_as_it_has_to(tmp_path, capsys, kind, scenario):
    with serving(tmp_path / "home") as home:
        home.mkdir()
        if scenario is not None:
            scenario_file(home).write_text(scenario)
        endpoint.ensure(home, command=(sys.executable, "-m", "raysm.local.server", "--stop-grace-s", GRACE_S))
        output = tmp_path / "out"
        where = ("--output", str(output), "--instance-kind", kind, "--set", f"local.home={home}")
        arguments = parse(("doctor", "--first-job", *where))
        code = first_job.run(arguments, read_settings(arguments), Console(width=400), trials=trials_of(kind))
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert printed.count("\n  ok: ") == len(TRIALS)
    page = (output / "answers.md").read_text()
    # Of what only SageMaker itself tells, billed seconds among it, the embedded one says what it plays.
    assert "not seen" not in page
    # The hostile account forbids remote debugging: nobody gets in, and the job ends well all the same.
    assert ("| algo-1: it answered " in page) == (scenario is None)
    assert ("| algo-1: not reached (" in page) == (scenario is not None)
    for trial in TRIALS:
        assert json.loads((output / trial.name / "description.json").read_text())
        assert (output / trial.name / "log.txt").stat().st_size
    calls = {path.name.split("-", 2)[2] for path in (output / "calls").iterdir()}
    assert {"sagemaker-CreateTrainingJob.json", "sagemaker-StopTrainingJob.json", "logs-GetLogEvents.json"} <= calls
    assert {"algo-1.json", "algo-2.json"} <= {path.name for path in (output / "training").iterdir()}
