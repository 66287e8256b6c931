"""The words of the policies: values that compare by what they say, each of which somebody carries out."""

import ast
import dataclasses
import inspect
from typing import get_args

import pytest

from raysm.bootstrap import head, lifecycle, member, membership, worker
from raysm.bootstrap.lifecycle import Cause, Decision, DriverEnded, End, Happening, Lost, RayLost, Stopped

HAPPENINGS, DECISIONS = get_args(Happening), get_args(Decision)


def named(*modules):
    """Return the names that stand in the sources of modules, their imports aside."""
    trees = [ast.parse(inspect.getsource(module)) for module in modules]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


@pytest.mark.parametrize("word", [*HAPPENINGS, *DECISIONS], ids=lambda word: word.__name__)
def test_every_word_is_a_frozen_value(word):
    assert dataclasses.is_dataclass(word)
    assert word.__dataclass_params__.frozen
    assert "__dict__" not in dir(word)
    assert word.__name__ in lifecycle.__all__


def test_what_says_the_same_is_the_same_and_two_words_never_are():
    assert Lost("algo-2", "closed its connection") == Lost("algo-2", "closed its connection")
    assert Lost("algo-2", "why") != RayLost("algo-2", "why")


@pytest.mark.parametrize("word", HAPPENINGS, ids=lambda word: word.__name__)
def test_whatever_happens_a_policy_or_who_carries_it_out_knows_it(word):
    assert word.__name__ in named(membership, member, worker)


@pytest.mark.parametrize("word", DECISIONS, ids=lambda word: word.__name__)
def test_whatever_is_decided_somebody_decides_it_and_somebody_carries_it_out(word):
    assert word.__name__ in named(membership, member)
    assert word.__name__ in named(head, worker)


def test_an_end_has_one_cause():
    for cause in (DriverEnded(0), Stopped(in_time=True), ValueError("why")):
        assert isinstance(cause, get_args(Cause))
        assert End(cause).cause is cause
