"""The ranges of a sweep's parameters, as people write them, and what is said of those that cannot be."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

import raysm
from raysm.errors import InvalidRequest
from raysm.request.codec import from_json, to_json
from raysm.request.space import Choice, Parameter, space_of

EVERY = [
    raysm.uniform(0.5, 2),
    raysm.loguniform(1e-4, 1e-1),
    raysm.quniform(0.1, 0.95, 0.1),
    raysm.qloguniform(1, 100, 5),
    raysm.randint(1, 8),
    raysm.lograndint(1, 1024),
    raysm.choice([32, "many", None, True, 0.5]),
]


class Drawn:
    """Stands for Optuna's trial: draws at random."""

    def __init__(self, seed):
        self._rng = random.Random(seed)

    def suggest_float(self, name, low, high, *, step, log):
        return self._rng.uniform(low, high)

    def suggest_int(self, name, low, high, *, step, log):
        return self._rng.randint(low, high)

    def suggest_categorical(self, name, choices):
        return self._rng.choice(choices)


@pytest.mark.parametrize("parameter", EVERY, ids=str)
def test_a_range_travels_as_json(parameter):
    text = json.dumps(to_json(parameter))
    assert from_json(type(parameter), json.loads(text)) == parameter
    assert space_of({"x": json.loads(text)}) == {"x": parameter}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: raysm.uniform(2, 1), "the lower bound 2 must be below the upper one, 1"),
        (lambda: raysm.uniform("0", 1), "the lower bound must be a finite number, got '0'"),
        (lambda: raysm.loguniform(0, 1), "a logarithm needs a lower bound above 0, got 0"),
        (lambda: raysm.quniform(0, 1, 0), "the step must be above 0"),
        (lambda: raysm.randint(0.5, 4), r"the bounds must be integers, got 0.5"),
        (lambda: raysm.choice([]), "nothing to choose from"),
        (lambda: raysm.choice("relu"), r"choice takes a list of values, choice\(\[32, 64\]\), got 'relu'"),
        (lambda: raysm.choice([[1]]), r"a value is a text, a number, True, False or None, got \[1\]"),
    ],
)
def test_what_cannot_be_is_refused_with_the_value_and_the_remedy(make, said):
    with pytest.raises(InvalidRequest, match=said):
        make()


@given(some.sampled_from(EVERY), some.integers(0, 10_000))
def test_what_is_varied_stays_in_its_range(parameter: Parameter, seed):
    rng = random.Random(seed)
    value = parameter.suggest("x", Drawn(seed))
    for _ in range(5):
        value = parameter.varied(value, rng)
    if isinstance(parameter, Choice):
        assert value in parameter.values
    else:
        assert parameter.low <= value <= parameter.high
    if getattr(parameter, "is_integer", False):
        assert type(value) is int


def test_a_grid_has_every_value_once():
    assert raysm.randint(1, 3).grid() == (1, 2, 3)
    assert raysm.quniform(0.1, 0.55, 0.1).grid() == (0.1, 0.2, 0.3, 0.4, 0.5)
    assert raysm.choice(["a", "b"]).grid() == ("a", "b")
    with pytest.raises(InvalidRequest, match="has no finite set of values; for search='grid' list them"):
        raysm.uniform(0, 1).grid()


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("loguniform:1e-4:1e-1", raysm.loguniform(1e-4, 1e-1)),
        ("quniform:0:1:0.25", raysm.quniform(0, 1, 0.25)),
        ("randint:1:4", raysm.randint(1, 4)),
        ("lograndint:1:64", raysm.lograndint(1, 64)),
        ("choice:relu,none,true,1.5,s3://a/b", Choice(("relu", None, True, 1.5, "s3://a/b"))),
    ],
)
def test_a_range_is_written_as_text_on_a_command_line(text, parameter):
    assert space_of({"x": text}) == {"x": parameter}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: space_of({}), "a sweep needs a space"),
        (lambda: space_of({"l r": raysm.uniform(0, 1)}), "a parameter's name is one that Python allows"),
        (lambda: space_of({"x": 3}), r"x is 3, which is not a range; for fixed values use raysm.choice\(\[3\]\)"),
        (
            lambda: space_of({"x": "lguniform:1:2"}),
            "space: x: there is no range 'lguniform'; there are uniform, loguniform",
        ),
        (lambda: space_of({"x": "0.001,0.01"}), "'0.001,0.01' is not a range; .* write choice:0.001,0.01$"),
        (lambda: space_of({"x": "uniform:1"}), "write uniform:LOW:HIGH, got 'uniform:1'"),
        (lambda: space_of({"x": {"kind": "loguniform", "low": 0}}), "x: there is no range 'loguniform'; as JSON"),
        (lambda: space_of({"x": {"kind": "range", "low": 0}}), "space: x: range: the key 'high' is missing"),
    ],
)
def test_what_is_no_space_is_refused_with_the_value_and_the_remedy(make, said):
    with pytest.raises(InvalidRequest, match=said):
        make()
