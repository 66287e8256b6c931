"""Hyperparameters travel as texts and arrive as the values that were given."""

import json
from pathlib import Path

import numpy
import pytest

from raysm.bootstrap.variables import user_variables
from raysm.errors import InvalidRequest
from raysm.request import Input, JobRequest, Script, Similarity
from raysm.request.hyperparameters import hyperparameter_arguments, hyperparameter_text
from tests.bootstrap.test_variables import told


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


def test_a_value_that_json_cannot_hold_is_refused_by_its_name():
    with pytest.raises(InvalidRequest, match=r"the hyperparameter 'layers' is a set, which JSON cannot hold; give"):
        hyperparameter_text("layers", {1, 2})


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("3", "3"), ("0.10", "0.1"), ("a b", "a b"), ('"quoted"', "quoted"), ("[1,2]", "[1, 2]"), ("true", "true"),
        ("it's", "it's"), ("null", "null"),
    ],
)  # fmt: skip
def test_hyperparameters_become_arguments_as_the_sdk_spells_them(text, argument):
    assert hyperparameter_arguments({"x": text}) == ("--x", argument)


def test_a_hyperparameter_that_begins_with_a_dash_is_one_word_with_its_name():
    told = {"shift": "-1.6e-05", "layer": "-relu"}
    assert hyperparameter_arguments(told) == ("--shift=-1.6e-05", "--layer=-relu")


def test_a_script_gets_its_hyperparameters_before_its_own_arguments_where_that_is_asked_for():
    request = JobRequest(name="job", workload=Script("train.py", args=["--epochs", 5]), hyperparameters={"epochs": 3})
    assert request.script_args == ("--epochs", "5")
    assert request.hides_hyperparameters
    asked = JobRequest(
        name="job", workload=request.workload, hyperparameters={"epochs": 3}, hyperparameters_as_args=True
    )
    assert asked.script_args == ("--epochs", "3", "--epochs", "5")
    assert not asked.hides_hyperparameters


def test_what_is_no_script_cannot_get_arguments():
    with pytest.raises(InvalidRequest, match="is no script, and takes no arguments; drop it"):
        JobRequest(
            name="job", workload=Similarity(top_k=1), inputs={"matrix": Input("s3://b/m")}, hyperparameters_as_args=True
        )
