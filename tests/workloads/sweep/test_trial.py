"""Around the user's function: what a trial passes on, and how it tells its end."""

import random

import numpy as np
import pytest
import torch

import raysm
from raysm.bootstrap import environment
from raysm.errors import InvalidRequest, TrialFailed
from raysm.request.sweep import FunctionSweep
from raysm.workloads.sweep.reports import Report
from raysm.workloads.sweep.trial import TrialRun, name_of, number_of, seed_all, trial_folder, trial_reason


def run_of(tmp_path, **fields):
    fields = {
        "name": "train",
        "python": "3.11",
        "space": {"x": raysm.uniform(0, 1)},
        "metric": "loss",
        "mode": "min",
    } | fields
    workload = FunctionSweep(**fields)
    return TrialRun(workload=workload, here=None, number=0, params={}, folder=tmp_path, checkpoint=None)


@pytest.mark.parametrize(
    ("value", "metrics"),
    [
        (0.5, {"loss": 0.5}),
        (3, {"loss": 3.0}),
        (torch.tensor([0.25]), {"loss": 0.25}),
        (np.float32(0.5), {"loss": 0.5}),
        ({"loss": 1, "rows": np.int64(7), "name": "a", "ok": True}, {"loss": 1.0, "rows": 7.0}),
        (None, {}),
        (True, {}),
        ("0.5", {}),
        (torch.zeros(3), {}),
        (print, {}),
    ],
    # Not by themselves: an address in a name is another one in each of pytest's processes.
    ids=lambda value: type(value).__name__,
)
def test_a_functions_value_is_the_metric_or_several_by_name(tmp_path, value, metrics):
    assert run_of(tmp_path).metrics_of(value) == metrics


def test_a_trials_name_has_its_number():
    assert number_of(name_of(12, "8f3a_00001")) == 12


def test_a_trials_folder_is_empty_but_for_that_of_its_model_and_goes_with_it(base):
    instance = environment.read()
    (instance.paths.scratch / "trials" / "7" / "model").mkdir(parents=True)
    (instance.paths.scratch / "trials" / "7" / "model" / "stale").touch()
    with trial_folder(instance, "7") as folder:
        assert [path.name for path in folder.rglob("*")] == ["model"]
    assert not folder.exists()


def test_a_population_needs_a_checkpoint_with_every_report(tmp_path):
    with pytest.raises(InvalidRequest, match="stop='pbt' lets trials go on with the weights of others"):
        run_of(tmp_path, stop="pbt").take(Report(metrics={"loss": 1.0}))


def test_with_the_same_seed_a_trial_draws_the_same():
    def drawn():
        seed_all(2**40 + 1)
        return random.random(), np.random.random(), torch.rand(1).item()

    assert drawn() == drawn()


def test_a_reason_is_the_users_error_in_one_line_and_a_sentence_of_raysms_is_itself():
    assert trial_reason(ValueError("no"))[0] == "ValueError: no"
    assert trial_reason(KeyError())[0] == "KeyError"
    assert trial_reason(TrialFailed("the script ended with 3", "line 1\nline 2")) == (
        "the script ended with 3",
        "line 1\nline 2",
    )
