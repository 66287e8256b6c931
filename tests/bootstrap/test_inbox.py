"""The queue of what happens."""

import asyncio
import time

from raysm.bootstrap.lifecycle import Inbox, Joined, StopRequested


def test_events_are_taken_in_the_order_in_which_they_happen():
    async def scenario():
        inbox = Inbox()
        inbox.put(Joined("algo-2"))
        inbox.put(StopRequested())
        return [await inbox.take(None), await inbox.take(None)]

    assert asyncio.run(scenario()) == [Joined("algo-2"), StopRequested()]


def test_nothing_comes_out_when_nothing_happens_until_then():
    async def scenario():
        return await Inbox().take(time.monotonic() + 0.05)

    assert asyncio.run(scenario()) is None


def test_what_has_happened_counts_also_when_the_time_has_passed():
    async def scenario():
        inbox = Inbox()
        inbox.put(Joined("algo-2"))
        return await inbox.take(time.monotonic() - 10)

    assert asyncio.run(scenario()) == Joined("algo-2")


def test_who_waits_without_a_deadline_gets_what_happens_later():
    async def scenario():
        inbox = Inbox()
        asyncio.get_running_loop().call_later(0.01, inbox.put, StopRequested())
        return await asyncio.wait_for(inbox.take(None), 30)

    assert asyncio.run(scenario()) == StopRequested()
