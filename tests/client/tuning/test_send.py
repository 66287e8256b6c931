"""Sending a tuning job: what is refused before anything is, and what its name is like."""

import re

import pytest

import raysm
from raysm.client.tuning.send import LONGEST_NAME, _name, tune
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
    sweep = raysm.Sweep("examples/hello_cluster.py", space={"lr": raysm.uniform(0, 1)}, metric="loss")
    with pytest.raises(InvalidRequest, match="trials are training jobs, got kind='processing'"):
        tune(sweep, kind="processing")
