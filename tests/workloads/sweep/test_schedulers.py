"""The rules as Ray Tune's schedulers."""

import pytest
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule, PopulationBasedTraining

import raysm
from raysm.request.sweep import ScriptSweep
from raysm.workloads.sweep.schedulers import scheduler_of

SPACE = {"lr": raysm.loguniform(1e-4, 1e-1), "n": raysm.randint(1, 4)}


def workload(stop, **fields):
    return ScriptSweep(script="train.py", space=SPACE, metric="loss", stop=stop, **fields)


@pytest.mark.parametrize(
    ("stop", "kind"),
    [(None, FIFOScheduler), ("asha", ASHAScheduler), ("median", MedianStoppingRule), ("pbt", PopulationBasedTraining)],
)
def test_a_rule_names_its_scheduler(stop, kind):
    assert isinstance(scheduler_of(workload(stop)), kind)


def test_a_population_varies_parameters_within_their_ranges_and_nothing_else():
    vary = scheduler_of(workload("pbt", seed=1))._custom_explore_fn
    config = {"params": {"lr": 0.1, "n": 4}, "restored": None, "files": "name"}
    for _ in range(20):
        config = vary(config)
        assert 1e-4 <= config["params"]["lr"] <= 1e-1
        assert config["params"]["n"] in (1, 2, 3, 4)
    assert (config["restored"], config["files"]) == (None, "name")
