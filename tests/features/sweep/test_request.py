"""What a sweep says of itself, and what is refused before anything is spent."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

import raysm
from raysm.core.request import JobRequest
from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidRequest
from raysm.features.sweep.request import (
    Asha,
    Earlier,
    FunctionSweep,
    Median,
    Pbt,
    ScriptSweep,
    parse_rule,
)
from raysm.features.sweep.space import Choice, Parameter, parse_space

LR = {"lr": raysm.loguniform(1e-4, 1e-1)}


def script(**fields):
    return ScriptSweep(
        **{"script": "train.py", "space": LR, "metric": "loss", "mode": "min"} | fields
    )


def function(**fields):
    return FunctionSweep(
        **{"name": "train", "python": "3.11", "space": LR, "metric": "loss", "mode": "min"} | fields
    )


@pytest.mark.parametrize(
    "sweep",
    [
        script(args=("--epochs", 3), stop="asha", seed=0),
        function(
            stop="pbt",
            workers=2,
            gpus=0.5,
            time_budget_s=60,
            warm_start=(Earlier(params={"lr": 0.1}, value=1),),
        ),
        function(space={}, draws=True),
    ],
    ids=["script", "function", "drawn"],
)
def test_a_sweep_travels_in_a_request(sweep):
    request = JobRequest(name="sweep", workload=sweep)
    assert from_json(JobRequest, json.loads(json.dumps(to_json(request)))) == request


def test_its_parameters_tell_ranges_and_rule_as_they_are_written():
    space = {**LR, "act": raysm.choice(["relu", None]), "token": raysm.choice(["hf_123"])}
    told = function(space=space, stop="asha").parameters
    assert told["space.lr"] == "loguniform(0.0001, 0.1)"
    assert told["space.act"] == "choice(['relu', None])"
    assert told["space.token"] == "***"
    assert told["stop"] == "Asha(grace=1, factor=4, most_reports=100000)"
    assert "warm_start" not in told
    assert (
        function(warm_start=(Earlier(params={"lr": 0.1}, value=1),)).parameters["warm_start"]
        == "1 trial"
    )
    assert "stop" not in function().parameters


def test_texts_and_objects_of_files_and_flags_become_values():
    sweep = script(
        space={"lr": "loguniform:1e-4:1e-1"},
        stop={"kind": "asha", "grace": 2},
        warm_start=[{"params": {"lr": 0.01}, "value": 2.0}],
    )
    assert sweep.space == LR
    assert sweep.stop == raysm.Asha(grace=2)
    assert sweep.warm_start == (Earlier(params={"lr": 0.01}, value=2.0),)


def test_of_a_grid_no_more_is_tried_than_it_has():
    space = {"n": raysm.randint(1, 3), "kind": raysm.choice(["a", "b"])}
    assert script(space=space, search="grid").planned_trials == 6
    assert script(space=space, search="grid", trials=4).planned_trials == 4
    assert script(space=space, search="grid", trials=4).plan.startswith(
        "sweep: 4 trials, 4 of 6 combinations, search"
    )
    assert script(space=space).planned_trials == 20


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: script(metric=""), "metric .*got ''"),
        (lambda: script(mode="least"), "mode.*'least'"),
        (lambda: script(trials=0), "trials.*got 0"),
        (lambda: script(trials=1_000_000), "trials.*1,000,000"),
        (lambda: script(cpus=0), "cpus.*got 0"),
        (lambda: script(workers=2), "script.*workers=2"),
        (lambda: script(stop="pbt", search="optuna"), "stop='pbt'.*search='optuna'"),
        (lambda: script(search="grid"), r"loguniform\(.*search='grid'"),
        (lambda: function(space={}), "needs a space.*got {}"),
        (lambda: function(space={}, draws=True, search="grid"), "search='grid'.*function"),
        (lambda: function(space={}, draws=True, stop="pbt"), "stop='pbt'.*space as ranges"),
        (
            lambda: function(warm_start=(Earlier(params={"momentum": 0.1}, value=1.0),)),
            "warm_start.*'lr'",
        ),
        (
            lambda: function(warm_start=(Earlier(params={"lr": 100.0}, value=1.0),)),
            r"warm_start.*lr=100\.0",
        ),
        (lambda: script(stop="pbt", trials=1), "stop='pbt'.*trials=1"),
        (
            lambda: script(stop="pbt", concurrency=2),
            "stop='pbt'.*concurrency=2",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, said):
    with pytest.raises(InvalidRequest, match=said):
        make()


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
    assert parse_space({"x": json.loads(text)}) == {"x": parameter}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: raysm.uniform(2, 1), r"uniform\(2, 1\)"),
        (lambda: raysm.uniform("0", 1), r"uniform\('0', 1\)"),
        (lambda: raysm.loguniform(0, 1), r"loguniform\(0, 1\)"),
        (lambda: raysm.quniform(0, 1, 0), "step.*got 0"),
        (lambda: raysm.randint(0.5, 4), r"integers, got 0\.5"),
        (lambda: raysm.choice([]), r"choice\(\[\]\)"),
        (lambda: raysm.choice("relu"), "choice.*'relu'"),
        (lambda: raysm.choice([[1]]), r"choice.*got \[1\]"),
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
        value = parameter.vary(value, rng)
    if isinstance(parameter, Choice):
        assert value in parameter.values
    else:
        assert parameter.low <= value <= parameter.high
    if getattr(parameter, "is_integer", False):
        assert type(value) is int


def test_a_grid_of_more_values_than_the_memory_holds_is_counted_and_not_listed():
    space = {
        "seed": raysm.randint(0, 2**62),
        "step": raysm.quniform(0, 1, 2**-30),
        "kind": raysm.choice(["a", "b"]),
    }
    sweep = script(space=space, search="grid", trials=3)
    assert sweep.combinations == (2**62 + 1) * (2**30 + 1) * 2
    assert sweep.planned_trials == 3
    assert next(space["seed"].each()) == 0


def test_a_grid_has_every_value_once():
    assert raysm.randint(1, 3).grid() == (1, 2, 3)
    assert raysm.quniform(0.1, 0.55, 0.1).grid() == (0.1, 0.2, 0.3, 0.4, 0.5)
    assert raysm.choice(["a", "b"]).grid() == ("a", "b")
    with pytest.raises(InvalidRequest, match=r"uniform\(0, 1\).*search='grid'"):
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
    assert parse_space({"x": text}) == {"x": parameter}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: parse_space({}), "needs a space.*got {}"),
        (lambda: parse_space({"l r": raysm.uniform(0, 1)}), "name.*'l r'"),
        (lambda: parse_space({"x": 3}), r"x is 3.*raysm\.choice\(\[3\]\)"),
        (
            lambda: parse_space({"x": "lguniform:1:2"}),
            "x: .*'lguniform'.*uniform, loguniform",
        ),
        (lambda: parse_space({"x": "0.001,0.01"}), r"choice:0\.001,0\.01$"),
        (lambda: parse_space({"x": "uniform:1"}), "x: .*'uniform:1'"),
        (
            lambda: parse_space({"x": {"kind": "loguniform", "low": 0}}),
            "x: .*'loguniform'.*range, choice",
        ),
        (lambda: parse_space({"x": {"kind": "range", "low": 0}}), "x: .*'high'"),
    ],
)
def test_what_is_no_space_is_refused_with_the_value_and_the_remedy(make, said):
    with pytest.raises(InvalidRequest, match=said):
        make()


@pytest.mark.parametrize(
    "rule", [Asha(grace=3), Median(least_trials=5), Pbt(every=2, share=0.5)], ids=str
)
def test_a_rule_travels_as_json(rule):
    assert parse_rule(to_json(rule)) == rule
    assert parse_rule(rule) is rule


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: parse_rule("ashe"), "stop='ashe'.*'asha'"),
        (lambda: parse_rule(7), "stop=7.*'asha'"),
        (lambda: Asha(grace=0), "Asha: grace.*got 0"),
        (lambda: Pbt(share=0.6), r"share.*got 0\.6"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(make, said):
    with pytest.raises(InvalidRequest, match=said):
        make()
