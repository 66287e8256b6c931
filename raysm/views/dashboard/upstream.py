"""Asks the head: a browser's request flows in, what Ray's dashboard answers to it flows out.

The way to the head is opened on first use, and anew when it has broken: a tunnel that is cut while a page is open is
there again before the page asks a second time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from raysm.contract.connections import checked_connector, open_to_own
from raysm.contract.web_relay import pass_on
from raysm.errors import RaysmError
from raysm.views.dashboard.headers import downstream_headers, upstream_headers
from raysm.views.dashboard.parts import PAGE, PageRequest

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import web

__all__ = ["Route", "Upstream", "Way", "unreachable"]

ATTEMPTS = 3
"""So often a request that changes nothing is sent while the way breaks."""
PAUSE_S = 0.3
CONNECT_S = 20.0
"""Through a tunnel the first connection takes a handshake of several seconds."""
SILENCE_S = 60.0
"""Of a dashboard that lets all others go first, on a head that computes on all of its cores."""


class Route(Protocol):
    """What a way leads to."""

    @property
    def address(self) -> str:
        """Of this machine: ``127.0.0.1:PORT``."""


Way = Callable[[], AbstractContextManager[Route]]
"""Opens a way to the head's dashboard; may block, and is called in a thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Message:
    """What is sent to the head."""

    key: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: Any = None

    @property
    def attempts(self) -> int:
        # What changes something is sent once: nobody knows how far it came when the way broke.
        return ATTEMPTS if self.method in ("GET", "HEAD") else 1


def unreachable(error: Exception) -> "web.Response":
    """Return the answer that says why the head has none."""
    from aiohttp import web

    # In Ray's own form: its page passes over it, and asks again four seconds later.
    return web.json_response({"result": False, "msg": f"the head cannot be reached: {error}"}, status=502)


class Upstream:
    """The dashboard of one cluster; belongs to the event loop in which it is used."""

    def __init__(self, way: Way, token: str, link: str = "") -> None:
        """Open nothing yet.

        Args:
            way: Leads to the dashboard.
            token: The job's; it goes to the head alone.
            link: The header Link that the page itself is given.
        """
        self._way, self._token, self._link = way, token, link
        self._lock = asyncio.Lock()
        self._open = contextlib.ExitStack()
        self._route: Route | None = None
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False
        self._closing = asyncio.Event()

    async def answer(self, page_request: PageRequest) -> "web.StreamResponse | None":
        """Pass the request on, and the answer back, piece by piece; 502 where the head cannot be reached."""
        from aiohttp import web

        request = page_request.request
        body = request.content if request.body_exists else None
        message = _Message(
            key=page_request.key, method=request.method, headers=tuple(request.headers.items()), body=body
        )
        async with contextlib.AsyncExitStack() as stack:
            try:
                answer = await stack.enter_async_context(self._sent(message))
            except (OSError, RaysmError) as error:
                return unreachable(error)
            headers = downstream_headers(answer.headers.items())
            if self._link and page_request.path == PAGE:
                headers.append(("Link", self._link))
            response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
            await pass_on(answer, response, request)
            return response

    async def read(self, key: str) -> bytes:
        """Return the body of the answer to a path with its query.

        Raises:
            OSError: The head cannot be reached, or refuses.
        """
        import aiohttp

        message = _Message(key=key, headers=(("Accept-Encoding", "identity"),))
        async with self._sent(message) as answer:
            if answer.status != 200:
                raise OSError(f"{key} is answered with {answer.status}")
            try:
                return await answer.read()
            except aiohttp.ClientError as error:  # a tunnel that is cut in its midst; some of these are no OSError
                raise ConnectionError(f"the answer to {key} broke off: {error}") from error

    async def reach(self) -> None:
        """Return once the head's dashboard can be asked.

        Raises:
            OSError: It cannot be reached.
            RaysmError: The service, or the job, does not let anybody in.
        """
        await self._reach()

    def leave(self) -> None:
        """Ask nobody any more: what is asked from now on, or waits for a way, gets no answer."""
        # Its connections stay: of one that the client closes, aiohttp never tells whoever reads from it.
        self._is_closed = True
        self._closing.set()

    async def close(self) -> None:
        """Close what is open; harmless when repeated. What is asked from then on gets no answer."""
        self.leave()
        if self._session is not None:
            await self._session.close()
        # Not in a thread: at the end of the process there are no further ones.
        self._route = None
        self._open.close()

    @contextlib.asynccontextmanager
    async def _sent(self, message: _Message) -> "AsyncIterator[aiohttp.ClientResponse]":
        """Yield the head's answer.

        Raises:
            OSError: There is none.
        """
        import aiohttp

        async with contextlib.AsyncExitStack() as stack:
            for left in reversed(range(message.attempts)):
                route = await self._reach()
                try:
                    answer = await stack.enter_async_context(await self._heard(self._request(route, message)))
                    break
                except (OSError, aiohttp.ClientError) as error:
                    await self._close_way(route)
                    if not left or self._is_closed:
                        raise ConnectionError(str(error) or type(error).__name__) from error
                    await asyncio.sleep(PAUSE_S)
            yield answer

    async def _heard(self, request: "Coroutine[Any, Any, aiohttp.ClientResponse]") -> "aiohttp.ClientResponse":
        answering = asyncio.ensure_future(request)
        try:
            # A head that is gone is silent, as one that computes is: what the job left is not to wait for that.
            await self._done_or_left(answering)
            if not answering.done():
                raise ConnectionError("the dashboard was closed")
            return answering.result()
        except BaseException:
            # One that came in the very turn in which its reader was ended is nobody's: its connection would stay open.
            if not answering.cancel() and not answering.cancelled() and answering.exception() is None:
                answering.result().close()
            raise

    async def _done_or_left(self, work: "asyncio.Future[Any]") -> None:
        """Return once the work is done, or nobody is asked any more."""
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([work, closing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()

    def _request(self, route: Route, message: _Message) -> "Coroutine[Any, Any, aiohttp.ClientResponse]":
        from yarl import URL

        return self._connected().request(
            message.method,
            # Encoded already: what a browser has quoted once must not be quoted again.
            URL(f"http://{route.address}/{message.key}", encoded=True),
            headers=upstream_headers(message.headers, token=self._token, address=route.address),
            data=message.body,
            allow_redirects=False,
        )

    async def _reach(self) -> Route:
        async with self._lock:
            if self._route is None and not self._is_closed:
                self._route = await self._open_way()
            # A page that is still open asks on while the dashboard is being closed, the way perhaps just being opened.
            if self._route is None or self._is_closed:
                self._open.close()
                raise ConnectionError("the dashboard was closed")
            return self._route

    async def _open_way(self) -> Route | None:
        opening = asyncio.ensure_future(asyncio.to_thread(lambda: self._open.enter_context(self._way())))
        opening.add_done_callback(self._close_late)
        # Not for as long as it takes: to a head that is gone a way is tried for a minute, and a page would wait.
        await self._done_or_left(opening)
        return opening.result() if opening.done() else None

    def _close_late(self, opening: "asyncio.Future[Route]") -> None:
        # exception() also tells asyncio that somebody has seen it: else it would write a traceback.
        if not opening.cancelled() and opening.exception() is None and self._is_closed:
            self._open.close()

    async def _close_way(self, route: Route | None) -> None:
        async with self._lock:
            # Of several requests that meet one broken way, the first closes it.
            if route is not None and route is self._route:
                self._route = None
                await asyncio.to_thread(self._open.close)

    def _connected(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Each connection gets the token: the way may have ended, and its port be another user's by now.
                connector=checked_connector(open_to_own),
                # What the head compressed is passed on as it is.
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S),
            )
        return self._session
