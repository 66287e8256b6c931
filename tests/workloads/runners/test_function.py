"""A pickled function as the driver runs it; tests/jobs runs whole ones."""

import pytest

from raysm.errors import InvalidPayload
from raysm.request import PickledFunction
from raysm.workloads.runner import load_runner
from raysm.workloads.runners.function import FunctionRunner, run_function
from tests.support.driving import payload_of, refusal_without

FUNCTION = PickledFunction(name="work", python="3.11")


def test_a_function_is_run_by_this_runner():
    assert isinstance(load_runner(payload_of(FUNCTION), None), FunctionRunner)


def test_an_image_without_cloudpickle_says_so():
    assert refusal_without("cloudpickle", FUNCTION) == (
        "the image lacks cloudpickle, which a function needs; add it to the requirements"
    )


def test_what_cannot_be_read_is_refused_before_ray_is_joined(tmp_path):
    (tmp_path / "function.pkl").write_bytes(b"torn")
    with pytest.raises(InvalidPayload, match="the function work cannot be unpickled"):
        run_function(tmp_path / "function.pkl", "work", tmp_path)
