"""Metrics that a script or a function reports."""

import json
import math
import os
import subprocess
import sys

import pytest

import raysm
from raysm.contract.events import Metric, parse
from raysm.errors import InvalidRequest


def printed(code, base, **variables):
    """Return what a script prints whose base folder is ``base``."""
    done = subprocess.run(
        [sys.executable, "-c", f"import raysm\n{code}"],
        env=os.environ | {"SAGEMAKER_BASE_DIR": str(base)} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.fixture
def job(tmp_path):
    """The base folder of an instance of a job."""
    config = tmp_path / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    return tmp_path


def test_in_a_job_metrics_are_events_of_one_moment(job):
    told = [parse(line) for line in printed("raysm.report(loss=0.5, accuracy=1, step=3)", job)]
    assert told == [
        Metric(name="loss", value=0.5, step=3, time_s=told[0].time_s),
        Metric(name="accuracy", value=1.0, step=3, time_s=told[0].time_s),
    ]


@pytest.mark.parametrize("step", [2.5, math.nan, math.inf, "3", [1]])
def test_a_step_that_is_no_whole_number_is_refused(step):
    with pytest.raises(InvalidRequest, match="step must be a whole number"):
        raysm.report(loss=1.0, step=step)


def test_outside_of_a_job_they_are_printed_for_people(tmp_path):
    assert printed("raysm.report(loss=0.5, accuracy=1, step=3)\nraysm.report(rate=2)", tmp_path) == [
        "step 3: loss 0.5, accuracy 1",
        "rate 2",
    ]


def test_of_the_workers_of_a_torchrun_script_the_first_one_reports(job):
    assert printed("raysm.report(loss=0.5)", job, RANK="1") == []
    assert len(printed("raysm.report(loss=0.5)", job, RANK="0")) == 1


def test_a_value_that_is_not_finite_is_told_to_people_and_ends_nothing(job):
    assert printed("raysm.report(loss=float('nan'), step=2)", job) == ["step 2: loss nan"]


@pytest.mark.parametrize(("metrics", "said"), [({}, "got none"), ({"loss": "low"}, "loss must be a number, got 'low'")])
def test_what_is_no_metric_is_refused(metrics, said):
    with pytest.raises(InvalidRequest, match=said):
        raysm.report(**metrics)
