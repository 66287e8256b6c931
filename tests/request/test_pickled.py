"""What workloads share that were pickled."""

import pytest

from raysm.request.function import PickledFunction
from raysm.request.pickled import Pickled
from raysm.request.script import Script
from raysm.request.space import uniform
from raysm.request.sweep import FunctionSweep


@pytest.mark.parametrize(
    "workload",
    [
        PickledFunction(name="train.fit", python="3.11.9"),
        FunctionSweep(name="train.fit", python="3.11.9", space={"lr": uniform(0, 1)}, metric="loss", mode="min"),
    ],
)
def test_it_is_called_as_its_function_and_says_who_pickled_it(workload):
    assert isinstance(workload, Pickled)
    assert (workload.title, workload.pickled_by) == ("train.fit", "3.11.9")
    # With slots all the way up: nothing else can be set on it.
    assert not hasattr(workload, "__dict__")


def test_what_is_not_pickled_names_nobody_who_did():
    assert Script("a.py").pickled_by is None
