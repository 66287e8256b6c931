"""Metrics that a script or a function reports."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import raysm
from raysm.contract.events import Metric, parse
from raysm.errors import InvalidRequest
from raysm.workloads import report as reports


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


def test_a_step_may_be_the_number_of_another_library(job):
    code = "import numpy as np\nfor step in (np.int64(3), np.float32(4), 5.0, True): raysm.report(loss=1, step=step)"
    assert [parse(line).step for line in printed(code, job)] == [3, 4, 5, 1]


@pytest.mark.parametrize("step", [2.5, math.nan, math.inf, "3", [1]])
def test_a_step_that_is_no_whole_number_is_refused(step):
    with pytest.raises(InvalidRequest, match="step must be a whole number"):
        raysm.report(loss=1.0, step=step)


def test_outside_of_a_job_they_are_printed_for_people(tmp_path):
    assert printed("raysm.report(loss=0.5, accuracy=1, step=3)\nraysm.report(rate=2)", tmp_path) == [
        "step 3: loss 0.5, accuracy 1",
        "rate 2",
    ]


def test_in_a_program_of_rays_own_jobs_they_are_printed_for_people_too(job):
    assert printed("raysm.report(loss=0.5, step=3)", job, RAY_JOB_CONFIG_JSON_ENV_VAR="{}") == ["step 3: loss 0.5"]


def test_of_the_workers_of_a_torchrun_script_the_first_one_reports(job):
    assert printed("raysm.report(loss=0.5)", job, RANK="1") == []
    assert len(printed("raysm.report(loss=0.5)", job, RANK="0")) == 1


def test_a_value_that_is_not_finite_is_told_to_people_and_ends_nothing(job):
    assert printed("raysm.report(loss=float('nan'), step=2)", job) == ["step 2: loss nan"]


@pytest.mark.parametrize("value", [np.float32(0.5), np.array(0.5), True, 10**30])
def test_whatever_is_a_number_can_be_reported(value, capsys):
    raysm.report(value=value)
    assert math.isclose(float(capsys.readouterr().out.split()[1]), float(value), rel_tol=1e-5)


@pytest.mark.parametrize(("metrics", "said"), [({}, "got none"), ({"loss": "low"}, "loss must be a number, got 'low'")])
def test_what_is_no_metric_is_refused(metrics, said):
    with pytest.raises(InvalidRequest, match=said):
        raysm.report(**metrics)


def test_the_public_name_is_this_function():
    assert raysm.report is reports.report
