"""A space as people write it, read into values."""

import pytest

import raysm
from raysm.errors import InvalidRequest
from raysm.request.space import Choice, LogRandInt, LogUniform, QLogUniform, QUniform, RandInt, Uniform
from raysm.request.space_reading import space_of


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("uniform:0:1", Uniform(0, 1)),
        ("loguniform:1e-4:1e-1", LogUniform(1e-4, 1e-1)),
        ("quniform:0:1:0.25", QUniform(0, 1, 0.25)),
        ("qloguniform:1:64:1", QLogUniform(1, 64, 1)),
        ("randint:1:4", RandInt(1, 4)),
        ("lograndint:1:64", LogRandInt(1, 64)),
        ("choice:32,64", Choice((32, 64))),
        ("choice:relu,none,true,1.5,s3://a/b", Choice(("relu", None, True, 1.5, "s3://a/b"))),
    ],
)
def test_a_range_is_written_as_text_on_a_command_line(text, parameter):
    assert space_of({"x": text}) == {"x": parameter}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: space_of({}), "a sweep needs a space"),
        (lambda: space_of([1]), "a sweep needs a space"),
        (lambda: space_of({"l r": raysm.uniform(0, 1)}), "a parameter's name is one that Python allows"),
        (lambda: space_of({"x": 3}), r"x is 3, which is not a range; for fixed values use raysm.choice\(\[3\]\)"),
        (lambda: space_of({"x": [1, 2]}), r"for fixed values use raysm.choice\(\[1, 2\]\)"),
        (
            lambda: space_of({"x": "lguniform:1:2"}),
            "space: x: there is no range 'lguniform'; did you mean 'loguniform'",
        ),
        (lambda: space_of({"x": "zzz"}), "there is no range 'zzz'; there are uniform, "),
        (lambda: space_of({"x": "uniform:1"}), "write uniform:LOW:HIGH, got 'uniform:1'"),
        (lambda: space_of({"x": "uniform:a:b"}), "the lower bound must be a finite number, got 'a'"),
        (lambda: space_of({"x": {"kind": "uniform", "low": 0}}), "space: x: uniform: the key 'high' is missing"),
    ],
)
def test_what_is_no_space_is_refused_with_the_value_and_the_remedy(make, said):
    with pytest.raises(InvalidRequest, match=said):
        make()


def test_ranges_are_taken_as_they_are():
    space = {"lr": raysm.loguniform(1e-4, 1e-1), "layers": raysm.randint(1, 4)}
    assert space_of(space) == space
