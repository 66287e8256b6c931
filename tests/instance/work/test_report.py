"""Tests of ``raysm.report`` in a job."""

import json
import math

import pytest

import raysm
from raysm.core.protocol.events import parse
from raysm.errors import MetricDiverged
from raysm.instance.work import report as reports
from tests.support.bootstraps import write_training


@pytest.fixture
def in_job(tmp_path, monkeypatch):
    """Let this process report as one of a job's, with these variables."""
    write_training(tmp_path, "algo-1", ["algo-1"])

    def enter(**variables):
        monkeypatch.setattr(reports, "_said", set())
        for name, value in {"SAGEMAKER_BASE_DIR": str(tmp_path), **variables}.items():
            monkeypatch.setenv(name, value)

    return enter


def reported(capsys):
    return [parse(text) for text in capsys.readouterr().out.splitlines()]


def test_another_rank_than_0_reports_its_first_value_that_is_not_finite_and_nothing_else(
    in_job, capsys
):
    in_job(RANK="2")
    for step, loss in enumerate((0.5, math.nan, math.nan)):
        raysm.report(step=step, loss=loss, accuracy=0.5)
    (metric,) = reported(capsys)
    assert (metric.name, metric.step, metric.rank) == ("loss", 1, 2)
    assert math.isnan(metric.value)


def test_a_rank_that_is_no_number_does_not_fail_the_program(in_job, capsys):
    in_job(RANK="worker-1")
    raysm.report(loss=math.nan)
    assert [metric.rank for metric in reported(capsys)] == [None]


def test_a_value_at_which_the_job_ends_is_in_the_log_before_the_program_is_stopped(in_job, capsys):
    in_job(RAYSM_STOP_ON_NAN="loss")
    raysm.report(step=1, loss=0.5, accuracy=math.nan)
    with pytest.raises(MetricDiverged, match="^loss is inf at step 2$"):
        raysm.report(step=2, loss=math.inf)
    assert [metric.name for metric in reported(capsys)] == ["loss", "accuracy", "loss"]


def test_a_trial_of_a_sweep_is_left_to_the_sweep(in_job, tmp_path, capsys):
    in_job(RAYSM_STOP_ON_NAN="loss", RAYSM_TRIAL=str(tmp_path))
    raysm.report(loss=math.nan)
    assert json.loads(capsys.readouterr().out)["metrics"] == {"loss": "NaN"}
