"""Questions that go over the one WebSocket of a session, each with its number, and the answers that come by it.

What flows in are questions and what the server sends; what flows out are answers. A thousand calls that are waited for
were a thousand connections before, as many as a process may have files open, and a request of HTTP's cost both ends
half a millisecond.
"""

import asyncio
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from raysm.contract.session import frame, unframe

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Exchange"]


class Exchange:
    """One WebSocket's questions; all of it in one event loop."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        """Begin with none.

        Args:
            socket: Open.
        """
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[tuple[dict[str, Any], bytes]]] = {}

    async def ask(self, head: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """Send a question, and wait for its answer, for as long as the connection lives.

        Raises:
            ConnectionError: It broke; whether the question has arrived nobody knows.
        """
        # Not the call's id: the same call may be asked for twice, by its sender and by whoever follows it.
        number = next(self._numbers)
        answer: asyncio.Future[tuple[dict[str, Any], bytes]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self._socket.send_bytes(frame({"ask": number, **head}, body))
            return await answer
        finally:
            # Who waits no more, in whatever way, leaves nothing behind: calls may be given up by the thousand.
            del self._answers[number]

    def hear(self, content: bytes) -> None:
        """Take an answer."""
        head, body = unframe(content)
        answer = self._answers.get(head["ask"])
        # None is left of a question that nobody waits for any more.
        if answer is not None and not answer.done():
            answer.set_result((head, body))

    def end(self) -> None:
        """The connection broke: no more answers come by it."""
        # As a connection of HTTP breaks: the wire asks again, and the server knows the call by its id.
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the connection to the session broke"))
