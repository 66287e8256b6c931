"""The way to a session's server: straight where it listens on this machine, else through the job's tunnel.

What flows in are a job and where it said that its session listens; what flows out is an address of this machine.
Whether the server is here is not asked of the target: instances that are processes share this machine's loopback, those
in network namespaces and containers have one of their own, and on AWS it is on another machine. So the program at that
port is asked for the proof that it has the job's token, as on every connection. The tunnel would do everywhere, but
takes every byte through three more programs.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from raysm.client.job.handle import Job
from raysm.contract.connections import connect_proved
from raysm.contract.loop_thread import LoopThread

__all__ = ["way_to_server"]

LOOPBACK = "127.0.0.1"

ANSWER_S = 2.0
"""A server of this machine answers in milliseconds; one that is busier than that is reached through the tunnel, too."""


@contextlib.contextmanager
def way_to_server(job: Job, token: str, place: tuple[str, int]) -> Iterator[Callable[[], str]]:
    """Yield what returns the address, ``127.0.0.1:PORT``, at each moment.

    Args:
        job: The session's.
        token: The job's.
        place: The name of the head, and the server's port on its loopback.

    Raises:
        InvalidRequest: The job lets nobody in.
        ServiceError: The service refuses the tunnel.
    """
    host, port = place
    if _is_here(port, token):
        yield lambda: f"{LOOPBACK}:{port}"
        return
    with job.tunnel(port, on=host) as tunnel:
        yield lambda: tunnel.address


def _is_here(port: int, token: str) -> bool:
    # In a loop of its own: the caller may be in one, as every notebook is.
    loop = LoopThread("session port")
    try:
        loop.run(_prove(port, token))
    except OSError:  # also TimeoutError
        return False
    finally:
        loop.close()
    return True


async def _prove(port: int, token: str) -> None:
    async with asyncio.timeout(ANSWER_S):
        connection = await connect_proved(LOOPBACK, port, token=token, server_port=port)
    connection.close()
