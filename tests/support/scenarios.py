"""A test's coroutine on a loop of its own, within a time that only a defect exceeds."""

import asyncio

WAIT_S = 300.0


def run(scenario):
    """Return what ``await scenario()`` does."""

    async def within():
        async with asyncio.timeout(WAIT_S):
            return await scenario()

    return asyncio.run(within())
