"""What the end of a user's loop is to the driver."""

import pickle
import sys

import pytest
import torch

from raysm import training
from raysm.errors import WorkerFailed
from raysm.workloads.training.launch.loop_worker import LoopFailed, train_and_save
from raysm.workloads.training.loop import session


def test_a_failure_arrives_whole_at_the_driver():
    error = WorkerFailed(3, "algo-2", "ValueError", "no such layer", "Traceback ...", 1)
    arrived = pickle.loads(pickle.dumps(LoopFailed(12.5, error, True)))
    assert (arrived.at_s, arrived.stopped, str(arrived)) == (12.5, True, str(error))
    assert (arrived.error.rank, arrived.error.host, arrived.error.error_type) == (3, "algo-2", "ValueError")


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
