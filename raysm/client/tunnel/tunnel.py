"""A tunnel as its user has it: a listener on loopback, with a thread of its own for the loop that serves it."""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from raysm.client.tunnel.listener import LOOPBACK, Listener
from raysm.contract.loop_thread import LoopThread
from raysm.contract.ssm.streams import Stream

__all__ = ["Tunnel", "Way"]


class Way(Protocol):
    """How connections reach a port."""

    async def open(self) -> None:
        """Make sure that there is a way.

        Raises:
            RaysmError: There is none.
        """

    async def connect(self) -> Stream:
        """Return one more connection; raises OSError or RaysmError where it cannot be had."""

    async def close(self) -> None:
        """End what all connections share."""


class Tunnel:
    """A port of this machine's loopback that leads to one of an instance; a context manager, open from the start.

    Attributes:
        port: The local port.
        address: ``127.0.0.1:PORT``.
    """

    def __init__(self, way: Callable[[], Way], *, local_port: int = 0) -> None:
        """Listen, once there is a way.

        Args:
            way: Makes the way to the instance's port, in the loop that serves it.
            local_port: 0 is any that is free.

        Raises:
            InvalidRequest: The local port is taken.
            RaysmError: There is no way.
        """
        # A loop of its own: the user's program may have none, or one that it blocks while it uses the tunnel.
        self._loop = LoopThread("tunnel")
        try:
            # Without a time limit: each step has its own, and the user's Ctrl-C ends them all.
            self._way, self._listener = self._loop.run(_opened(way, local_port))
        except BaseException:
            self._loop.close()
            raise
        self.port = self._listener.port
        self.address = f"{LOOPBACK}:{self.port}"

    def close(self) -> None:
        """End every connection, and listen no more; harmless when repeated."""
        # ``with`` closes it again after an explicit close().
        if self._loop.is_closed:
            return
        # Before the way: a connection that comes meanwhile would begin another session.
        self._loop.run(self._listener.close())
        self._loop.run(self._way.close())
        self._loop.close()

    def __enter__(self) -> "Tunnel":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Tunnel {self.address}>"


async def _opened(make: Callable[[], Way], local_port: int) -> tuple[Way, Listener]:
    way = make()
    listener = Listener(way.connect)
    # First: that a port is taken is known at once, and costs no session.
    await listener.listen(local_port)
    try:
        await way.open()
    except BaseException:
        await listener.close()
        raise
    return way, listener
