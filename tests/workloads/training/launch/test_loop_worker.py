"""What the end of a user's loop is to the driver."""

import sys

import pytest
import torch

from raysm import training
from raysm.workloads.training.launch.loop_worker import train_and_save
from raysm.workloads.training.loop import session


@pytest.fixture
def loop(tmp_path, monkeypatch):
    """A loop that trains a model of one weight, and then calls what it is given."""
    monkeypatch.chdir(tmp_path)
    session.begin()

    def train(leave):
        model = torch.nn.Linear(1, 1, bias=False)
        model, optimizer = training.prepare(
            model, torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.functional.mse_loss
        )
        leave()

    yield train
    session.end()


@pytest.mark.parametrize("leave", [lambda: None, sys.exit, lambda: sys.exit(0)], ids=["return", "exit", "exit 0"])
def test_the_model_is_saved_also_of_a_loop_that_ends_by_an_exit_with_0(loop, leave, tmp_path):
    train_and_save(lambda: loop(leave))
    assert (tmp_path / "model" / "model.safetensors").is_file()


def test_a_loop_that_ends_by_another_exit_leaves_no_model(loop, tmp_path):
    with pytest.raises(SystemExit, match="3"):
        train_and_save(lambda: loop(lambda: sys.exit(3)))
    assert not (tmp_path / "model").exists()
