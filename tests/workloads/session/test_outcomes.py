"""How work ended, as it travels."""

import pickle
import threading

import pytest
from ray.exceptions import UnserializableException

from raysm.contract.parcels import load
from raysm.errors import InvalidRequest
from raysm.workloads.session.outcomes import death_of, interrupted, outcome_of, refused


def raising(error):
    def work():
        raise error

    return work


class Twofold(Exception):
    """One that cannot be made anew from what it keeps."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def test_a_value_travels_pickled():
    outcome = outcome_of(lambda: [1, 2], name="f")
    assert (outcome.error, load(b"".join(outcome.pickled))) == (None, [1, 2])


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


@pytest.mark.parametrize("code", [None, 0])
def test_an_exit_that_says_nothing_is_a_value_of_none(code):
    outcome = outcome_of(raising(SystemExit(code)), name="f")
    assert (outcome.error, pickle.loads(outcome.pickled)) == (None, None)


def test_who_is_interrupted_is_cancelled():
    assert outcome_of(raising(KeyboardInterrupt()), name="f").error.cancelled
    assert interrupted("algo-1").error.host == "algo-1"


def test_a_refusal_travels_itself_and_without_frames():
    outcome = refused(InvalidRequest("no room"))
    assert (outcome.error.headline, outcome.error.traceback) == ("InvalidRequest: no room", "")
    assert isinstance(pickle.loads(outcome.pickled), InvalidRequest)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("The worker died unexpectedly.\nCheck its log.", "The worker died unexpectedly."),
        ("Died.\n\tpid: 3\nThe actor is dead. Worker exit detail: End of file. Some common causes: x", "End of file."),
        ("", "ValueError"),
    ],
    ids=["task", "actor", "nothing"],
)
def test_of_a_death_the_line_that_says_why_is_told(said, reason):
    assert death_of("train", ValueError(said)) == f"the process of train died: {reason}"
