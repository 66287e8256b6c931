"""Batch inference as the driver runs it; tests/workloads/batch has its parts."""

import pkgutil

import pytest

from raysm.request.batch import BatchInference
from raysm.workloads.batch.run import BatchRunner
from raysm.workloads.runner import load_runner
from tests.support.driving import payload_of

BATCH = BatchInference(name="Classifier", python="3.11", batch_size=8)


def test_a_batch_inference_is_run_by_this_runner():
    assert isinstance(load_runner(payload_of(BATCH), None), BatchRunner)


@pytest.mark.parametrize("name", [BATCH.runner, BATCH.reader, BATCH.input_check])
def test_what_the_workload_names_is_there(name):
    assert callable(pkgutil.resolve_name(name))
