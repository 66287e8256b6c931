"""Where in the data a training is, and the learning rate at it."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.errors import InvalidRequest
from raysm.features.training.cluster.checkpoint.manifest import read_manifests
from raysm.features.training.cluster.loop import learning_rate as scaling
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.loop.learning_rate import scale
from raysm.features.training.cluster.loop.position import DataOrder


def rows(samples, first=0):
    """A data set that says which rows it gave."""
    numbers = torch.arange(first, first + samples)
    return TensorDataset(torch.stack([numbers.float(), numbers % 3], 1), numbers % 2)


TRAIN, VALID = rows(20), rows(6, first=100)


@contextlib.contextmanager
def prepared(folder=None, every_steps=1):
    """A training that is about to begin, of a model that draws at random."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    kept = training.Checkpoints(every_steps=every_steps, keep=99, folder=folder) if folder else None
    try:
        training.prepare(model, optimizer, loss=functional.cross_entropy, checkpoints=kept)
        yield sessions.current()
    finally:
        sessions.end()


def numbers(batch):
    return tuple(batch[0][:, 0].int().tolist())


def train(count, *, steps=None, each_step=lambda: None, before=lambda: None, validate=None):
    """Train and validate as people do; return what was learned from, and looked at, in which epoch."""
    learned, seen = [], []

    def validation(epoch):
        seen.append(
            (
                epoch,
                [numbers(batch) for batch in training.batches(VALID, batch_size=4, shuffle=False)],
            )
        )

    validate = validate or validation
    before()
    for epoch in training.epochs(count):
        for batch in training.batches(TRAIN, batch_size=8):
            loss = training.step(batch)
            learned.append((epoch, numbers(batch), loss))
            each_step()
            if len(learned) == steps:
                return learned, seen
        validate(epoch)
    return learned, seen


WHOLE = [(100, 101, 102, 103), (104, 105)]


def test_validating_inside_of_epochs_every_epoch_is_trained_and_validated():
    with prepared() as session:
        learned, seen = train(6)
        assert session.position.epoch == 6
    assert [epoch for epoch, _, _ in learned] == sorted([*range(6)] * 3)
    assert seen == [(epoch, WHOLE) for epoch in range(6)]
    for epoch in range(6):
        assert sorted(n for e, got, _ in learned if e == epoch for n in got) == list(range(20))
    with prepared():  # the epochs and their orders are those of a training that does not validate
        assert train(6, validate=lambda epoch: None)[0] == learned


@pytest.mark.parametrize("steps", [1, 3, 5, 9])
def test_interrupted_at_any_step_beside_a_validation_it_goes_on_with_the_rows_that_are_left(
    tmp_path, steps
):
    with prepared() as session:
        expected, looked = train(3)
    with prepared(tmp_path):
        begun, before = train(3, steps=steps)
    with prepared(tmp_path) as session:
        rest, after = train(3)
        assert session.position.epoch == 3
    assert begun + rest == expected
    # A validation that was due after the last step is done when the training goes on.
    assert before + after == looked


def test_looking_at_the_middle_of_an_epoch_moves_nothing(tmp_path):
    with prepared():
        expected, _ = train(2)

    def look():
        assert [
            numbers(batch) for batch in training.batches(VALID, batch_size=4, shuffle=False)
        ] == WHOLE

    with prepared(tmp_path):
        assert train(2, each_step=look, before=look)[0] == expected
    kept = {manifest.step: manifest for manifest in read_manifests(tmp_path).values()}
    assert [(kept[step].epoch, kept[step].offset) for step in range(1, 7)] == [
        (epoch, offset) for epoch in range(2) for offset in (8, 16, 20)
    ]
    assert {manifest.order.samples for manifest in kept.values()} == {20}


def test_a_loop_over_the_training_data_after_that_which_trained_in_the_epoch_gets_all_rows():
    looked = []

    def evaluate(epoch):
        looked.append(
            sorted(n for batch in training.batches(TRAIN, batch_size=8) for n in numbers(batch))
        )

    with prepared():
        train(2, validate=evaluate)
    assert looked == [[*range(20)]] * 2


def look_at_what_is_trained_on():
    for _ in training.batches(TRAIN, batch_size=8):
        pass


@pytest.mark.parametrize("steps", [1, 3, 4, 6])
def test_looking_at_the_training_data_before_going_on_with_them_skips_no_row(tmp_path, steps):
    with prepared():
        expected, _ = train(3, before=look_at_what_is_trained_on)
    with prepared(tmp_path):
        begun, _ = train(3, before=look_at_what_is_trained_on, steps=steps)
    with prepared(tmp_path):
        rest, _ = train(3, before=look_at_what_is_trained_on)
    assert begun + rest == expected


def test_a_look_at_the_data_before_the_rest_of_a_resumed_epoch_gets_the_rows_left(tmp_path):
    looked = []

    def look(epoch):
        looked.append([numbers(batch) for batch in training.batches(TRAIN, batch_size=8)])
        looked.append(
            [numbers(batch) for batch in training.batches(VALID, batch_size=4, shuffle=False)]
        )

    with prepared(tmp_path):
        train(1, steps=1)
    with prepared(tmp_path):
        learned, _ = train(1, before=lambda: look(0), validate=look)
    before, validation_before, after, validation_after = looked
    assert before == [rows for _, rows, _ in learned]
    assert sorted(n for batch in after for n in batch) == list(range(20))
    assert validation_before == validation_after == WHOLE


def train_by_passes(count, *, steps=None, epochs=None):
    """Train outside of ``training.epochs``, on all data that the training has not yet had; return what was learned."""
    learned = []
    look_at_what_is_trained_on()
    position = sessions.current().position
    while position.epoch < count:
        for batch in training.batches(TRAIN, batch_size=8, epochs=epochs):
            training.step(batch)
            learned.append(numbers(batch))
            if len(learned) == steps:
                return learned
    return learned


@pytest.mark.parametrize("epochs", [None, 3])
@pytest.mark.parametrize("steps", [1, 3, 4])
def test_passes_that_nothing_learns_from_skip_no_row_of_those_that_train(tmp_path, steps, epochs):
    with prepared():
        expected = train_by_passes(3, epochs=epochs)
    # The look is the first pass, unless the loop counts its epochs.
    by_epoch = [
        sorted(n for batch in expected[at : at + 3] for n in batch)
        for at in range(0, len(expected), 3)
    ]
    assert by_epoch == [[*range(20)]] * (2 if epochs is None else 3)
    with prepared(tmp_path):
        begun = train_by_passes(3, steps=steps, epochs=epochs)
    with prepared(tmp_path):
        assert begun + train_by_passes(3, epochs=epochs) == expected


def test_a_loop_that_counts_epochs_is_refused_inside_of_epochs_and_not_after_them():
    with prepared():
        for _ in training.epochs(1):
            with pytest.raises(InvalidRequest, match="epochs=2"):
                training.batches(TRAIN, batch_size=8, epochs=2)
            train_one_epoch()
        for batch in training.batches(TRAIN, batch_size=8, epochs=2):
            training.step(batch)
        assert sessions.current().position.epoch == 2


def train_one_epoch():
    for batch in training.batches(TRAIN, batch_size=8):
        training.step(batch)


def test_an_epoch_that_is_left_after_its_last_step_is_over():
    with prepared() as session:
        for _ in training.epochs(3):
            train_one_epoch()
            break
        assert (session.position.epoch, session.position.offset) == (1, 0)


def test_a_loop_that_trains_inside_of_another_that_does_is_refused_since_it_would_repeat_rows():
    with prepared() as session:
        outer = training.batches(TRAIN, batch_size=8)
        training.step(next(outer))
        batch = next(inner := training.batches(TRAIN, batch_size=8))
        with pytest.raises(InvalidRequest, match="sample 0 .* sample 8 "):
            training.step(batch)
        inner.close()
        outer.close()
        assert session.position.offset == 8


def test_a_second_loop_that_trains_in_the_same_epoch_is_refused():
    with prepared():
        next(epochs := training.epochs(2))
        for batch in training.batches(TRAIN, batch_size=8):
            training.step(batch)
        batch = next(batches := training.batches(VALID, batch_size=8))
        with pytest.raises(InvalidRequest, match="epoch 0.* 20 samples.*Concat"):
            training.step(batch)
        batches.close()
        epochs.close()


@pytest.mark.parametrize(
    ("data", "options", "named"),
    [
        (rows(21), {}, "samples=20.* 21"),
        (TRAIN, {"seed": 1}, "seed=0.* 1"),
        (TRAIN, {"shuffle": False}, "shuffle=True.* False"),
    ],
)
def test_trained_on_in_the_middle_of_an_epoch_other_data_or_another_order_is_refused(
    tmp_path, data, options, named
):
    with prepared(tmp_path):
        train(2, steps=1)
    with prepared(tmp_path) as session:
        weights = [parameter.detach().clone() for parameter in session.trainer.parts.parameters()]
        batch = next(batches := training.batches(data, batch_size=8, **options))
        with pytest.raises(InvalidRequest, match=f"step 1 .*{named}"):
            training.step(batch)
        batches.close()
        assert all(map(torch.equal, weights, session.trainer.parts.parameters()))
        assert session.position.offset == 8


@pytest.fixture
def session():
    begun = sessions.begin()
    begun.position.order = DataOrder(samples=100, batch_size=40, shuffle=True, seed=0)
    return begun


def trained(session, lr, steps, scheduler=None):
    """Return the rate with which each step was made: SGD on a loss whose gradient is 1."""
    weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=lr)
    schedule = scheduler(optimizer) if scheduler else None
    scaling.attach_rate(session, optimizer)
    rates = []
    for step in range(steps):
        session.observers[-1].on_step_begin(step + 1)
        before = weight.item()
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        rates.append(before - weight.item())
        if schedule:
            schedule.step()
        session.position.steps += 1
    return rates, optimizer


def test_the_optimizer_steps_with_the_scaled_rate(session):
    rates, optimizer = trained(session, scale(0.1, base_batch=10, warmup_epochs=1), 5)
    # k = 4, reached after the 3 steps of an epoch.
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])
    assert type(optimizer.param_groups[0]["lr"]) is float


def test_a_scheduler_sees_its_own_rate_and_both_are_multiplied(session):
    def halving(optimizer):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    rates, optimizer = trained(session, scale(0.1, base_batch=20, warmup_epochs=0), 3, halving)
    assert rates == pytest.approx([0.2, 0.1, 0.05])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0125)


def test_gone_on_with_in_the_middle_of_the_warm_up_it_goes_on_there(session):
    session.position.steps = 2
    assert trained(session, scale(0.1, base_batch=10, warmup_epochs=1), 2)[0] == pytest.approx(
        [0.3, 0.4]
    )


def test_a_batch_that_grew_since_the_checkpoint_without_the_rate_is_warned_of(session, capsys):
    session.position.batch_before = 20
    trained(session, 0.1, 1)
    assert "global batch is 2 times" in capsys.readouterr().out


def test_workers_that_each_bring_their_own_batch_are_warned_of(session, capsys):
    session.position.order, session.world_size = None, 4
    trained(session, 0.1, 1)
    assert "global batch is 4 times" in capsys.readouterr().out


def test_with_batches_of_ones_own_it_has_to_be_told_the_global_batch(session):
    session.position.order = None
    with pytest.raises(InvalidRequest, match="batch=… and steps_per_epoch=…"):
        trained(session, scale(0.1), 1)
    session.position.order = DataOrder(samples=None, batch_size=40, shuffle=False, seed=0)
    with pytest.raises(InvalidRequest, match="a stream.* give steps_per_epoch=…, or"):
        trained(session, scale(0.1), 1)
    session.position.order = None
    told = scale(0.1, base_batch=10, warmup_epochs=0.5, batch=40, steps_per_epoch=6)
    assert trained(session, told, 4)[0] == pytest.approx([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    "wrong",
    [{"lr": 0}, {"base_batch": 0}, {"warmup_epochs": -1}, {"batch": 0}, {"steps_per_epoch": 0}],
)
def test_a_number_out_of_range_is_named(wrong):
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        scale(**({"lr": 0.1} | wrong))


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
