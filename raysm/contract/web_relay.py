"""Pass a browser's requests, WebSockets too, on to another server, and its answers back.

Both ends of the way to a Jupyter server do so: the proxy beside the browser, and the session's server on the head. What
tells who asks stays behind at each of them: they have decided by it, and the next one decides by what it is given.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from raysm.contract.connections import OpenConnection, checked_connector

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import web


# https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}

NOT_UP = HOP_BY_HOP | {
    "authorization",
    "cookie",
    "host",
    "origin",
    "referer",
    "x-proxycontextpath",
    "x-ray-authorization",
}
"""Whatever says who asks, and the secret path of the page, which Ray would write into its access log. Origin, because
the other server would compare it with its own name: the proxy has already refused pages of other sites."""

NOT_DOWN = HOP_BY_HOP | {"set-cookie", "content-length", "server", "date"}
"""Cookies know no ports: those of two servers on one machine would overwrite each other."""

CONNECT_S = 20.0
"""Through a tunnel the first connection takes a handshake of several seconds."""


def open_relay(way: str | OpenConnection) -> "aiohttp.ClientSession":
    """Return a client that passes requests on.

    Args:
        way: The path of the Unix socket at which the other server listens, or what connects to the address of each
            request's URL.
    """
    import aiohttp

    return aiohttp.ClientSession(
        # A computing kernel sends nothing for hours, and each notebook has its WebSocket.
        connector=aiohttp.UnixConnector(way, limit=0) if isinstance(way, str) else checked_connector(way),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        # Compressed content is passed on as it is.
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def relay(
    request: "web.Request", session: "aiohttp.ClientSession", url: str, headers: Mapping[str, str] | None = None
) -> "web.StreamResponse":
    """Pass a request on to ``url``, and its answer back, piece by piece; 502 if the server does not answer.

    Args:
        request: The browser's.
        session: The session ``open_relay`` returned.
        url: The address to ask, quoted as it came.
        headers: Headers for the other server, beside the browser's own.
    """
    import aiohttp
    from aiohttp import web

    kept = [pair for pair in _kept(request.headers.items(), NOT_UP) if not pair[0].lower().startswith("x-forwarded-")]
    all_headers = kept + list((headers or {}).items())
    try:
        # Not every browser says "Connection: Upgrade" alone, but all say what they want to upgrade to.
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await _relay_socket(request, session, url, all_headers)
        return await _relay_request(request, session, url, all_headers)
    except aiohttp.WSServerHandshakeError as error:
        return web.Response(status=error.status)
    except (OSError, aiohttp.ClientError) as error:
        return web.Response(status=502, text=f"nobody answers there: {error}")


async def pass_on(answer: "aiohttp.ClientResponse", response: "web.StreamResponse", request: "web.Request") -> None:
    """Pass on the body of an answer as it comes, until one of the two ends is gone."""
    import aiohttp

    try:
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
    except (ConnectionError, aiohttp.ClientError):
        # A page that was closed while its log streamed is no fault: aiohttp would write a traceback. Where it is the
        # other server that has gone, half an answer must not look like a whole one: ended in order, a browser would
        # show it.
        if request.transport is not None:
            request.transport.abort()


def _kept(headers: Iterable[tuple[str, str]], dropped: set[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in dropped]


async def _relay_request(
    request: "web.Request", session: "aiohttp.ClientSession", url: str, headers: list[tuple[str, str]]
) -> "web.StreamResponse":
    from aiohttp import web
    from yarl import URL

    # Streamed: an upload of a gigabyte is not kept in memory.
    body = request.content if request.body_exists else None
    # Encoded already: what a browser has quoted once must not be quoted again.
    target = URL(url, encoded=True)
    async with session.request(request.method, target, headers=headers, data=body, allow_redirects=False) as answer:
        passed = _kept(answer.headers.items(), NOT_DOWN)
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=passed)
        await pass_on(answer, response, request)
        return response


async def _relay_socket(
    request: "web.Request", session: "aiohttp.ClientSession", url: str, headers: list[tuple[str, str]]
) -> "web.StreamResponse":
    from aiohttp import web
    from yarl import URL

    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    protocols = [word.strip() for word in offered.split(",") if word.strip()]
    # The handshake is each connection's own.
    headers = [(name, value) for name, value in headers if not name.lower().startswith("sec-websocket-")]
    # First that side: one that refuses is to be a refusal for the browser, not a connection that closes.
    async with session.ws_connect(
        URL(url, encoded=True), protocols=protocols, headers=headers, max_msg_size=0
    ) as upstream:
        downstream = web.WebSocketResponse(protocols=[upstream.protocol] if upstream.protocol else (), max_msg_size=0)
        await downstream.prepare(request)
        pumps = [asyncio.create_task(_pump(downstream, upstream)), asyncio.create_task(_pump(upstream, downstream))]
        try:
            # Whichever end goes first: the other one is closed, and its pump ends by that.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            with contextlib.suppress(ConnectionError):
                await downstream.close()
        return downstream


async def _pump(
    source: "web.WebSocketResponse | aiohttp.ClientWebSocketResponse",
    target: "web.WebSocketResponse | aiohttp.ClientWebSocketResponse",
) -> None:
    from aiohttp import WSMsgType

    with contextlib.suppress(ConnectionError):
        async for message in source:
            if message.type is WSMsgType.TEXT:
                await target.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await target.send_bytes(message.data)
