"""A loss that divides by tokens or weights has one curve in every mode if its divisor is given; else a line says so."""

import contextlib
import io
import random
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.errors import InvalidInput, InvalidRequest
from raysm.features.training.cluster.engines.mean_loss import MeanLoss
from raysm.features.training.cluster.loop import session as sessions
from raysm.training import Parallel

TOLERANCE = 1e-5
CLASSES, TOKENS, ROWS, BATCH = 5, 3, 22, 8
PADDING = -100
WEIGHTS = torch.tensor([0.1, 4.0, 1.0, 0.3, 2.0])


def loss_of_tokens(output, target):
    return functional.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=PADDING)


def tokens(target):
    return (target != PADDING).sum()


def loss_by_classes(output, target):
    return functional.cross_entropy(output.flatten(0, 1), target.flatten(), weight=WEIGHTS)


def weight_of_classes(target):
    return WEIGHTS[target].sum()


LOSSES = {
    "ignore_index": (loss_of_tokens, tokens),
    "class weights": (loss_by_classes, weight_of_classes),
}


def data(kind):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(ROWS, TOKENS, 4, generator=generator)
    target = torch.randint(CLASSES, (ROWS, TOKENS), generator=generator)
    if kind == "ignore_index":
        target[torch.rand(ROWS, TOKENS, generator=generator) < 0.4] = PADDING
        # On two workers and more, one has no token of the first batch, and one none of the last.
        target[:4] = PADDING
        target[-3:] = PADDING
    return TensorDataset(inputs, target)


def accuracy(output, target):
    counted = target != PADDING
    if not counted.any():
        return 0.0, 0
    return (output.argmax(-1) == target)[counted].float().mean(), counted.sum()


def train(kind, parallel=None, *, has_divisor=True, **options):
    """Return losses, weights, an evaluation, and what was printed."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, CLASSES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss, divisor = LOSSES[kind]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        training.prepare(
            model,
            optimizer,
            parallel,
            loss=loss,
            divisor=divisor if has_divisor else None,
            **options,
        )
        batches = training.batches(data(kind), batch_size=BATCH, epochs=2, shuffle=False)
        losses = [training.step(batch) for batch in batches]
        # Cut into batches of 5 over the ranks: parts of 1 to 5 rows.
        measured = training.evaluate(data(kind), batch_size=5, metrics={"accuracy": accuracy})
    return losses, sessions.current().trainer.full_state_dict(), measured, printed.getvalue()


MODES = {
    "two workers": (2, Parallel(), {}),
    "four workers": (4, Parallel(), {}),
    "four workers in pieces": (4, Parallel(), {"accumulate": 3}),
    "shards": (2, Parallel(shard=2), {"accumulate": 2}),
    "pipeline": (2, Parallel(pipeline=2, microbatches=4), {}),
    "pipelines": (4, Parallel(data=2, pipeline=2, microbatches=4, schedule="gpipe"), {}),
}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("mode", MODES)
def test_a_loss_with_a_divisor_has_the_curve_of_plain_torch_in_every_mode(ranks, kind, mode):
    workers, parallel, options = MODES[mode]
    losses, weights, measured, printed = ranks.run(
        workers, partial(train, **options), kind, parallel
    )[0]
    wanted_losses, wanted_weights, wanted_measured = plain(kind)
    assert losses == pytest.approx(wanted_losses, abs=TOLERANCE)
    assert all(
        torch.allclose(weights[name], tensor, atol=TOLERANCE)
        for name, tensor in wanted_weights.items()
    )
    assert measured == pytest.approx(wanted_measured, abs=TOLERANCE)
    assert "halves" not in printed


def plain(kind):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, CLASSES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss_of, _ = LOSSES[kind]
    inputs, target = data(kind).tensors
    losses = []
    for begin in [*range(0, ROWS, BATCH)] * 2:
        loss = loss_of(model(inputs[begin : begin + BATCH]), target[begin : begin + BATCH])
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        output = model(inputs)
        return (
            losses,
            model.state_dict(),
            {
                "loss": loss_of(output, target).item(),
                "accuracy": float(accuracy(output, target)[0]),
            },
        )


@pytest.mark.parametrize("kind", LOSSES)
def test_in_one_process_pieces_have_the_curve_of_the_whole(kind):
    losses, _, measured, _ = train(kind, accumulate=4)
    wanted_losses, _, wanted_measured = plain(kind)
    assert losses == pytest.approx(wanted_losses, abs=TOLERANCE)
    assert measured == pytest.approx(wanted_measured, abs=TOLERANCE)


def train_with_nan_in_new_memory(kind, parallel):
    """Train while torch fills memory that nothing has written yet with NaN."""
    torch.use_deterministic_algorithms(True)
    try:
        return train(kind, parallel, has_divisor=False)
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_trial_of_a_pipelines_stage_does_not_decide_whether_its_loss_is_a_mean(ranks):
    _, parallel, _ = MODES["pipeline"]
    answers = ranks.run(2, train_with_nan_in_new_memory, "class weights", parallel)
    assert answers[0][-1].count("prepare(divisor=") == 1


@pytest.mark.parametrize("mode", ["two workers", "pipeline"])
def test_without_its_divisor_the_first_step_says_once_that_the_curve_depends_on_the_workers(
    ranks, mode
):
    workers, parallel, options = MODES[mode]
    answers = ranks.run(
        workers, partial(train, has_divisor=False, **options), "class weights", parallel
    )
    assert [printed.count("prepare(divisor=") for *_, printed in answers] == [1] + [0] * (
        workers - 1
    )


def test_an_evaluation_before_the_first_step_says_it_too(capsys):
    torch.manual_seed(0)
    model = nn.Linear(4, CLASSES)
    training.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=loss_of_tokens)
    training.evaluate(data("ignore_index"), batch_size=ROWS)
    assert "prepare(divisor=" in capsys.readouterr().out


def test_a_divisor_that_does_not_fit_its_loss_is_named(capsys):
    model = nn.Linear(4, CLASSES)

    def share_of_tokens(target):
        return (target != PADDING).float().mean()

    training.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        loss=loss_of_tokens,
        divisor=share_of_tokens,
    )
    training.step(data("class weights")[:])
    assert "the divisor of training.prepare must return" in capsys.readouterr().out


def test_a_batch_in_which_nothing_counts_is_refused():
    model = nn.Linear(4, CLASSES)
    training.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1), loss=loss_of_tokens, divisor=tokens
    )
    inputs, target = data("ignore_index")[:4]
    with pytest.raises(InvalidInput, match="divisor .*0"):
        training.step((inputs, target))
    with pytest.raises(InvalidInput, match="no mean"):
        training.evaluate(TensorDataset(inputs, target), batch_size=2)


@pytest.mark.parametrize("divisor", [3, "tokens", WEIGHTS])
def test_a_divisor_that_is_no_function_is_refused(divisor):
    model = nn.Linear(4, CLASSES)
    with pytest.raises(InvalidRequest, match="divisor is a"):
        training.prepare(
            model, torch.optim.SGD(model.parameters(), lr=0.1), loss=loss_of_tokens, divisor=divisor
        )


def mean_square(output, target):
    return (output - target).square().mean()


def noisy(output, target):
    return (output + torch.rand_like(output) - target).square().mean()


def in_place(output, target):
    return output.mul_(2).sub_(target).square().mean()


def cancelling(output, target):
    return ((output - target) * 1000).mean() / 1000


def in_16_bits(output, target):
    return (output.bfloat16() - target.bfloat16()).square().mean().float()


def of_one_size(output, target):
    return mean_square(output.view(64, 4), target)


class Moving(nn.Module):
    """A loss with a state: the mean of earlier outputs, as a buffer, and the number of calls."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(4))
        self.calls = 0

    def forward(self, output, target):
        loss = mean_square(output - self.centre, target)
        self.centre.mul_(0.9).add_(output.detach().mean(0), alpha=0.1)
        self.calls += 1
        return loss


FAIR = [
    mean_square,
    functional.l1_loss,
    noisy,
    in_place,
    cancelling,
    in_16_bits,
    of_one_size,
    Moving(),
]


@pytest.mark.parametrize(
    "loss", FAIR, ids=lambda loss: getattr(loss, "__name__", type(loss).__name__)
)
@pytest.mark.parametrize("seed", range(5))
def test_no_mean_over_rows_raises_an_alarm(loss, seed):
    generator = torch.Generator().manual_seed(seed)
    output, target = (torch.randn(64, 4, generator=generator) for _ in range(2))
    mean = MeanLoss(loss)
    mean(output, target)
    assert mean.is_checked
    assert not mean.is_uneven


def test_the_comparison_leaves_no_trace():
    loss, alone = Moving(), Moving()
    output, target = torch.randn(8, 4, requires_grad=True), torch.randn(8, 4)
    drawn, torch_drawn = random.getstate(), torch.get_rng_state()
    mean = MeanLoss(loss)
    assert torch.equal(mean(output, target), alone(output, target))
    assert mean.is_checked
    assert (loss.calls, random.getstate()) == (1, drawn)
    assert torch.equal(loss.centre, alone.centre)
    assert torch.equal(torch.get_rng_state(), torch_drawn)
    assert output.grad is None
