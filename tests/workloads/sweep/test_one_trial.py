"""A sweep in a training job of a tuning job is the sweep of one trial."""

import pytest

import raysm
from raysm.errors import InvalidRequest
from raysm.workloads.sweep.one_trial import as_launched

SPACE = {"lr": raysm.loguniform(1e-4, 1), "n": raysm.randint(1, 9), "kind": raysm.choice(["1", 2, None])}
DRAWN = {"lr": "0.01", "n": "3", "kind": "2", "_tuning_objective_metric": "loss", "other": "x"}


def sweep(**fields):
    return raysm.Sweep("train.py", space=SPACE, metric="loss", mode="min", trials=50, **fields).workload()


def test_its_values_are_those_that_the_service_has_drawn_each_of_its_type():
    (trial,) = [as_launched(sweep(stop="median", time_budget_s=600), DRAWN)]
    assert {name: item.grid() for name, item in trial.space.items()} == {"lr": (0.01,), "n": (3,), "kind": (2,)}
    assert (trial.planned_trials, trial.stop, trial.time_budget_s) == (1, None, None)


def test_without_a_tuning_job_it_is_the_sweep_itself():
    own = sweep()
    assert as_launched(own, {"lr": "0.01"}) is own


def test_a_value_that_the_service_has_not_drawn_is_missed_by_its_name():
    with pytest.raises(InvalidRequest, match="gave no value of 'n'"):
        as_launched(sweep(), {key: value for key, value in DRAWN.items() if key != "n"})
