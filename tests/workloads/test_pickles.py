"""What travels back of a function."""

import pickle
import threading

import pytest
import ray.exceptions

from raysm.errors import InvalidPayload, InvalidRequest
from raysm.workloads.pickles import pickled_exception, pickled_value, unpickled


def test_an_exception_travels_as_it_is():
    raised = pickle.loads(pickled_exception(KeyError("a", 1)))
    assert type(raised) is KeyError
    assert raised.args == ("a", 1)


def test_of_a_failed_task_its_own_exception_travels_without_ray():
    wrapped = ray.exceptions.RayTaskError("f", "the traceback", ValueError("odd")).as_instanceof_cause()
    content = pickled_exception(wrapped)
    assert b"ray" not in content
    assert repr(pickle.loads(content)) == "ValueError('odd')"


class Stubborn(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def test_an_exception_that_would_not_come_back_is_left_to_its_text():
    assert pickled_exception(Stubborn(1, 2)) is None
    assert pickled_exception(ValueError(threading.Lock())) is None


def test_a_value_that_cannot_be_pickled_says_what_to_return():
    with pytest.raises(InvalidRequest, match="the value of f, a lock, cannot be pickled: .*; return plain data"):
        pickled_value(threading.Lock(), "f")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cnowhere_to_be_found\nf\n.", "needs the module 'nowhere_to_be_found', which this image lacks"),
        (b"torn", "cannot be unpickled: UnpicklingError"),
    ],
)
def test_a_function_that_cannot_be_unpickled_says_why(tmp_path, content, message):
    path = tmp_path / "function.pkl"
    path.write_bytes(content)
    with pytest.raises(InvalidPayload, match=message):
        unpickled(path, "f")
