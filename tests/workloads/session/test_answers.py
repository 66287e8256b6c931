"""How a question about a call is answered."""

import asyncio

import pytest

from raysm.contract.session import CALL, DONE, CallRequest
from raysm.errors import InvalidConfig, InvalidRequest, ServiceError, SessionEnded
from raysm.workloads.session.answers import answer, status_of
from raysm.workloads.session.calls import Call


def answered(script):
    async def go():
        return await asyncio.wait_for(script(Call("c", CallRequest(kind=CALL, name="f"), b"", lambda: None)), 60)

    return asyncio.run(go())


def test_one_that_runs_is_answered_after_a_while_without_an_outcome():
    async def script(call):
        call.begin()
        return await answer(call, 0.01)

    status, outcome = answered(script)
    assert (status.state, outcome) == ("running", b"")


def test_one_that_ends_meanwhile_is_answered_with_its_outcome(tmp_path):
    async def script(call):
        asyncio.get_running_loop().call_later(0.01, call.end, b"outcome", False, tmp_path / "spill")
        return await answer(call, 20)

    status, outcome = answered(script)
    assert (status.state, outcome) == (DONE, b"outcome")


@pytest.mark.parametrize(("most_bytes", "told"), [(None, b"outcome"), (7, b"outcome"), (6, None), (0, None)])
def test_an_outcome_that_is_larger_than_is_wanted_is_kept_back(tmp_path, most_bytes, told):
    async def script(call):
        call.end(b"outcome", False, tmp_path / "spill")
        return await answer(call, 0, most_bytes=most_bytes)

    assert answered(script)[1] == told


@pytest.mark.parametrize(
    ("error", "status"),
    [(SessionEnded("x"), 410), (InvalidRequest("x"), 400), (InvalidConfig("x"), 400), (ServiceError("x"), 500)],
    ids=["ended", "request", "config", "other"],
)
def test_what_cannot_be_is_told_by_its_kind(error, status):
    assert status_of(error) == status
