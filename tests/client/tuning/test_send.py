"""Sending a tuning job: what is refused before anything is, and what its name is like."""

import re

import pytest

import raysm
from raysm.client.submit import prepare
from raysm.client.tuning.call import LONGEST_NAME, TuningOptions, _name, prepare_tuning, tune
from raysm.errors import InvalidRequest


def test_the_name_begins_with_the_tasks_and_has_at_most_as_many_characters_as_the_service_takes():
    for task in ("t", "a-task-with-a-very-long-name-indeed", "odd.name_"):
        name = _name(task)
        assert len(name) <= LONGEST_NAME
        assert re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,31}", name)
    assert _name("t").startswith("t-")
    assert _name("t") != _name("t")


def test_what_is_no_sweep_is_refused():
    with pytest.raises(InvalidRequest, match=r"tune takes raysm.Sweep\(…\), got 'train.py'"):
        tune("train.py")


def test_trials_are_training_jobs():
    sweep = raysm.Sweep("examples/hello_cluster.py", space={"lr": raysm.uniform(0, 1)}, metric="loss", mode="min")
    with pytest.raises(InvalidRequest, match="trials are training jobs, got kind='processing'"):
        tune(sweep, kind="processing")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint_uri": "s3://bucket/state"}, "all trials of a tuning job would have one checkpoint_uri"),
        ({"limits": raysm.Limits(max_restarts=2)}, "max_restarts=2 is of a job that raysm follows"),
    ],
    ids=["checkpoints", "restarts"],
)
def test_what_a_trial_would_lose_without_a_word_is_refused(options, message):
    sweep = raysm.Sweep("examples/hello_cluster.py", space={"lr": raysm.uniform(0, 1)}, metric="loss", mode="min")
    with pytest.raises(InvalidRequest, match=message):
        tune(sweep, **options)


def test_that_trials_are_not_copied_to_a_file_of_this_machine_is_said(tmp_path, caplog):
    sweep = raysm.Sweep("examples/hello_cluster.py", space={"lr": raysm.uniform(0, 1)}, metric="loss", mode="min")
    for place in (f"sqlite:///{tmp_path}/mlflow.db", "http://127.0.0.1:5000"):
        prepare_tuning(prepare(sweep, tracking=place), TuningOptions())
    (said,) = [record.getMessage() for record in caplog.records if "not copied" in record.getMessage()]
    assert "mlflow.db" in said
