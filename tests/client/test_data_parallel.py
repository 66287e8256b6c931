"""A training loop as a workload, before it is sent."""

import pickle

import pytest

from raysm.client.source.function import DataParallel
from raysm.errors import InvalidRequest
from raysm.request import TrainLoop


def loop(config):
    return config["lr"]


def test_a_loop_travels_with_its_config():
    workload = DataParallel(loop, config={"lr": 0.1}, precision="bf16", workers=4, max_restarts=2)
    function, args, named = pickle.loads(workload.pickled())
    assert function(*args, **named) == 0.1
    asked = workload.workload()
    assert isinstance(asked, TrainLoop)
    assert (asked.precision, asked.workers, asked.max_restarts) == ("bf16", 4, 2)
    assert asked.name.endswith("loop")


def test_a_loop_without_a_config_may_take_nothing():
    function, args, _ = pickle.loads(DataParallel(lambda: "done").pickled())
    assert function(*args) == "done"


@pytest.mark.parametrize(
    ("arguments", "fields", "message"),
    [
        ((3,), {}, "must be a function, got 3"),
        ((lambda: None,), {"config": {"lr": 1}}, "must take one argument, the config"),
        ((loop,), {"config": [1]}, "config must be a mapping"),
        ((loop,), {"precision": "fp16"}, "precision is 'fp32' or 'bf16', got 'fp16'"),
        ((loop,), {"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ((loop,), {"workers_per_instance": True}, "workers_per_instance must be a whole number"),
        ((loop,), {"max_restarts": -1}, "max_restarts must be a whole number of at least 0, got -1"),
    ],
)
def test_what_cannot_be_is_refused(arguments, fields, message):
    with pytest.raises(InvalidRequest, match=message):
        DataParallel(*arguments, **fields)
