"""Tests of ``raysm.contract.session``."""

import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.contract.session import CallRequest, Outcome, RemoteError, Versions, frame, unframe
from raysm.errors import InvalidConfig
from raysm.request.codec import from_json, to_json


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none()), st.binary())
def test_a_frame_is_read_as_it_was_made_whatever_its_bytes(head, body):
    assert unframe(frame(head, body)) == (head, body)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]\nx", b"no json\n", b"\xff\n"])
def test_what_is_no_frame_is_refused(content):
    with pytest.raises(InvalidConfig, match="no frame of a session"):
        unframe(content)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(pickled=b"a\nb"),
        Outcome(shown={"text/plain": "1"}),
        Outcome(error=RemoteError(type="KeyError", message="'lr'", traceback="…", host="algo-1", item=3), pickled=b"x"),
    ],
)
def test_an_outcome_is_read_as_it_was_written(outcome):
    assert Outcome.decode(outcome.encode()) == outcome


def test_a_request_of_a_call_travels_as_json():
    request = CallRequest(kind="cell", name="a cell", args=("--lr", "0.1"), num_gpus=0.5)
    assert from_json(CallRequest, to_json(request)) == request


def test_pickles_go_by_the_first_two_numbers_of_python():
    assert Versions(python="3.11.9", ray="", cloudpickle="", raysm="").pickles == "3.11"
    assert Versions.here().python == platform.python_version()
    assert Versions.here().ray


def test_an_error_without_a_text_is_named_by_its_class():
    assert RemoteError(type="KeyError", message="").headline == "KeyError"
    assert RemoteError(type="KeyError", message="x").headline == "KeyError: x"
