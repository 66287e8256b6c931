"""Tests of ``raysm.core.request.job``."""

import json
import re
from pathlib import Path

import numpy
import pytest

from raysm.core.request import Input, Limits
from raysm.core.request.codec import from_json, to_json
from raysm.core.request.job import JobRequest
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script
from raysm.features.similarity.request import Similarity
from raysm.instance.variables import user_variables
from tests.instance.test_variables import told


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (False, False), (True, True), (None, None), (["a", 1], ["a", 1]), (("a",), ["a"]), ({"b": 0.1}, {"b": 0.1}),
        (0.1, 0.1), (3, 3), ("relu", "relu"), ("", ""), (Path("/x"), "/x"), (numpy.float32(0.5), 0.5),
        (numpy.bool_(False), False), ("1", 1), ("true", True), ("0.10", 0.1),
    ],
)  # fmt: skip
def test_a_value_arrives_in_sm_hps_as_it_was_given_or_as_its_text_spells(tmp_path, value, arrives):
    request = JobRequest(name="job", workload=Script("train.py"), hyperparameters={"x": value})
    instance = told(tmp_path, hyperparameters=request.hyperparameters)
    variables = user_variables(instance, request, Path("/src"), cpus=1, gpus=0)
    assert json.loads(variables["SM_HPS"]) == {"x": arrives}


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("3", "3"), ("3.10", "3.10"), ("a b", "a b"), ('"quoted"', "quoted"), ("[1,2]", "[1,2]"), ("true", "true"),
        ("it's", "it's"), ("null", "null"), ("", ""), ("1e3", "1e3"), (3.1, "3.1"), (True, "true"), (None, "null"),
        ([1, 2], "[1, 2]"), ("True", "True"),
    ],
)  # fmt: skip
def test_hyperparameters_become_arguments_in_which_text_stays_text_and_other_values_are_json(
    text, argument
):
    request = JobRequest(
        name="job",
        workload=Script("train.py"),
        hyperparameters={"x": text, "y": "-1e-05"},
        hyperparameters_as_args=True,
    )
    assert request.script_args == ("--x", argument, "--y=-1e-05")


# What sagemaker-training's to_cmd_args makes of the values that the SDK 2 has encoded as JSON.
@pytest.mark.parametrize(
    ("value", "argument"),
    [
        (True, "True"), (False, "False"), (None, "None"), (3, "3"), (0.1, "0.1"), ("3.10", "3.10"), ("a b", "a b"),
        ("", ""), ([1, "a"], "[1, 'a']"), ({"b": 2, "a": 1}, "a=1,b=2"),
    ],
)  # fmt: skip
def test_hyperparameters_are_spelled_as_by_the_sdk_2_if_asked_for(value, argument):
    request = JobRequest(
        name="job",
        workload=Script("train.py"),
        hyperparameters={"rate": value, "n": 1, "m": -2},
        hyperparameters_as_args="sdk2",
    )
    assert request.script_args == ("-m=-2", "-n", "1", "--rate", argument)
    assert from_json(JobRequest, to_json(request)) == request


def test_another_spelling_of_hyperparameters_is_refused():
    with pytest.raises(InvalidRequest, match="'sdk3'.*'sdk2'"):
        JobRequest(name="job", workload=Script("train.py"), hyperparameters_as_args="sdk3")


def test_a_script_gets_its_hyperparameters_before_its_own_arguments_where_that_is_asked_for():
    request = JobRequest(
        name="job", workload=Script("train.py", args=["--epochs", 5]), hyperparameters={"epochs": 3}
    )
    assert request.script_args == ("--epochs", "5")
    assert request.hides_hyperparameters
    asked = JobRequest(
        name="job",
        workload=request.workload,
        hyperparameters={"epochs": 3},
        hyperparameters_as_args=True,
    )
    assert asked.script_args == ("--epochs", "3", "--epochs", "5")
    assert not asked.hides_hyperparameters


@pytest.mark.parametrize("name", ["", "-a", "a-", "a_b", "x" * 64, "ä"])
def test_a_name_that_sagemaker_refuses_is_refused_here(name):
    with pytest.raises(InvalidRequest, match=f"name {name!r}"):
        JobRequest(name=name, workload=Script("a.py"))


@pytest.mark.parametrize("name", ["raysm", "raysm-result", "raysm-x"])
def test_the_names_of_raysms_own_channels_and_outputs_are_not_for_users(name):
    with pytest.raises(InvalidRequest, match=f"'{name}' .*raysm's own"):
        JobRequest(name="a", workload=Script("a.py"), inputs={name: Input("x")})


@pytest.mark.parametrize("name", [".", ".."])
def test_a_channel_name_that_is_a_folder_already_is_refused(name):
    with pytest.raises(InvalidRequest, match=f"channel {re.escape(repr(name))}"):
        JobRequest(name="a", workload=Script("a.py"), inputs={name: Input("x")})


def test_on_spot_capacity_user_code_has_less_of_the_two_minutes_so_that_what_it_saves_reaches_s3():
    def grace(**fields):
        return JobRequest(name="a", workload=Script("a.py"), **fields).chosen_grace_s

    spot = Limits(spot=True)
    assert (grace(), grace(limits=spot), grace(limits=spot, grace_s=110), grace(grace_s=5)) == (
        100.0,
        60.0,
        110,
        5,
    )


@pytest.mark.parametrize("grace_s", [0, -1, 121])
def test_a_grace_that_sagemaker_does_not_give_is_refused(grace_s):
    with pytest.raises(InvalidRequest, match="grace_s"):
        JobRequest(name="a", workload=Script("a.py"), grace_s=grace_s)


def test_a_metric_that_ends_the_job_is_refused_where_user_code_reports_none():
    assert JobRequest(name="job", workload=Script("a.py"), stop_on_nan="loss").stop_on_nan == "loss"
    with pytest.raises(InvalidRequest, match="'loss'.*the similarity"):
        JobRequest(
            name="job",
            workload=Similarity(top_k=1),
            inputs={"matrix": Input("s3://a/m.npy")},
            stop_on_nan="loss",
        )
