"""A trial in several processes that train together."""

import os

import pytest

import raysm
from raysm.core.protocol.paths import Paths
from raysm.errors import TrialFailed
from tests.support.sweeps import run


def sums_ranks(x):
    import torch
    import torch.distributed as dist

    # There for whoever writes to it, and empty, also of a trial of that number that was killed here
    # before.
    assert os.listdir(os.environ["SM_MODEL_DIR"]) == []
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    raysm.report(loss=x * total.item(), rank=dist.get_rank())


def fails_in_rank_1(x):
    import torch
    import torch.distributed as dist

    if dist.get_rank() == 1:
        raise ValueError("no luck in rank 1")
    dist.all_reduce(torch.ones(1))


def trials_of(function, base, folder, values):
    sweep = raysm.Sweep(
        function,
        space={"x": raysm.choice(values)},
        metric="loss",
        mode="min",
        search="grid",
        workers=2,
    )
    outcome, _, _ = run(sweep, base, folder)
    return [entry.trial for entry in outcome.entries]


@pytest.mark.long
def test_all_workers_of_a_trial_are_one_process_group_and_one_trial_runs_at_a_time(base, tmp_path):
    folders = Paths(base).scratch / "trials"
    (folders / "0-rank-1" / "model").mkdir(parents=True)
    (folders / "0-rank-1" / "model" / "stale").touch()
    trials = trials_of(sums_ranks, base, tmp_path, [1, 2])
    assert [(trial.params["x"], trial.status, trial.value) for trial in trials] == [
        (1, "done", 3.0),
        (2, "done", 6.0),
    ]
    assert all(trial.metrics["rank"] == 0.0 for trial in trials)
    assert list(folders.iterdir()) == []
    assert "RANK" not in os.environ


@pytest.mark.long
def test_a_worker_that_fails_is_the_trials_reason(base, tmp_path):
    # One trial: two processes import torch for each.
    with pytest.raises(TrialFailed, match="all 1 trials .*no luck in rank 1"):
        trials_of(fails_in_rank_1, base, tmp_path, [1])
