"""The dashboard, which comes up beside the workload: told to users once it answers, and not before."""

import asyncio
import time

from raysm.bootstrap.address import port_answers
from raysm.bootstrap.log import emit_event, remark
from raysm.contract.events import State

__all__ = ["announce_dashboard"]

PROBE_S = 0.2
LIMIT_S = 60.0
"""Ray's own: it does not wait for its dashboard any longer."""


async def announce_dashboard(host: str, address: str, port: int, limit_s: float = LIMIT_S) -> bool:
    """Say where the dashboard is as soon as it answers, or that it does not.

    Args:
        host: The head.
        address: Where users find it.
        port: Where it listens.
        limit_s: Seconds that it may take.

    Returns:
        Whether it answers.
    """
    until = time.monotonic() + limit_s
    while not await port_answers("127.0.0.1", port):
        if time.monotonic() > until:
            # Not worth a job: it shows what happens, and nothing waits for it.
            remark(f"the dashboard has not come up within {limit_s:g} s; the job goes on without it")
            return False
        await asyncio.sleep(PROBE_S)
    emit_event(State(name="dashboard", host=host, address=f"http://{address}:{port}"))
    return True
