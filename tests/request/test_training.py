"""What can be asked of a training."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request.training import TorchScript, TrainLoop

LOOP = {"name": "module.loop", "python": "3.11"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"workers": 0}, "DataParallel: workers must be a whole number of at least 1, got 0"),
        ({"workers_per_instance": 1.5}, "workers_per_instance must be a whole number of at least 1, got 1.5"),
        ({"max_restarts": -1}, "max_restarts must be a whole number of at least 0, got -1"),
        ({"max_restarts": None}, "max_restarts must be a whole number of at least 0, got None"),
        ({"precision": "fp16"}, "precision is 'fp32', 'bf16' or 'fp8', got 'fp16'"),
    ],
)
def test_a_loop_that_cannot_be_is_refused(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        TrainLoop(**LOOP, **fields)


def test_a_script_that_spawns_has_one_worker_for_each_instance():
    assert TorchScript("a.py", spawns=True, workers_per_instance=1).spawns
    with pytest.raises(InvalidRequest, match="drop workers_per_instance=2, or spawns"):
        TorchScript("a.py", spawns=True, workers_per_instance=2)


def test_both_leave_the_cores_to_the_workers():
    assert TorchScript("a.py").ray_variables == TrainLoop(**LOOP).ray_variables
    assert TorchScript("a.py").ray_variables["RAY_worker_niceness"] == "0"
