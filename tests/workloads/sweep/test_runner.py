"""A sweep as the driver runs it: from the payload to the result."""

import os

import pytest

import raysm
from raysm.contract.events import TABLE, TRIALS, Trials
from raysm.contract.paths import Paths
from raysm.contract.result import Manifest
from raysm.errors import InvalidRequest
from raysm.workloads.sweep.runner import as_launched
from tests.support.driving import drive
from tests.support.sweeps import pack


def work(x):
    return {"loss": (x - 2) ** 2, "x": x}


@pytest.mark.usefixtures("address")
def test_the_driver_leaves_the_table_the_best_and_a_manifest(base, tmp_path):
    pack(raysm.Sweep(work, space={"x": raysm.randint(1, 3)}, metric="loss", mode="min", search="grid"), base)
    paths = Paths(base)
    done, failure = drive(paths, tmp_path, HOME=os.environ["HOME"])
    assert failure is None, done.stderr
    assert done.returncode == 0
    assert Trials.read(paths.model).best == 1
    manifest = Manifest.read(paths.model)
    assert [file.name for file in manifest.files] == [TABLE, TRIALS]
    assert manifest.summary.startswith("best of 3 trials (3 done; lowest loss): loss = 0 with x = 2")
    assert list(manifest.phases_s) == ["trials"], "parts of the whole, which add up"
    assert manifest.measures == {"trials": 3.0, "resumed_trials": 0.0}
    assert "optuna" in manifest.versions
    assert '"kind": "trial"' in done.stdout
    plan = "sweep: 3 trials, search grid, keeps the lowest loss; parameters: x=randint(1, 3)"
    assert plan in done.stdout.split('"kind": "trial"')[0]


SPACE = {"lr": raysm.loguniform(1e-4, 1), "n": raysm.randint(1, 9), "kind": raysm.choice(["1", 2, None])}
CHOSEN = {"lr": "0.01", "n": "3", "kind": "2", "_tuning_objective_metric": "loss", "other": "x"}


def tuned(**fields):
    return raysm.Sweep("train.py", space=SPACE, metric="loss", mode="min", trials=50, **fields).workload()


def test_in_a_tuning_job_the_sweep_is_one_trial_with_the_services_values():
    trial = as_launched(tuned(stop="median", time_budget_s=600), CHOSEN)
    assert {name: item.grid() for name, item in trial.space.items()} == {"lr": (0.01,), "n": (3,), "kind": (2,)}
    assert (trial.planned_trials, trial.stop, trial.time_budget_s) == (1, None, None)
    own = tuned()
    assert as_launched(own, {"lr": "0.01"}) is own
    with pytest.raises(InvalidRequest, match="gave no value of 'n'"):
        as_launched(own, {key: value for key, value in CHOSEN.items() if key != "n"})
