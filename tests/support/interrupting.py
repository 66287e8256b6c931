"""A call of a session that is interrupted while it runs, whoever runs it."""

import asyncio

from raysm.contract.session import Outcome

__all__ = ["interrupted"]


async def interrupted(executor, call, has_begun):
    """Run a call; when ``has_begun()``, interrupt it; return its decoded outcome."""
    running = asyncio.create_task(executor.run(call))
    while not has_begun():
        await asyncio.sleep(0.05)
    call.is_cancelled = True
    executor.interrupt(call)
    outcome, _ = await running
    call.end(outcome, True)
    return Outcome.decode(outcome)
