"""A trial of a function, in the trial's own process."""

from types import SimpleNamespace

import cloudpickle
import pytest

import raysm
from raysm.request.sweep import FunctionSweep
from raysm.workloads.sweep.function_trial import run_function


def run_of(folder, function):
    (folder / "function.pkl").write_bytes(cloudpickle.dumps((function, (), {})))
    workload = FunctionSweep(name="train", python="3.11", space={"x": raysm.uniform(0, 1)}, metric="loss", mode="min")
    taken = []
    return SimpleNamespace(
        workload=workload, here=SimpleNamespace(payload=folder), params={"x": 0.5}, taken=taken, take=taken.append
    )


def test_its_value_is_returned_and_its_reports_are_taken(tmp_path):
    def work(x):
        raysm.report(loss=x, step=1)
        return x * 2

    run = run_of(tmp_path, work)
    assert run_function(run) == 1.0
    assert [(report.metrics, report.step) for report in run.taken] == [({"loss": 0.5}, 1)]


def test_what_it_raises_passes(tmp_path):
    def work(x):
        raise ValueError(x)

    with pytest.raises(ValueError, match="0.5"):
        run_function(run_of(tmp_path, work))
