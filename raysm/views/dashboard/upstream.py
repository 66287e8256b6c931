"""The proxy's connection to the dashboard on the head: opened at the first request, and reopened if it breaks."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from raysm.contract.connections import open_to_own
from raysm.contract.web_relay import open_relay, relay
from raysm.errors import RaysmError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Route", "Upstream", "Way"]

MAX_TRIES = 3
RETRY_S = 0.3
READ_S = 60.0
"""Seconds to wait for an answer: Ray's dashboard has a low priority, so a busy head answers late."""


class Route(Protocol):
    """An open connection to the head."""

    @property
    def address(self) -> str:
        """``127.0.0.1:PORT``."""


Way: TypeAlias = Callable[[], AbstractContextManager[Route]]
"""Opens a connection to the head's dashboard. It may block, so it is called in a thread."""


class Upstream:
    """A client of one cluster's dashboard; use it in one event loop, as an asynchronous context manager."""

    def __init__(self, way: Way, token: str) -> None:
        """Prepare without connecting.

        Args:
            way: Opens a connection to the dashboard.
            token: The job's token, which is sent only to the head.
        """
        self._way, self._token = way, token
        self._lock = threading.Lock()
        self._open = contextlib.ExitStack()
        self._is_closed = False
        self._opening: asyncio.Task[str] | None = None

    async def __aenter__(self) -> "Upstream":
        # Each connection checks the owner of the port: if the tunnel has ended, another user may have its port.
        self._client = open_relay(open_to_own)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._opening is not None:
            self._opening.cancel()
        await self._client.close()
        with self._lock:
            self._is_closed = True
            self._open.close()

    async def connect(self) -> str:
        """Return the address of the head's dashboard once it answers.

        Raises:
            OSError: The dashboard cannot be reached.
            RaysmError: The service or the job refuses the connection.
        """
        if self._opening is None or (self._opening.done() and (_failed(self._opening))):
            self._opening = asyncio.create_task(asyncio.to_thread(self._open_way))
        # Several requests wait for one attempt, so the cancellation of one must not cancel it.
        return await asyncio.shield(self._opening)

    async def answer(self, request: "web.Request", key: str) -> "web.StreamResponse":
        """Forward a request and return its answer; status 502 if the head cannot be reached.

        Args:
            request: The browser's request.
            key: Encoded path and query for the head.
        """
        # Other methods are sent once, because the request may have arrived before the connection broke.
        tries = MAX_TRIES if request.method in ("GET", "HEAD") else 1
        while True:
            try:
                address = await self.connect()
            except (OSError, RaysmError) as error:
                return _unreachable(error)
            headers = {"Authorization": f"Bearer {self._token}"}
            response = await relay(request, self._client, f"http://{address}/{key}", headers)
            tries -= 1
            if response.status != 502 or response.prepared or self._is_closed:
                return response
            self._reset(address)
            if not tries:
                return _unreachable(ConnectionError(getattr(response, "text", "")))
            await asyncio.sleep(RETRY_S)

    async def read(self, key: str) -> Any:
        """Get a path of the head and return the parsed JSON.

        Raises:
            OSError: The head cannot be reached, or answers with an error.
            ValueError: The answer is not JSON.
        """
        import aiohttp

        address = await self.connect()
        headers = {"Authorization": f"Bearer {self._token}", "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(READ_S),
                self._client.get(f"http://{address}/{key}", headers=headers, allow_redirects=False) as answer,
            ):
                status, content = answer.status, await answer.read()
        except (OSError, aiohttp.ClientError) as error:
            self._reset(address)
            raise ConnectionError(f"{key} is not answered: {error}") from error
        if status != 200:
            raise OSError(f"{key} is answered with {status}")
        return json.loads(content)

    def _open_way(self) -> str:
        way = self._way()
        route = way.__enter__()
        with self._lock:
            self._open.push(way)
            # The page may have been closed while the connection was being opened.
            if self._is_closed:
                self._open.close()
                raise ConnectionError("the dashboard was closed")
        return route.address

    def _reset(self, address: str) -> None:
        # If several requests find the connection broken, the first one closes it.
        opening = self._opening
        if opening is not None and opening.done() and not _failed(opening) and opening.result() == address:
            self._opening = None
            with self._lock:
                stack = self._open.pop_all()
            asyncio.get_running_loop().run_in_executor(None, stack.close)


def _failed(task: "asyncio.Task[str]") -> bool:
    return task.cancelled() or task.exception() is not None


def _unreachable(error: Exception) -> "web.Response":
    from aiohttp import web

    # In the form of Ray's own answers: its page ignores it and asks again after four seconds.
    return web.json_response({"result": False, "msg": f"the head cannot be reached: {error}"}, status=502)
