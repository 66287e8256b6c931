"""The trials of a sweep as rows of the table."""

from raysm.client.experiments.experiment import Experiment, trial_rows
from raysm.client.job.description import Status
from raysm.contract.events import Trial
from tests.support.experiments import FULL, row


def trial(number, status="done", **fields):
    return Trial(number=number, status=status, time_s=1_800_000_100.0, **fields)


def test_a_trial_has_its_parameters_its_metrics_and_its_time():
    told = [trial(0, "running", params={"lr": 0.1})]
    told += [trial(0, params={"lr": 0.1}, metrics={"loss": 0.5}, value=0.5, reports=9, seconds=40.0)]
    (only,) = trial_rows(FULL, told)
    assert (only.name, only.trial, only.status, only.project) == ("digits-1/0", 0, Status.COMPLETED, "digits")
    assert (only.value("lr"), only.value("loss"), only.metrics["loss"].count) == (0.1, 0.5, 9)
    assert (only.duration_s, only.started_s) == (40.0, 1_800_000_060.0)


def test_they_are_in_the_order_of_their_numbers_each_as_it_was_told_last():
    told = [trial(1, "running"), trial(0, "running"), trial(1, "stopped"), trial(0, "failed", reason="ValueError: no")]
    rows = trial_rows(FULL, told)
    assert [(one.trial, one.status, one.message) for one in rows] == [
        (0, Status.FAILED, "ValueError: no"),
        (1, Status.STOPPED, ""),
    ]


def test_one_that_was_not_told_to_end_runs_as_long_as_its_job():
    told = [trial(0, "running")]
    (running,) = trial_rows(row(status=Status.IN_PROGRESS), told)
    assert (running.status, running.duration_s) == (Status.IN_PROGRESS, None)
    (interrupted,) = trial_rows(row(status=Status.FAILED, ended_s=1_800_000_160.0), told)
    assert (interrupted.status, interrupted.ended_s) == (Status.STOPPED, 1_800_000_160.0)


def test_what_a_trial_has_cost_nobody_says():
    (only,) = trial_rows(FULL, [trial(0)])
    assert (only.is_billed, only.cost_usd) == (False, None)


def test_a_row_of_a_trial_is_kept_as_json():
    (only,) = trial_rows(FULL, [trial(3, params={"kind": "adam"}, metrics={"loss": 1.0})])
    assert Experiment.of_json(only.as_json()) == only
