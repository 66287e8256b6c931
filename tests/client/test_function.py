"""Functions as bytes."""

import pickle
import threading
import types

import pytest
import torch

from raysm.client.source.function import pickled_call
from raysm.errors import InvalidRequest


def count_classes(dataset):
    return torch.tensor(len(dataset.classes))


def test_a_function_travels_that_uses_torch_and_the_name_of_one_of_its_odd_modules():
    assert type(torch.classes) is not types.ModuleType
    function, args, _ = pickle.loads(pickled_call(count_classes, (types.SimpleNamespace(classes=["a", "b"]),), {}))
    assert function is not count_classes
    assert function(*args) == 2


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(
        InvalidRequest, match="count_classes or one of its arguments cannot be pickled: .*is a lock: TypeError"
    ):
        pickled_call(count_classes, (threading.Lock(),), {})


def test_code_travels_with_the_file_that_it_is_from():
    function, *_ = pickle.loads(pickled_call(count_classes, (), {}))
    assert function.__code__.co_filename == __file__
