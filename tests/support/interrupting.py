"""A call of a session that is interrupted while it runs, whoever runs it."""

import asyncio

from raysm.features.session.cluster.calls import CallEnded
from raysm.features.session.protocol import Outcome


async def interrupted(executor, call, has_begun):
    """Run a call; when ``has_begun()``, interrupt it; return its outcome."""
    running = asyncio.create_task(executor.run(call))
    while not has_begun():
        await asyncio.sleep(0.05)
    call.is_cancelled = True
    executor.interrupt(call)
    try:
        outcome = Outcome.decode((await running)[0])
    except CallEnded as ended:
        outcome = ended.outcome
    call.end(b"", True)
    return outcome
