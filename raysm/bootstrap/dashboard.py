"""The dashboard, which is started when somebody asks at its port: where it is, and when it is there."""

import asyncio
import contextlib
import time
from pathlib import Path

from raysm.bootstrap.log import emit_event, remark
from raysm.contract.events import DASHBOARD_NOT_YET, State

__all__ = ["announce_dashboard", "await_dashboard", "await_start"]

PROBE_S = 0.2
LOOK_S = 1.0
"""Between two looks whether somebody has asked for it."""
DASHBOARD_LOG = "dashboard.log"
"""Ray's own name of the log that its dashboard begins with."""
ANSWER_S = 5.0
"""Seconds for one answer."""
LIMIT_S = 60.0
"""Ray's own: it does not wait for its dashboard any longer."""


def announce_dashboard(host: str, address: str, port: int) -> None:
    """Say where the dashboard is, or will be a few seconds after it is first asked.

    Args:
        host: The head.
        address: Where users find it.
        port: Where it listens.
    """
    emit_event(State(name="dashboard", host=host, address=f"http://{address}:{port}"))


async def await_start(logs: Path, limit_s: float) -> None:
    """Return once somebody has asked for the dashboard, at the latest after ``limit_s`` seconds.

    Who looks at a young job is to find later what was there to see. To ask here would start it: its log tells.

    Args:
        logs: Ray's folder of logs on this instance.
        limit_s: Seconds after which it is wanted in any case.
    """
    until = time.monotonic() + limit_s
    while (left_s := until - time.monotonic()) > 0 and not (logs / DASHBOARD_LOG).exists():
        await asyncio.sleep(min(LOOK_S, left_s))


async def await_dashboard(port: int, limit_s: float = LIMIT_S) -> bool:
    """Ask for the dashboard until it answers; say so where it does not.

    Args:
        port: Where it listens, on loopback too.
        limit_s: Seconds that it may take.

    Returns:
        Whether it answers.
    """
    until = time.monotonic() + limit_s
    while not await _answers(port):
        if time.monotonic() > until:
            # Not worth a job: it shows what happens, and nothing waits for it.
            remark(f"the dashboard has not come up within {limit_s:g} s; the job goes on without it")
            return False
        await asyncio.sleep(PROBE_S)
    return True


async def _answers(port: int) -> bool:
    """Return whether the dashboard itself answers: a connection alone may be to what keeps its port."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"HEAD / HTTP/1.0\r\n\r\n")
                status = (await reader.readline()).split()[1:2]
            finally:
                writer.close()
        return bool(status) and status != [str(DASHBOARD_NOT_YET).encode()]
    return False
