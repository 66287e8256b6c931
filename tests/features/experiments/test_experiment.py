"""Rows of the table of jobs, and jobs read as rows: values, curves, summaries and trials."""

import datetime
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.core.client.costs.bill import bill_of, usd_so_far
from raysm.core.client.job.description import Status, read
from raysm.core.client.job.experiment import (
    MAX_POINTS,
    Divergences,
    Experiment,
    curves_of,
    goal_of,
    summary_of,
    thinned,
)
from raysm.core.client.submit import submit
from raysm.core.protocol.events import Metric, Trial, line
from raysm.core.protocol.job_api import PROCESSING, TRAINING
from raysm.core.request import Cluster
from raysm.features.experiments.listing import read_job, trial_rows
from raysm.features.script.request import Script
from tests.support.client_jobs import M5, NOW_MS
from tests.support.experiments import FULL, row
from tests.support.sagemaker import fake_aws, now, refusal


def metric(value, step=None, **fields):
    return Metric(**({"name": "loss", "value": value, "step": step, "time_s": 1.0} | fields))


def test_each_name_has_a_curve_and_instances_have_none():
    curves = curves_of(
        [
            metric(3.0, 0),
            metric(9.0, name="rate"),
            metric(2.0, 1),
            metric(5.0, host="algo-1", name="cpu"),
        ]
    )
    assert curves == {"loss": [(0, 1.0, 3.0), (1, 1.0, 2.0)], "rate": [(None, 1.0, 9.0)]}


def test_of_a_step_that_was_done_again_the_last_value_counts():
    assert curves_of([metric(3.0, 0), metric(2.0, 1), metric(1.5, 1)])["loss"] == [
        (0, 1.0, 3.0),
        (1, 1.0, 1.5),
    ]


def test_a_value_that_is_nan_is_neither_the_lowest_nor_the_highest():
    nan = float("nan")
    summary = summary_of([(0, 1.0, nan), (1, 2.0, 3.0), (2, 3.0, nan), (3, 4.0, 1.0)])
    assert (summary.lowest, summary.highest, summary.count) == (1.0, 3.0, 4)
    assert summary_of([(0, 1.0, nan)]).lowest != summary_of([(0, 1.0, nan)]).lowest
    curve = [(step, 1.0, nan if step % 2 == 0 else float(step)) for step in range(10 * MAX_POINTS)]
    curve[301] = (301, 1.0, -5.0)
    assert min(value for _, _, value in thinned(curve) if value == value) == -5.0


def test_an_infinity_is_neither_the_lowest_nor_the_highest():
    summary = summary_of([(0, 1.0, math.inf), (1, 2.0, 3.0), (2, 3.0, -math.inf)])
    assert (summary.last, summary.lowest, summary.highest) == (-math.inf, 3.0, 3.0)


@pytest.mark.parametrize(
    ("steps", "values", "begin"),
    [
        ((0, 1, 2, 3), (0.5, math.nan, 0.4, math.nan), "step 3"),
        ((4, 8, 12), (0.5, math.nan, math.inf), "step 8"),
        ((None, None), (0.5, math.nan), "value 2"),
        ((0, 1), (math.nan, 0.5), ""),
    ],
)
def test_a_summary_says_from_which_step_the_value_is_not_finite(steps, values, begin):
    summary = summary_of([(step, 1.0, value) for step, value in zip(steps, values, strict=True)])
    assert summary.not_finite_from == begin


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ([(1, None, 0.5), (1, 2, math.nan), (2, None, 0.4)], "step 1 on rank 2"),
        ([(1, 2, math.nan), (1, 0, math.nan)], "step 1 on rank 2"),
        ([(3, 0, math.nan), (4, None, 0.5)], None),
        ([(3, 2, math.nan), (3, 0, math.nan), (4, None, 0.5)], None),
        ([(None, 0, 0.5), (None, 1, math.inf), (None, 1, 0.5)], None),
        ([(None, 0, 0.5), (None, 1, math.inf), (None, 0, 0.5)], "value 2 on rank 1"),
    ],
)
def test_a_rank_that_has_diverged_stays_so_until_it_reports_a_finite_value_itself(values, first):
    metrics = [
        Metric(name="loss", step=step, rank=rank, value=value) for step, rank, value in values
    ]
    diverged = Divergences(metrics).first("loss")
    assert (diverged and diverged[1]) == first
    summary = summary_of(curves_of(metrics)["loss"], diverged)
    assert math.isfinite(summary.last) == (first is None)


def test_in_few_points_a_curve_still_breaks_where_a_value_is_nan():
    curve = [(step, float(step), float(step)) for step in range(20 * MAX_POINTS)]
    curve[777] = (777, 777.0, math.nan)
    fewer = thinned(curve)
    assert 777 in {step for step, _, _ in fewer}
    assert len(fewer) <= MAX_POINTS


def test_values_without_a_step_that_came_at_the_same_time_are_all_kept():
    assert [value for *_, value in curves_of([metric(3.0), metric(2.0)])["loss"]] == [3.0, 2.0]


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("val/loss", "min"),
        ("valLoss", "min"),
        ("step_s", "min"),
        ("val_acc", "max"),
        ("rows_per_s", "max"),
        ("images/second", "max"),
        ("mAP50", "max"),
        ("val/Acc5", "max"),
        ("recall@10", "max"),
        ("loss2", "min"),
        ("s3_reads", None),
        ("loss_score", None),
        ("previous_rows", None),
        ("various", None),
        ("memory_map", None),
        ("accumulated", None),
        ("glossary", None),
    ],
)
def test_whether_lower_is_better_is_said_by_the_name_or_not_at_all(name, goal):
    assert goal_of(name) == goal


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=2000))
def test_in_few_points_a_curve_keeps_its_ends_and_its_extremes(values):
    curve = [(step, float(step), value) for step, value in enumerate(values)]
    fewer = thinned(curve)
    assert len(fewer) <= MAX_POINTS
    assert fewer == sorted(fewer)
    assert {curve[0], curve[-1]} <= set(fewer)
    assert (min(values), max(values)) == (
        min(value for *_, value in fewer),
        max(value for *_, value in fewer),
    )


def trial(number, status="done", **fields):
    return Trial(number=number, status=status, time_s=1_800_000_100.0, **fields)


def test_a_trial_has_its_parameters_its_metrics_and_its_time():
    told = [trial(0, "running", params={"lr": 0.1})]
    told += [
        trial(0, params={"lr": 0.1}, metrics={"loss": 0.5}, value=0.5, reports=9, seconds=40.0)
    ]
    (only,) = trial_rows(FULL, told)
    assert (only.name, only.trial, only.status, only.project) == (
        "digits-1/0",
        0,
        Status.COMPLETED,
        "digits",
    )
    assert (only.value("lr"), only.value("loss"), only.metrics["loss"].count) == (0.1, 0.5, 9)
    assert (only.duration_s, only.started_s) == (40.0, 1_800_000_060.0)


def test_one_that_was_not_told_to_end_runs_as_long_as_its_job():
    told = [trial(0, "running")]
    (running,) = trial_rows(row(status=Status.IN_PROGRESS), told)
    assert (running.status, running.duration_s) == (Status.IN_PROGRESS, None)
    (interrupted,) = trial_rows(row(status=Status.FAILED, ended_s=1_800_000_160.0), told)
    assert (interrupted.status, interrupted.ended_s) == (Status.STOPPED, 1_800_000_160.0)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("status", "Completed"),
        ("loss", 0.5),
        ("loss:best", 0.25),
        ("loss:median", None),
        ("duration_s", 100.0),
    ],
)
def test_a_column_is_a_fact_a_parameter_or_a_metric(column, value):
    assert FULL.value(column) == value


def test_for_others_it_is_json_with_times_that_people_read_and_an_unknown_cost_as_null():
    assert [Experiment.of_json(one.as_json()) for one in (FULL, row())] == [FULL, row()]
    data = json.loads(json.dumps(row(created_s=0.0).as_dict()))
    assert (data["created"], data["ended"], data["cost_usd"]) == (
        "1970-01-01T00:00:00+00:00",
        None,
        None,
    )
    assert "created_s" not in data
    assert FULL.as_dict()["metrics"]["loss"]["lowest"] == 0.25


@pytest.fixture
def american():
    """AWS in the region whose prices are known."""
    with fake_aws(region="us-east-1") as fake:
        yield fake


M5X = Cluster("ml.m5.xlarge", count=2)


def losses(*values):
    return [
        (NOW_MS + step, line(Metric(name="loss", value=value, step=step)))
        for step, value in enumerate(values)
    ]


def test_a_row_has_parameters_metrics_times_and_what_it_cost(american, script):
    job = submit(
        Script(str(script), args=["--lr", "0.1"]),
        cluster=M5X,
        on=american.service,
        project="digits",
        name="net",
        hyperparameters={"depth": 3, "sagemaker_program": "x"},
    )
    american.write_log(job.name, "algo-1", losses(3.0, 1.0, 2.0))
    started = now() - datetime.timedelta(minutes=10)
    american.sagemaker.end(
        job.name, "Completed", TrainingStartTime=started, BillableTimeInSeconds=100
    )
    reading = read_job(american.service, TRAINING, job.name)
    row = reading.row
    assert reading.is_final
    assert (row.name, row.status, row.project, row.task, row.workload) == (
        job.name,
        Status.COMPLETED,
        "digits",
        "net",
        "script",
    )
    assert dict(row.parameters) == {"lr": 0.1, "depth": 3}
    assert (row.metrics["loss"].last, row.metrics["loss"].lowest) == (2.0, 1.0)
    assert reading.curves["loss"][1][::2] == (1, 1.0)
    assert 290 < row.duration_s < 310
    answer = read(TRAINING, american.service.describe(TRAINING, job.name))
    assert row.cost_usd == bill_of([answer], american.service.region).usd > 0
    assert set(row.versions) == {"raysm", "python"}
    assert len(row.code) == 64


def test_a_job_that_runs_is_not_final_and_costs_what_it_has_cost_so_far(american, script):
    job = submit(Script(str(script)), cluster=M5X, on=american.service)
    answer = american.sagemaker.jobs[job.name]["answer"]
    answer["TrainingStartTime"] = now() - datetime.timedelta(hours=1)
    reading = read_job(american.service, TRAINING, job.name)
    assert not reading.is_final
    an_hour = usd_so_far(
        read(TRAINING, answer),
        american.service.region,
        answer["TrainingStartTime"].timestamp() + 3600,
    )
    assert reading.row.cost_usd == pytest.approx(an_hour, rel=0.1) != 0


def test_a_job_of_others_has_what_the_service_tells(remote):
    remote.sagemaker.create_processing_job(
        ProcessingJobName="theirs", AppSpecification={"ImageUri": "their/image"}
    )
    row = read_job(remote.service, PROCESSING, "theirs").row
    assert (row.project, row.workload, row.image, row.parameters) == (None, None, "their/image", {})


def test_what_may_not_be_read_is_left_out_and_asked_for_again(remote, job):
    remote.write_log(job.name, "algo-1", losses(1.0))
    remote.sagemaker.end(job.name, "Completed")
    remote.fail("describe_log_streams", refusal("AccessDeniedException", "not yours"), times=1)
    first, second = (read_job(remote.service, TRAINING, job.name) for _ in range(2))
    assert (first.is_final, first.row.metrics, first.row.task) == (False, {}, "train")
    assert (second.is_final, [*second.row.metrics]) == (True, ["loss"])


def test_a_follow_up_has_the_parameters_of_the_first_job(remote, script):
    job = submit(Script(str(script), args=["--lr", "1"]), cluster=M5, on=remote.service)
    tags = [*remote.sagemaker.jobs[job.name]["tags"], {"Key": "raysm:first", "Value": job.name}]
    remote.sagemaker.create_training_job(TrainingJobName=f"{job.name}-r1", Tags=tags)
    row = read_job(remote.service, TRAINING, f"{job.name}-r1").row
    assert (row.first, row.parameters) == (job.name, {"lr": 1})
