"""How work ended, as it travels."""

import pickle
import threading

import pytest
from ray.exceptions import UnserializableException

from raysm.workloads.session.outcomes import outcome_of


def raising(error):
    def work():
        raise error

    return work


class Twofold(Exception):
    """One that cannot be made anew from what it keeps."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def test_an_exception_travels_itself_with_its_place():
    outcome = outcome_of(raising(KeyError("lr")), name="f", host="algo-1", item=3)
    error = outcome.error
    assert (error.type, error.message, error.host, error.item) == ("KeyError", "'lr'", "algo-1", 3)
    assert "in work\n    raise error" in error.traceback
    assert isinstance(pickle.loads(outcome.pickled), KeyError)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        # What a task raised that cannot be unpickled here.
        (
            UnserializableException(
                "ray::f()\n  File 'a.py', line 1, in f\n    raise Unknown()\nstore.Unknown: no row: 7"
            ),
            "store.Unknown",
            "no row: 7",
        ),
        (Twofold(1, 2), "Twofold", "1 2"),
        # It would end the client.
        (SystemExit(3), "SystemExit", "3"),
    ],
    ids=["task", "pickle", "exit"],
)
def test_an_exception_that_cannot_travel_is_described(error, kind, message):
    outcome = outcome_of(raising(error), name="f")
    assert (outcome.error.type.rpartition("tests.workloads.session.test_outcomes.")[2], outcome.pickled) == (kind, b"")
    assert message in outcome.error.message


def test_a_value_that_cannot_be_pickled_is_a_failure_that_says_so():
    outcome = outcome_of(threading.Lock, name="train")
    assert outcome.error.type == "InvalidRequest"
    assert "the value of train, a lock, cannot be pickled" in outcome.error.message
