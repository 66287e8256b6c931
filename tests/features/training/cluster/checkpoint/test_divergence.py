"""A training that ends at NaN keeps the checkpoint before it, on one worker and on several."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.errors import MetricDiverged
from raysm.features.training.cluster.checkpoint.checkpoints import Checkpoints
from raysm.features.training.cluster.checkpoint.manifest import read_manifests
from raysm.features.training.cluster.loop import session as sessions

BATCH, STEPS = 4, 9


def diverge(folder, bad_row=None, lr=0.1, stop_on_nan="loss", report=None):
    """Train for some steps; return how it ended, the steps of the checkpoints, and the losses that are not finite."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    session = sessions.begin()
    session.stop_on_nan = stop_on_nan
    kept = Checkpoints(every_steps=2, folder=folder)
    rows = torch.randn(BATCH * STEPS, 3)
    if bad_row is not None:
        rows[bad_row] = math.nan
    data = TensorDataset(rows, torch.arange(len(rows)) % 2)
    ended = ""
    losses = []
    try:
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        training.prepare(model, optimizer, loss=functional.cross_entropy, checkpoints=kept)
        for batch in training.batches(data, batch_size=BATCH, shuffle=False):
            losses.append(training.step(batch))
            if report is not None:
                training.report(**{report: losses[-1]})
    except MetricDiverged as error:
        ended = str(error)
    finally:
        sessions.end()
    steps = sorted(manifest.step for manifest in read_manifests(folder).values())
    return ended, steps, session.diverged_rank, sum(not math.isfinite(loss) for loss in losses)


@pytest.mark.parametrize(("workers", "bad_row", "rank"), [(2, 22, 1), (2, 20, 0), (1, 22, 0)])
def test_it_names_the_rank_whose_rows_made_the_loss_nan_and_the_checkpoint_before_it(
    ranks, tmp_path, workers, bad_row, rank
):
    ended = (
        f"loss is nan at step 6 on rank {rank}; the checkpoint of step 4 is the last one before it"
    )
    for answer in ranks.run(workers, diverge, tmp_path / "kept", bad_row):
        assert answer == (ended, [2, 4], rank, 0)


def test_a_training_that_no_checkpoint_precedes_says_so(tmp_path):
    ended, steps, *_ = diverge(tmp_path, bad_row=0)
    assert (ended, steps) == (
        "loss is nan at step 1 on rank 0; no checkpoint was saved before it",
        [],
    )


def test_weights_that_are_not_finite_are_not_saved_though_the_loss_before_them_was(tmp_path):
    # The first step makes the weights infinite; the second one's loss is that of these.
    ended, steps, *_ = diverge(tmp_path, lr=math.inf, stop_on_nan="validation_loss")
    assert ended.startswith("the weights are not finite after step 2 on rank 0; no checkpoint")
    assert steps == []


def test_another_metric_that_the_loop_reports_ends_it_too(tmp_path):
    ended, steps, *_ = diverge(tmp_path, bad_row=16, stop_on_nan="mine", report="mine")
    assert ended.startswith("mine is nan at step 5 on rank 0; the checkpoint of step 4 ")
    assert steps == [2, 4]


def test_without_the_option_it_goes_on_and_says_once_when_the_loss_became_nan(tmp_path, capsys):
    ended, steps, rank, bad = diverge(tmp_path, bad_row=16, stop_on_nan=None)
    assert (ended, steps, rank, bad) == ("", [6, 8], 0, 5)
    assert capsys.readouterr().out.count("step 5: loss nan\n") == 1
