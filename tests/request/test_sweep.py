"""What a sweep says of itself, and what is refused before anything is spent."""

import json

import pytest

import raysm
from raysm.errors import InvalidRequest
from raysm.request import JobRequest
from raysm.request.codec import from_json, to_json
from raysm.request.sweep import Earlier, FunctionSweep, ScriptSweep

LR = {"lr": raysm.loguniform(1e-4, 1e-1)}


def script(**fields):
    return ScriptSweep(**{"script": "train.py", "space": LR, "metric": "loss", "mode": "min"} | fields)


def function(**fields):
    return FunctionSweep(**{"name": "train", "python": "3.11", "space": LR, "metric": "loss", "mode": "min"} | fields)


@pytest.mark.parametrize(
    "sweep",
    [
        script(args=("--epochs", 3), stop="asha", seed=0),
        function(stop="pbt", workers=2, gpus=0.5, time_budget_s=60, warm_start=(Earlier(params={"lr": 0.1}, value=1),)),
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
    assert function(warm_start=(Earlier(params={"lr": 0.1}, value=1),)).parameters["warm_start"] == "1 trial"
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
    assert script(space=space, search="grid", trials=4).plan.startswith("sweep: 4 trials, 4 of 6 combinations, search")
    assert script(space=space).planned_trials == 20


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: script(metric=""), "metric is the name of what the trials report, 'loss', got ''"),
        (lambda: script(mode="least"), "mode is one of 'min', 'max', got 'least'"),
        (lambda: script(trials=0), "trials must be a whole number of at least 1, got 0"),
        (lambda: script(trials=1_000_000), "trials must be at most 100,000, got 1,000,000"),
        (lambda: script(cpus=0), "cpus must be a number above 0, got 0"),
        (lambda: script(workers=2), "a script runs in one process a trial, got workers=2"),
        (lambda: script(stop="pbt", search="optuna"), "stop='pbt' goes with search='random', got search='optuna'"),
        (lambda: script(search="grid"), "has no finite set of values"),
        (lambda: function(space={}), "a sweep needs a space"),
        (lambda: function(space={}, draws=True, search="grid"), "needs a space of values, not a function"),
        (lambda: function(space={}, draws=True, stop="pbt"), "varies parameters within their ranges"),
        (
            lambda: function(warm_start=(Earlier(params={"momentum": 0.1}, value=1.0),)),
            "warm_start has trials of another space: 'lr' is in one of the two alone",
        ),
        (
            lambda: function(warm_start=(Earlier(params={"lr": 100.0}, value=1.0),)),
            r"warm_start has a trial with lr=100.0, which lies outside of loguniform\(",
        ),
        (lambda: script(stop="pbt", trials=1), "compares the trials of a population: take at least 2, got trials=1"),
        (
            lambda: script(stop="pbt", concurrency=2),
            "goes without concurrency: all 20 trials are one population, which takes turns",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, said):
    with pytest.raises(InvalidRequest, match=said):
        make()
