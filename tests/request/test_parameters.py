"""What a workload was called with, as small JSON values."""

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.request import Script, Similarity, Workload
from raysm.request.function import PickledFunction
from raysm.request.parameters import of_arguments, of_command_line, typed


@pytest.mark.parametrize(
    ("args", "parameters"),
    [
        ([], {}),
        (["--lr", "0.1", "--batch=32"], {"lr": 0.1, "batch": 32}),
        (["--fast", "--lr", "1e-3"], {"fast": True, "lr": 0.001}),
        (["--shift", "-0.5", "-n", "3"], {"shift": -0.5, "n": 3}),
        (["train.csv", "--verbose"], {"argument 1": "train.csv", "verbose": True}),
        (["lr=0.1", "model=resnet", "a", "b"], {"lr": 0.1, "model": "resnet", "argument 1": "a", "argument 2": "b"}),
        (["--shuffle", "False"], {"shuffle": False}),
        (["--seed", "0007", "--big", "9" * 40], {"seed": 7, "big": 1e40}),
        (["--", "-"], {"--": True, "-": True}),
    ],
)
def test_the_arguments_of_a_script_have_their_names(args, parameters):
    assert of_command_line(args) == parameters


def test_the_last_of_two_arguments_of_one_name_counts_as_argparse_has_it():
    assert of_command_line(["--lr", "1", "--lr", "2"]) == {"lr": 2}


def test_members_of_a_configuration_have_names_of_their_own():
    assert of_arguments({"config": {"lr": 0.1, "model": {"depth": 3}}, "seed": 1}) == {
        "config.lr": 0.1,
        "config.model.depth": 3,
        "seed": 1,
    }


def test_what_is_large_is_named_and_not_told():
    array = SimpleNamespace(shape=(1000, 3))
    shown = of_arguments({"x": array, "text": "a" * 1000, "layers": [64, 32], "many": list(range(99)), "f": len})
    assert shown["x"] == "<SimpleNamespace (1000, 3)>"
    assert len(shown["text"]) == 200
    assert shown["layers"] == "[64, 32]"
    assert shown["many"] == "<list>"
    assert shown["f"] == "<builtin_function_or_method>"
    assert len(of_arguments(dict.fromkeys(map(str, range(1000)), 1))) == 100


def test_what_looks_like_a_secret_is_not_told_and_a_number_is_none():
    shown = of_arguments({"api_key": "abc", "config": {"db_password": "hunter2"}, "max_tokens": 512})
    assert shown == {"api_key": "***", "config.db_password": "***", "max_tokens": 512}
    assert of_command_line(["--hf-token", "hf_123"]) == {"hf-token": "***"}


def test_a_text_that_is_no_number_stays_one():
    assert [typed(text) for text in ("1", "1.5", "-2", "true", "1e999", "nan", "1_000", "", "v1")] == [
        1,
        1.5,
        -2,
        True,
        "1e999",
        "nan",
        "1_000",
        "",
        "v1",
    ]


@given(st.lists(st.text(max_size=10), max_size=10))
def test_every_command_line_has_parameters_that_are_json(args):
    json.dumps(of_command_line(args), allow_nan=False)


@given(
    st.dictionaries(
        st.text(max_size=5), st.one_of(st.floats(), st.text(), st.none(), st.binary(), st.complex_numbers())
    )
)
def test_every_call_has_parameters_that_are_json(arguments):
    json.dumps(of_arguments(arguments), allow_nan=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Own(Workload):
    runner: ClassVar[str] = "own:Runner"
    depth: int = 3
    words: tuple[str, ...] = ("a", "b")
    nothing: int | None = None


def test_each_workload_says_its_own():
    assert Own().parameters == {}, "nobody chose a default"
    assert Own(depth=4, words=("b", "a")).parameters == {"depth": 4, "words": "[b, a]"}
    assert Script("train.py", args=["--lr", "1"]).parameters == {"lr": 1}
    assert Similarity(top_k=5).parameters == {"top_k": 5}
    assert PickledFunction(name="f", python="3.11", arguments={"lr": 0.1}).parameters == {"lr": 0.1}
