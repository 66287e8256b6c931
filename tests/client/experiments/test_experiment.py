"""One job as a row of the table."""

import json

import pytest

from raysm.client.experiments.experiment import Experiment, Summary
from tests.support.experiments import FULL, row


def test_it_comes_back_from_json_as_it_was():
    assert Experiment.of_json(FULL.as_json()) == FULL
    assert Experiment.of_json(row().as_json()) == row()


def test_it_took_from_the_start_of_its_instances_to_its_end():
    assert FULL.duration_s == 100
    assert row(created_s=1.0).duration_s is None
    assert row(started_s=5.0, ended_s=4.0).duration_s == 0


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", "digits-1"),
        ("status", "Completed"),
        ("lr", 0.1),
        ("fast", True),
        ("loss", 0.5),
        ("loss:min", 0.25),
        ("loss:max", 2.0),
        ("loss:best", 0.25),
        ("loss:median", None),
        ("cost_usd", 0.25),
        ("duration_s", 100.0),
        ("accuracy", None),
    ],
)
def test_a_column_is_a_fact_a_parameter_or_a_metric(column, value):
    assert FULL.value(column) == value


def test_a_metric_with_a_colon_in_its_name_is_found():
    job = row(metrics={"val:loss": Summary(last=1.0, lowest=1.0, highest=3.0, count=2)})
    assert (job.value("val:loss"), job.value("val:loss:max")) == (1.0, 3.0)


def test_for_others_it_is_json_with_times_that_people_read_and_an_unknown_cost_as_null():
    data = json.loads(json.dumps(row(created_s=0.0).as_dict()))
    assert (data["created"], data["ended"], data["cost_usd"]) == ("1970-01-01T00:00:00+00:00", None, None)
    assert "created_s" not in data
    assert FULL.as_dict()["metrics"]["loss"]["lowest"] == 0.25
