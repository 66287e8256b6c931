"""Tests of ``raysm.contract.session``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.contract.session import Outcome, RemoteError, frame, unframe
from raysm.errors import InvalidConfig


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none()), st.binary())
def test_a_frame_is_read_as_it_was_made_whatever_its_bytes(head, body):
    assert unframe(frame(head, body)) == (head, body)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]\nx", b"no json\n", b"\xff\n"])
def test_what_is_no_frame_is_refused(content):
    with pytest.raises(InvalidConfig, match="not a frame of a session"):
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
