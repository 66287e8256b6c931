"""Who this process is, where it is the only worker."""

import pytest
import torch

from raysm.contract.events import parse
from raysm.errors import InvalidRequest
from raysm.workloads.training.loop import session as sessions
from raysm.workloads.training.loop.position import Position
from raysm.workloads.training.loop.session import Session


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    sessions.end()


def worker(**fields):
    fields = {"rank": 0, "world_size": 1, "local_rank": 0, "hosts": ("algo-1",)} | fields
    return Session(device=torch.device("cpu"), **fields)


def test_one_process_is_the_only_worker_and_has_one_session():
    session = sessions.begin(device=torch.device("cpu"))
    assert (session.rank, session.world_size, session.data_rank, session.data_ranks) == (0, 1, 0, 1)
    assert sessions.current() is session
    with pytest.raises(InvalidRequest, match="has a session already"):
        sessions.begin()


def test_metrics_are_events_in_a_job_and_words_elsewhere(capsys):
    worker(in_job=True, position=Position(steps=7)).report(loss=0.25)
    event = parse(capsys.readouterr().out)
    assert (event.name, event.value, event.step) == ("loss", 0.25, 7)
    worker().report(step=3, loss=0.25, accuracy=1)
    assert capsys.readouterr().out == "step 3: loss 0.25, accuracy 1\n"
