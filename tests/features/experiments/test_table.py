"""``raysm.jobs``: the jobs that ran, as a table."""

import math

import pytest

from raysm.core.client.job.description import Status
from raysm.core.client.job.experiment import Summary
from raysm.core.client.submit import submit
from raysm.core.protocol.events import Metric, line
from raysm.errors import InvalidRequest
from raysm.features.experiments.table import (
    Jobs,
    check_columns,
    format_value,
    jobs,
    parameter_columns,
    sort_rows,
)
from raysm.features.script.request import Script
from raysm.testing import Answer
from tests.support.experiments import FULL, row


@pytest.fixture
def train(fake, script):
    """Return a function that runs a job with a learning rate, which reports these losses."""

    def train(lr, *losses, status="Completed", reason="", **options):
        lines = [
            line(Metric(name="loss", value=loss, step=step)) for step, loss in enumerate(losses)
        ]
        fake.answer("script", Answer(lines=lines, status=status, reason=reason))
        return submit(Script(str(script), args=["--lr", lr]), on=fake, **options).name

    return train


def test_they_are_chosen_and_sorted(fake, train):
    other = train(0.3, 1.0, project="words")
    names = [train(lr, loss, project="digits") for lr, loss in ((0.1, 2.0), (0.2, 0.5))]
    assert [one.name for one in jobs(fake, project="digits").sorted_by("loss")] == names[::-1]
    assert [one.name for one in jobs(fake).sorted_by("-lr")] == [other, names[1], names[0]]
    assert jobs(fake, status="failed") == []
    with pytest.raises(InvalidRequest, match="'los'.* loss, lr"):
        jobs(fake).sorted_by("-los")
    with pytest.raises(InvalidRequest, match=r"status.*\['Done'\]"):
        jobs(fake, status=["Done"])


def test_a_frame_has_a_row_for_each_job_and_an_unknown_cost_is_not_0(fake, train):
    train(0.1, 3.0, 0.5, 0.7)
    frame = jobs(fake).to_frame()
    columns = ["params.lr", "metrics.loss", "metrics.loss:best", "status"]
    assert frame.loc[0, columns].tolist() == [0.1, 0.7, 0.5, "Completed"]
    assert math.isnan(Jobs([row(), FULL], fake).to_frame().loc[0, "cost_usd"])
    assert str(frame["created"].dtype).endswith("UTC]")
    assert list(Jobs([], fake).to_frame().columns) == ["name"]


def summary(value):
    return Summary(last=value, lowest=value, highest=value, count=1)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("losss", "'losss'.* loss"),
        ("loss:median", "'loss:median'.*:best"),
    ],
)
def test_a_column_that_no_job_has_is_refused_with_the_nearest(column, message):
    with pytest.raises(InvalidRequest, match=message):
        check_columns([FULL], [column])


def test_who_asks_for_a_trials_parameter_among_sweeps_alone_is_told_how_to_take_the_trials_along():
    sweep = row(parameters={"space.lr": "loguniform(0.0001, 0.1)", "trials": 6})
    with pytest.raises(InvalidRequest, match=r"'lr'.*space\.lr.*--trials"):
        check_columns([sweep], ["lr"])
    # The table has no room for all: the parameters of the many trials come before those of their
    # sweep.
    trials = [row(parameters={"lr": lr}) for lr in (0.1, 0.2)]
    assert parameter_columns([sweep, *trials])[0] == "lr"


def test_jobs_whose_loss_became_nan_come_last_and_the_others_keep_their_order():
    values = {"c": 3.0, "lost": math.nan, "a": 1.0, "up": math.inf, "down": -math.inf, "b": 2.0}
    rows = [
        row(name="none"),
        *(row(name=name, metrics={"loss": summary(value)}) for name, value in values.items()),
    ]
    last = ["lost", "up", "down", "none"]
    assert [each.name for each in sort_rows(rows, "loss")] == ["a", "b", "c", *last]
    assert [each.name for each in sort_rows(rows, "-loss")] == ["c", "b", "a", *last]


def test_names_with_numbers_are_sorted_by_the_numbers():
    rows = [row(name=f"digits-1/{number}") for number in (10, 2, 1)]
    assert [each.name for each in sort_rows(rows, "name")] == [
        "digits-1/1",
        "digits-1/2",
        "digits-1/10",
    ]


def test_a_job_that_diverged_has_nan_as_its_last_value_and_is_marked_with_the_step(fake, train):
    train(0.1, 0.5, 0.31, math.nan)
    (diverged,) = jobs(fake)
    assert math.isnan(diverged.value("loss"))
    assert format_value(diverged, "loss") == "⚠ nan from step 2"
    assert diverged.as_dict()["metrics"]["loss"]["last"] == "NaN"


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
    assert format_value(row(**fields), "cost_usd") == text
