"""A sweep that the service tunes: each trial is a training job of the embedded SageMaker, on a cluster of its own."""

import pytest

import raysm

pytestmark = pytest.mark.long

TRAIN = """
import argparse
import raysm
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--depth", type=int)
told = parser.parse_args()
for step in range(3):
    raysm.report(loss=(told.lr - 0.3) ** 2 + told.depth + 2 - step)
"""


def test_a_script_is_tuned_and_the_best_trial_is_the_best_of_the_table(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    sweep = raysm.Sweep(
        tmp_path / "train.py",
        space={"lr": raysm.uniform(0.0, 1.0), "depth": raysm.choice([1, 2])},
        metric="loss",
        mode="min",
        search="random",
        trials=2,
        seed=1,
    )
    tuning = raysm.tune(sweep, parallel=1, on=raysm.Local(instance_kind="process"))
    assert tuning.wait(timeout_s=500) == "Completed", tuning.trials
    trials = tuning.trials
    assert [trial.status for trial in trials] == ["done", "done"]
    for trial in trials:
        assert trial.value == pytest.approx((trial.params["lr"] - 0.3) ** 2 + trial.params["depth"])
    best = trials.by_value()[0]
    result = tuning.best.result()
    assert (result.best.params, result.best.value) == (best.params, pytest.approx(best.value))


def test_a_function_is_tuned_with_values_of_their_own_types(tmp_path):
    def train(size, flag):
        assert isinstance(size, int)
        assert flag is None
        return {"score": float(size)}

    space = {"size": raysm.choice([3, 7]), "flag": raysm.choice([None])}
    sweep = raysm.Sweep(train, space=space, metric="score", mode="max", search="grid")
    tuning = raysm.tune(sweep, parallel=2, on=raysm.Local(instance_kind="process"))
    assert tuning.wait(timeout_s=500) == "Completed", tuning.trials
    assert tuning.best.result().best.params == {"size": 7, "flag": None}
