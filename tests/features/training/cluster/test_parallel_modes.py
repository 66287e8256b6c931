"""Every mode follows the training of one process: losses and final weights to 1e-5 in float32."""

import contextlib
import functools

import pytest
import torch
from torch.nn import functional

from raysm import training
from raysm.features.training.cluster.loop import session as sessions
from tests.support import parallel_modes
from tests.support.parallel_modes import (
    ACCUMULATED,
    BATCH,
    CLIPPED,
    EPOCHS,
    EVALUATED,
    MAX_NORM,
    MODES,
    RELAY,
    ROWS,
    TRAINED,
    TRAININGS,
    UNSEEN,
    WORKERS,
    Transformer,
    accuracy,
    data,
    evaluated_norms,
    handed_on,
    prepared,
    sgd,
    train,
)

TOLERANCE = 1e-5

PLAIN = (
    *("ddp", "hybrid shard", "data x tensor", "memory", "named"),
    *("norms evaluated, sharded", "norms evaluated", "normed", "normed, memory"),
    *(mode for mode in MODES if mode == "interleaved"),
)
"""Trainings of the plain run; each rank and each cut is in one of them. Tests of the others are
long."""
LONG = tuple(name for name in TRAININGS if name not in PLAIN)


def marked(*modes):
    return [mode if mode in PLAIN else pytest.param(mode, marks=pytest.mark.long) for mode in modes]


@pytest.fixture(scope="module")
def launch(forks, tmp_path_factory):
    """Return what launches trainings on four workers; it returns what each worker found in them, and the log."""

    @functools.cache
    def launch(names):
        folder = tmp_path_factory.mktemp("modes")
        text = forks.program(parallel_modes.__name__).run(folder, [folder, *names], workers=WORKERS)
        return [torch.load(folder / f"rank-{rank}.pt") for rank in range(WORKERS)], text

    return launch


@pytest.fixture(scope="module")
def found(launch):
    """Return what returns what each of four workers found in a training."""
    return lambda name: [rank[name] for rank in launch(PLAIN if name in PLAIN else LONG)[0]]


@pytest.fixture(scope="module")
def alone():
    """The losses and the weights of one process."""
    return train(None)[:2]


def worst(weights, others):
    assert list(weights) == list(others)
    return max(float((weights[name] - others[name]).abs().max()) for name in others)


@pytest.fixture(scope="module")
def clipped():
    """Losses and weights of a loop in plain torch that clips."""
    torch.manual_seed(0)
    model = Transformer()
    optimizer = sgd(model)
    losses = []
    for inputs, target in training.batches(data(), batch_size=BATCH, epochs=EPOCHS, seed=3):
        loss = functional.cross_entropy(model(inputs), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model.state_dict()


@pytest.fixture(scope="module")
def expected(alone, clipped):
    """What one process has for each mode: losses and weights, of gradients that are clipped where the mode's are."""
    return lambda mode: clipped if mode in (*CLIPPED, *ACCUMULATED) else alone


@pytest.mark.parametrize("mode", marked(*MODES, "named"))
def test_a_mode_follows_one_process_in_losses_and_weights(mode, found, expected):
    ranks = found(mode)
    losses, weights = expected(mode)
    assert all(rank[0] == ranks[0][0] for rank in ranks)
    assert ranks[0][0] == pytest.approx(losses, abs=TOLERANCE)
    assert worst(ranks[0][1], weights) < TOLERANCE


@pytest.fixture(scope="module")
def measured():
    """The losses of plain torch after one step, clipped or not, on rows that it has not seen: mean, and accuracy."""

    @functools.cache
    def means(max_norm):
        with contextlib.ExitStack() as stack:
            stack.callback(sessions.end)
            prepared(None, max_norm=max_norm)
            training.step(
                next(iter(training.batches(data(), batch_size=BATCH, epochs=EPOCHS, seed=3)))
            )
            model = Transformer()
            model.load_state_dict(sessions.current().trainer.full_state_dict())
        inputs, target = (tensor[:UNSEEN] for tensor in data().tensors)
        with torch.no_grad():
            output = model.eval()(inputs)
        return {
            "loss": float(functional.cross_entropy(output, target)),
            "accuracy": float(accuracy(output, target)),
        }

    return lambda mode: means(TRAINED[mode].get("max_norm"))


@pytest.mark.parametrize("mode", marked(*EVALUATED))
def test_an_evaluation_is_the_exact_mean_over_uneven_slices_and_leaves_no_trace(
    mode, found, expected, measured
):
    ranks = found(mode)
    losses, weights, means = ranks[0]
    assert all(rank[2] == means for rank in ranks)
    assert means == [pytest.approx(measured(mode), abs=TOLERANCE)]
    # The steps before and after are those of a training that was never evaluated.
    assert losses == pytest.approx(expected(mode)[0], abs=TOLERANCE)
    assert worst(weights, expected(mode)[1]) < TOLERANCE


def test_one_process_evaluates_as_all_do(measured):
    assert train(None, evaluate_by=UNSEEN)[2] == [
        pytest.approx(measured("pipeline x tensor"), abs=TOLERANCE)
    ]


def test_every_rank_evaluates_by_the_running_averages_that_a_checkpoint_would_keep(found):
    (sharded, *others), (replicated, *others_replicated) = (
        found("norms evaluated, sharded"),
        found("norms evaluated"),
    )
    assert all(other == sharded for other in others)
    assert all(other == replicated for other in others_replicated)
    assert sharded == pytest.approx(replicated, abs=TOLERANCE)
    # Of all rows in one process they are others: the ranks' own averages would have shown.
    assert sharded != pytest.approx(evaluated_norms(None), abs=0.01)


@pytest.mark.long
def test_bf16_follows_float32_as_far_as_its_eight_bits_go(found, alone):
    losses, weights, _ = found("bf16")[0]
    assert losses == pytest.approx(alone[0], abs=0.05)
    assert losses != pytest.approx(alone[0], abs=TOLERANCE)
    assert all(tensor.dtype == torch.float32 for tensor in weights.values())


def test_a_batch_that_is_computed_again_counts_once_in_running_averages(found):
    again = found("normed, memory")[0]
    assert worst(again, found("normed")[0]) < TOLERANCE
    assert again["1.num_batches_tracked"] == 2


@pytest.mark.long
def test_running_averages_of_a_pipeline_know_its_micro_batches_alone(found):
    weights = found("normed, pipeline")[0]
    assert [int(weights[f"{layer}.num_batches_tracked"]) for layer in (1, 3)] == [4, 4]
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())


@pytest.mark.long
def test_batch_norms_are_sharded_in_bf16(found):
    weights = found("normed, bf16")[0]
    assert 0 < worst(weights, found("normed")[0]) < 0.05
    assert weights["1.running_mean"].dtype == torch.float32


@pytest.mark.long
def test_each_mode_goes_on_from_what_any_other_has_saved(found):
    relayed = found("relay")[0]
    handed_on(None)
    losses = [
        training.step(batch)
        for batch in training.batches(data(), batch_size=ROWS, epochs=len(RELAY))
    ]
    assert relayed[0] == pytest.approx(losses, abs=TOLERANCE)
    assert worst(relayed[1], sessions.current().trainer.full_state_dict()) < TOLERANCE


def test_the_log_prints_the_map_of_ranks_the_stages_and_the_cut_tensors(launch):
    _, log = launch(PLAIN)
    assert "rank 3 on node-0: replica 2 of 2, pipeline rank 2 of 2" in log
    if "interleaved" in PLAIN:
        assert "stage 3 of 4, on pipeline rank 1: from layers.2" in log
    assert "layers.*.mlp.0, layers.*.mlp.2; linear layers whole on every worker: embed, head" in log
