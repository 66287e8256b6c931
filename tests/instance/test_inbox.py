"""The queue of an instance's events."""

import asyncio
import time

import pytest

from raysm.instance.lifecycle import Event, Inbox, Joined

EVENT = Joined("algo-2")


async def take(inbox: Inbox, until_s: float | None) -> Event | None:
    async with asyncio.timeout(60):
        return await inbox.take(until_s)


def test_without_an_event_the_wait_ends_at_its_deadline_and_not_before():
    deadline_s = time.monotonic() + 0.1
    assert asyncio.run(take(Inbox(), deadline_s)) is None
    assert time.monotonic() >= deadline_s


@pytest.mark.parametrize("wait_s", [None, 60])
def test_an_event_ends_the_wait(wait_s):
    async def put_later():
        inbox = Inbox()
        asyncio.get_running_loop().call_later(0.01, inbox.put, EVENT)
        return await take(inbox, None if wait_s is None else time.monotonic() + wait_s)

    assert asyncio.run(put_later()) == EVENT


def test_an_event_that_came_before_the_deadline_is_returned_after_it():
    async def put_first():
        inbox = Inbox()
        inbox.put(EVENT)
        return await take(inbox, time.monotonic() - 1)

    assert asyncio.run(put_first()) == EVENT
