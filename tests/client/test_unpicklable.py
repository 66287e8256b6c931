"""Which part of a call it is that cannot be pickled."""

import threading
import types

import cloudpickle
import pytest

from raysm.client.source.function import pickled_call, pickled_value
from raysm.client.source.package import culprit_of_call
from raysm.errors import InvalidRequest

LOCK = threading.Lock()


def nothing(*args, **kwargs):
    pass


def uses_the_lock():
    return LOCK


class Model:
    def __init__(self):
        self.name, self.lock = "a", threading.Lock()

    def fit(self):
        pass


def path(fn, *args, **kwargs):
    culprit = culprit_of_call(fn, args, kwargs, cloudpickle.dumps)
    return None if culprit is None else culprit[0]


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((1, LOCK), {}, "args[1]"),
        ((), {"model": Model()}, "model.lock"),
        (({"a": [1, {"b": LOCK}]},), {}, "args[0]['a'][1]['b']"),
        ((types.SimpleNamespace(inner=Model()),), {}, "args[0].inner.lock"),
        ((Model().fit,), {}, "args[0].__self__.lock"),
    ],
)
def test_the_innermost_part_is_named_by_its_path(args, kwargs, expected):
    assert path(nothing, *args, **kwargs) == expected


def test_what_a_function_uses_is_named_with_the_function():
    held = threading.Lock()

    def closes():
        return held

    def defaults(lock=held):
        return lock

    assert path(closes) == "held (used by closes)"
    assert path(defaults) == "default 0 of defaults"


def test_a_value_that_holds_itself_is_looked_at_once():
    circle = [LOCK]
    circle.insert(0, circle)
    assert path(nothing, circle) == "args[0][1]"


def test_of_what_can_be_pickled_nothing_is_named():
    assert path(nothing, 1, {"a": [2]}) is None


def test_the_message_of_a_call_says_what_and_where():
    with pytest.raises(InvalidRequest, match=r"cannot be pickled: args\[0\]\['lock'\] is a lock: TypeError"):
        pickled_call(nothing, ({"lock": LOCK},), {})


def test_the_message_of_a_value_says_what_and_where():
    with pytest.raises(InvalidRequest, match=r"^it\['lock'\], a lock, cannot be pickled"):
        pickled_value({"lock": LOCK})
    with pytest.raises(InvalidRequest, match="^it, a lock, cannot be pickled"):
        pickled_value(LOCK)
