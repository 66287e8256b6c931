"""Computing on data that nothing is learned from."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.workloads.training.evaluation import evaluate
from raysm.workloads.training.loop import session as sessions

ROWS = torch.arange(14.0).reshape(7, 2)
DATA = TensorDataset(ROWS, ROWS.sum(1, keepdim=True))


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    sessions.end()


def prepared(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    training.prepare(model, optimizer, loss=functional.mse_loss, **options)
    return model


def largest(output, target):
    return (output - target).abs().mean()


def test_it_is_the_mean_over_all_rows_however_they_lie_over_the_batches():
    model = prepared()
    expected = {"loss": functional.mse_loss, "largest": largest}
    with torch.no_grad():
        output = model.eval()(ROWS)
    model.train()
    for batch_size in (1, 3, 7, 100):
        measured = evaluate(DATA, batch_size=batch_size, metrics={"largest": largest})
        assert measured == pytest.approx({name: float(metric(output, DATA[:][1])) for name, metric in expected.items()})


def test_a_loop_that_is_evaluated_in_its_middle_learns_as_one_that_is_not():
    curves = []
    for is_evaluated in (False, True):
        prepared()
        losses = []
        for epoch in training.epochs(2):
            for batch in training.batches(DATA, batch_size=2):
                losses.append(training.step(batch))
                if is_evaluated and epoch == 0:
                    evaluate(DATA, batch_size=3)
        session = sessions.current()
        curves.append((losses, session.position.epoch, session.position.offset))
        sessions.end()
    assert curves[0] == curves[1]


def test_a_scheduler_that_takes_a_metric_is_stepped_by_the_loop_and_kept_in_the_state():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    training.prepare(model, optimizer, loss=functional.mse_loss, scheduler=plateau)
    training.step((ROWS, DATA[:][1]))
    # It grows without bound at this rate, so that the second value is worse than the first.
    plateau.step(evaluate(DATA, batch_size=7)["loss"])
    training.step((ROWS, DATA[:][1]))
    plateau.step(evaluate(DATA, batch_size=7)["loss"])
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert sessions.current().trainer.state()["scheduler"]["num_bad_epochs"] == 0
    assert sessions.current().trainer.state()["scheduler"]["last_epoch"] == 2
