"""What the table of experiments shows, in which order, and how each value is written."""

import pytest

from raysm.client.experiments.experiment import Summary
from raysm.client.job.description import Status
from raysm.errors import InvalidRequest
from raysm.views.experiments.comparison import (
    check_columns,
    format_seconds,
    metric_columns,
    order,
    parameter_columns,
    shown,
    summary_words,
)
from tests.support.experiments import FULL, row


def summary(value):
    return Summary(last=value, lowest=value, highest=value, count=1)


def test_parameters_that_differ_come_first():
    rows = [row(parameters={"seed": 1, "lr": 0.1}), row(parameters={"seed": 1, "lr": 0.2, "depth": 3})]
    assert parameter_columns(rows) == ["lr", "depth", "seed"]


def test_metrics_that_most_jobs_have_come_first():
    rows = [row(metrics={"auc": summary(1)}), row(metrics={"loss": summary(1)}), row(metrics={"loss": summary(2)})]
    assert metric_columns(rows) == ["loss", "auc"]


@pytest.mark.parametrize("column", ["lr", "loss", "loss:best", "loss:min", "status", "cost_usd"])
def test_a_column_that_a_job_has_is_taken(column):
    check_columns([FULL], [column])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("losss", "'losss'; did you mean 'loss'"),
        ("zzz", "there are fast, loss, lr, model"),
        ("loss:median", "a metric can be followed by last, min, max, best"),
    ],
)
def test_a_column_that_no_job_has_is_refused_with_the_nearest(column, message):
    with pytest.raises(InvalidRequest, match=message):
        check_columns([FULL], [column])


def test_who_asks_for_a_trials_parameter_among_sweeps_alone_is_told_how_to_take_the_trials_along():
    sweep = row(parameters={"space.lr": "loguniform(0.0001, 0.1)", "trials": 6})
    with pytest.raises(InvalidRequest, match=r"these jobs only have its range, space\.lr; .*raysm jobs --trials"):
        check_columns([sweep], ["lr"])


def test_they_are_ordered_by_a_column_and_those_without_a_value_come_last():
    rows = [
        row(name=name, metrics={} if value is None else {"loss": summary(value)})
        for name, value in (("b", 2.0), ("none", None), ("a", 1.0), ("c", 3.0))
    ]
    assert [each.name for each in order(rows, "loss")] == ["a", "b", "c", "none"]
    assert [each.name for each in order(rows, "-loss")] == ["c", "b", "a", "none"]


def test_jobs_whose_loss_became_nan_come_last_and_the_others_keep_their_order():
    values = {"c": 3.0, "lost": float("nan"), "a": 1.0, "gone": float("nan"), "b": 2.0}
    rows = [row(name=name, metrics={"loss": summary(value)}) for name, value in values.items()]
    assert [each.name for each in order(rows, "loss")] == ["a", "b", "c", "lost", "gone"]
    assert [each.name for each in order(rows, "-loss")] == ["c", "b", "a", "lost", "gone"]


def test_texts_and_numbers_of_one_column_have_an_order():
    rows = [row(name=str(value), parameters={"depth": value}) for value in ("auto", 3, True, 2.5)]
    assert [each.name for each in order(rows, "depth")] == ["True", "2.5", "3", "auto"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"is_billed": False}, "–"),
        ({"cost_usd": None}, "unknown"),
        ({"cost_usd": 1.5}, "1.50 USD"),
        ({"cost_usd": 1.5, "status": Status.IN_PROGRESS}, "about 1.50 USD so far"),
        ({"cost_usd": 0.0}, "0.00 USD"),
    ],
)
def test_a_cost_is_unknown_where_nobody_knows_it(fields, text):
    assert shown(row(**fields), "cost_usd") == text


def test_values_are_written_for_people():
    assert [shown(FULL, column) for column in ("lr", "loss", "created_s", "duration_s", "nothing", "fast")] == [
        "0.1",
        "0.5",
        "2027-01-15 08:00:00",
        "1 min 40 s",
        "",
        "True",
    ]
    assert shown(row(code="a" * 64), "code") == "a" * 8


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0.4, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7325, "2 h 2 min")]
)
def test_a_duration_is_written_for_people(seconds, text):
    assert format_seconds(seconds) == text


def test_a_metric_has_its_range_where_it_has_one():
    assert summary_words(FULL.metrics["loss"]) == "0.5 (0.25 to 2)"
    assert summary_words(summary(3.0)) == "3"
