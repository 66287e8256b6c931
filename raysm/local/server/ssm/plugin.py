"""What a session does in its instance: the interface, as the agent's own plugins have it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from raysm.contract.ssm.frames import Frame, PayloadType
from raysm.local.instances import Instance

__all__ = ["Ends", "Plugin"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """Between which two a plugin stands."""

    instance: Instance
    """In which it works."""
    send: Callable[[PayloadType, bytes], Awaitable[None]]
    """Sends a message to the client; raises OSError where the session has ended."""
    # Decided by the agent, which alone has heard the client's version.
    multiplexes: bool = True
    """Whether client and agent both do."""


class Plugin(Protocol):
    """A session's work."""

    async def run(self) -> None:
        """Do it; the session ends when this returns.

        Raises:
            OSError: It cannot be done; the message is told to the client.
        """

    async def take(self, frame: Frame) -> None:
        """Take a message of the client; return when there is room for the next one."""

    async def close(self) -> None:
        """End it, whatever it does; harmless when repeated."""
