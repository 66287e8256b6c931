import pytest
import torch

from raysm.errors import InvalidRequest
from raysm.workloads.training.loop import learning_rate as scaling
from raysm.workloads.training.loop import session as sessions
from raysm.workloads.training.loop.learning_rate import scale
from raysm.workloads.training.loop.position import DataOrder


@pytest.fixture
def session():
    begun = sessions.begin()
    begun.position.order = DataOrder(samples=100, batch_size=40, shuffle=True, seed=0)
    yield begun
    sessions.end()


def trained(session, lr, steps, scheduler=None):
    """Return the rate with which each step was made: SGD on a loss whose gradient is 1."""
    weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=lr)
    schedule = scheduler(optimizer) if scheduler else None
    rate = scaling.attach(session, optimizer)
    rates = []
    for step in range(steps):
        rate.on_step_begin(step + 1)
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
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])  # k = 4, reached after the 3 steps of an epoch
    assert type(optimizer.param_groups[0]["lr"]) is float


def test_a_scheduler_sees_its_own_rate_and_both_are_multiplied(session):
    def halving(optimizer):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    rates, optimizer = trained(session, scale(0.1, base_batch=20, warmup_epochs=0), 3, halving)
    assert rates == pytest.approx([0.2, 0.1, 0.05])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0125)


def test_gone_on_with_in_the_middle_of_the_warm_up_it_goes_on_there(session):
    session.position.steps = 2
    assert trained(session, scale(0.1, base_batch=10, warmup_epochs=1), 2)[0] == pytest.approx([0.3, 0.4])


def test_a_batch_that_grew_since_the_checkpoint_without_the_rate_is_warned_of(session, capsys):
    session.position.batch_before = 20
    trained(session, 0.1, 1)
    assert "warning: the global batch is 2 times that of the checkpoint, 20" in capsys.readouterr().out


def test_workers_that_each_bring_their_own_batch_are_warned_of(session, capsys):
    session.position.order, session.world_size = None, 4
    trained(session, 0.1, 1)
    assert "warning: the global batch is 4 times that of one worker; scale the rate" in capsys.readouterr().out


def test_with_batches_of_ones_own_it_has_to_be_told_the_global_batch(session):
    session.position.order = None
    with pytest.raises(InvalidRequest, match="batch=… and steps_per_epoch=…"):
        trained(session, scale(0.1), 1)
    told = scale(0.1, base_batch=10, warmup_epochs=0.5, batch=40, steps_per_epoch=6)
    assert trained(session, told, 4)[0] == pytest.approx([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    "wrong", [{"lr": 0}, {"base_batch": 0}, {"warmup_epochs": -1}, {"batch": 0}, {"steps_per_epoch": 0}]
)
def test_a_number_out_of_range_is_named(wrong):
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        scale(**({"lr": 0.1} | wrong))


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
