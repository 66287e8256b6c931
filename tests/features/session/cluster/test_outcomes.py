"""The outcome of a call, built from its value or its exception."""

import pickle
import sys
import threading

import pytest

from raysm.core.protocol.parcels import SMALL_BYTES, load
from raysm.errors import InvalidRequest
from raysm.features.session.cluster.outcomes import (
    capture_outcome,
    describe_death,
    failed_outcome,
    interrupted_outcome,
    refused_outcome,
)
from raysm.features.session.protocol import Outcome


def of(work, **where):
    """Return the outcome as the client receives it."""
    return Outcome.decode(capture_outcome(work, name="train", **where).encode())


def raises(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    "value", [None, {"lr": 0.1}, bytearray(4 * SMALL_BYTES)], ids=["none", "small", "large"]
)
def test_a_value_is_read_as_it_was_returned(value):
    outcome = of(lambda: value)
    assert outcome.error is None
    assert load(outcome.pickled) == value


def test_an_exception_is_sent_with_its_place_and_its_traceback():
    outcome = of(raises(KeyError("lr")), host="algo-2", item=7)
    assert (outcome.error.type, outcome.error.host, outcome.error.item) == ("KeyError", "algo-2", 7)
    assert "in work" in outcome.error.traceback
    assert not outcome.error.cancelled
    assert isinstance(pickle.loads(outcome.pickled), KeyError)


class Unpicklable(Exception):
    def __init__(self, model):
        super().__init__("no such model")
        self.lock = threading.Lock()


def test_an_exception_that_cannot_be_pickled_is_described():
    outcome = of(raises(Unpicklable(3)))
    assert outcome.error.headline.endswith("Unpicklable: no such model")
    assert outcome.pickled == b""


def test_a_value_that_cannot_be_pickled_is_an_error_that_names_the_function():
    outcome = of(threading.Lock)
    assert outcome.error.type == "InvalidRequest"
    assert "train" in outcome.error.message
    assert isinstance(pickle.loads(outcome.pickled), InvalidRequest)


def test_an_exit_ends_the_call_alone_and_is_a_failure_unless_its_status_is_0():
    left = of(lambda: sys.exit(0))
    assert (left.error, pickle.loads(left.pickled)) == (None, None)
    failed_exit = of(lambda: sys.exit(3), host="algo-1")
    assert failed_exit.error.headline.startswith("SystemExit: 3")
    # Unpickled, it would end the client's program.
    assert failed_exit.pickled == b""


def test_an_interrupted_call_is_cancelled_and_no_other_failure_is():
    for outcome in (of(raises(KeyboardInterrupt()), host="algo-2"), interrupted_outcome("algo-2")):
        assert (outcome.error.cancelled, outcome.error.host) == (True, "algo-2")
    died = failed_outcome("WorkerDied", "it died", "algo-2", 7).error
    assert (died.headline, died.host, died.item, died.cancelled) == (
        "WorkerDied: it died",
        "algo-2",
        7,
        False,
    )


class WithALock(InvalidRequest):
    def __init__(self, message):
        super().__init__(message)
        self.lock = threading.Lock()


def test_a_refusal_of_raysm_is_the_same_error_at_the_client_or_described_if_it_cannot_be():
    outcome = refused_outcome(InvalidRequest("there is no instance 'algo-9'"))
    assert outcome.error.headline == "InvalidRequest: there is no instance 'algo-9'"
    assert isinstance(pickle.loads(outcome.pickled), InvalidRequest)
    described = Outcome.decode(refused_outcome(WithALock("no")).encode())
    assert (described.error.headline, described.pickled) == ("WithALock: no", b"")


OF_RAY = """The actor died unexpectedly before finishing this task.
\tclass_name: Process
\tactor_id: 0a1b
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR \
Worker exit detail: Worker exits with code 3. Some common causes include: (1) the process was killed"""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (OF_RAY, "Worker exits with code 3."),
        ("\n  The actor is dead.\nclass_name: Process", "The actor is dead."),
        ("", "RuntimeError"),
    ],
    ids=["detail", "first line", "nothing"],
)
def test_a_death_is_told_by_what_ray_knows_of_it(message, reason):
    assert describe_death("train", RuntimeError(message)) == f"the process of train died: {reason}"
