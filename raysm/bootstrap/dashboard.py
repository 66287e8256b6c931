"""The dashboard, which is started when somebody asks at its port: where it is, and when it is there."""

import asyncio
import time
from pathlib import Path

from raysm.bootstrap.log import emit_event, remark
from raysm.contract.connections import check_listener, open_to_own
from raysm.contract.events import State
from raysm.errors import ForeignListener

__all__ = ["announce_dashboard", "await_dashboard", "await_start"]

LOOPBACK = "127.0.0.1"

PROBE_S = 0.2
LOOK_S = 1.0
"""Between two looks whether somebody has asked for it."""
DASHBOARD_LOG = "dashboard.log"
"""Ray's own name of the log that its dashboard begins with."""
LIMIT_S = 60.0
"""Ray's own: it does not wait for its dashboard any longer."""


def announce_dashboard(host: str, address: str, port: int) -> bool:
    """Announce where the dashboard is, or will be a few seconds after its first caller.

    Args:
        host: The head.
        address: Where users find it.
        port: Where it listens.

    Returns:
        Whether it was announced: it is not if another user's process has the port.
    """
    try:
        check_listener(LOOPBACK, port)
    except ForeignListener as error:
        remark(f"{error}; the job goes on without its dashboard")
        return False
    emit_event(State(name="dashboard", host=host, address=f"http://{address}:{port}"))
    return True


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
    """Ask for the dashboard until it answers; say so if it does not.

    Args:
        port: Where it listens, on loopback too.
        limit_s: Seconds that it may take.

    Returns:
        Whether it answers.
    """
    until = time.monotonic() + limit_s
    reason = f"the dashboard has not come up within {limit_s:g} s"
    while (left_s := until - time.monotonic()) > 0:
        try:
            # A caller waits in the queue of the port until the dashboard is there.
            if await _answers(port, left_s):
                return True
        except ForeignListener as error:
            reason = str(error)
            break
        await asyncio.sleep(PROBE_S)
    # Not worth a job: it shows what happens, and nothing waits for it.
    remark(f"{reason}; the job goes on without it")
    return False


async def _answers(port: int, limit_s: float) -> bool:
    """Return whether the dashboard answers within ``limit_s``.

    Raises:
        ForeignListener: Another user's process listens at its port.
    """
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection(sock=await open_to_own(LOOPBACK, port))
            try:
                writer.write(b"HEAD / HTTP/1.0\r\n\r\n")
                return bool(await reader.readline())
            finally:
                writer.close()
    except ForeignListener:
        raise
    except OSError:  # also TimeoutError
        return False
