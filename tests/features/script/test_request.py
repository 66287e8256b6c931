"""Tests of ``raysm.features.script.request``."""

import re
from dataclasses import replace

import pytest

from raysm.core.request import Input
from raysm.core.request.job import JobRequest
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from raysm.features.training.request import TorchScript, TrainLoop

BOTH = pytest.mark.parametrize("kind", [Script, TorchScript])


@BOTH
def test_arguments_in_one_text_are_refused_with_the_list_that_was_meant(kind):
    with pytest.raises(InvalidRequest, match=rf"{kind.__name__}: .*args=\['--lr', '1'\]"):
        kind("train.py", args="--lr 1")


@BOTH
@pytest.mark.parametrize("value", [True, None, [1, 2], {"a": 1}])
def test_an_argument_without_a_spelling_of_its_own_is_refused(kind, value):
    with pytest.raises(InvalidRequest, match=f"{kind.__name__}: args .*{re.escape(repr(value))}"):
        kind("train.py", args=["--lr", 1e-05, value])


LOOP = {"name": "module.loop", "python": "3.11"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"workers": 0}, "DataParallel: workers .*got 0"),
        ({"max_restarts": -1}, "max_restarts.*got -1"),
        ({"precision": "fp16"}, "precision.*'fp16'"),
    ],
)
def test_a_loop_that_cannot_be_is_refused(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        TrainLoop(**LOOP, **fields)


def test_a_script_that_spawns_has_one_worker_for_each_instance():
    assert TorchScript("a.py", spawns=True, workers_per_instance=1).spawns
    with pytest.raises(InvalidRequest, match="workers_per_instance=2.*spawns"):
        TorchScript("a.py", spawns=True, workers_per_instance=2)


@BOTH
def test_an_argument_that_names_an_input_which_the_job_has_not_is_refused_with_those_that_it_has(
    kind,
):
    script, inputs = (
        kind("a.py", args=("{channel_trainrows}", "{{channel_x}}")),
        {"train-rows": Input("s3://b/x")},
    )
    with pytest.raises(InvalidRequest, match="'trainrows'.*train-rows$"):
        JobRequest(name="a", workload=script, inputs=inputs)
    assert JobRequest(
        name="a", workload=replace(script, args=("--data={channel_train-rows}",)), inputs=inputs
    )
