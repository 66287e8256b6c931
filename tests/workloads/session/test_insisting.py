"""What is to end a call, done until it has."""

import asyncio

from raysm.contract.session import CALL, CallRequest
from raysm.workloads.session.calls import Call
from raysm.workloads.session.insisting import Insisting


def test_a_call_is_struck_until_it_has_ended_and_not_behind_its_end(tmp_path):
    async def script():
        call, strikes = Call("c", CallRequest(kind=CALL, name="f"), b"", lambda: None), []

        def strike():
            strikes.append(call.status.state)
            # The first one was caught by its code.
            if len(strikes) == 2:
                call.end(b"", True, tmp_path / "spill")

        insisting = Insisting()
        insisting.begin(call, strike)
        while insisting._tasks:
            await asyncio.sleep(0.01)
        return strikes

    assert asyncio.run(asyncio.wait_for(script(), 60)) == ["waiting", "waiting"]
