"""Metrics that a script or a function reports."""

import json
import math

import pytest

import raysm
from raysm.contract.events import Metric, parse
from raysm.errors import InvalidRequest


@pytest.fixture
def printed(monkeypatch, capsys):
    """Return a function that reports as a script does whose base folder is ``base``, and returns its lines."""

    def reported(base, *, rank=None, **metrics):
        monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(base))
        if rank is not None:
            monkeypatch.setenv("RANK", rank)
        raysm.report(**metrics)
        return capsys.readouterr().out.splitlines()

    return reported


@pytest.fixture
def job(tmp_path):
    """The base folder of an instance of a job."""
    config = tmp_path / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    return tmp_path


def test_in_a_job_metrics_are_events_of_one_moment(job, printed):
    told = [parse(line) for line in printed(job, loss=0.5, accuracy=1, step=3)]
    assert told == [
        Metric(name="loss", value=0.5, step=3, time_s=told[0].time_s),
        Metric(name="accuracy", value=1.0, step=3, time_s=told[0].time_s),
    ]
    # A value that is not finite is for people, and ends nothing.
    assert printed(job, loss=math.nan, step=2) == ["step 2: loss nan"]


@pytest.mark.parametrize("step", [2.5, math.nan, math.inf, "3", [1]])
def test_a_step_that_is_no_whole_number_is_refused(step):
    with pytest.raises(InvalidRequest, match="step must be a whole number"):
        raysm.report(loss=1.0, step=step)


def test_outside_of_a_job_they_are_printed_for_people(tmp_path, printed):
    assert printed(tmp_path, loss=0.5, accuracy=1, step=3) == ["step 3: loss 0.5, accuracy 1"]
    assert printed(tmp_path, rate=2) == ["rate 2"]


def test_of_the_workers_of_a_torchrun_script_the_first_one_reports(job, printed):
    assert printed(job, rank="1", loss=0.5) == []
    assert len(printed(job, rank="0", loss=0.5)) == 1


@pytest.mark.parametrize(("metrics", "said"), [({}, "got none"), ({"loss": "low"}, "loss must be a number, got 'low'")])
def test_what_is_no_metric_is_refused(metrics, said):
    with pytest.raises(InvalidRequest, match=said):
        raysm.report(**metrics)
